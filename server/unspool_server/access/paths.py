"""Which files clients may name by path: those of the home and of configured folders, wherever links and `..` lead."""

import os
from collections.abc import Iterable
from pathlib import Path


class AllowedPaths:
    """Folders whose files may be named.

    Args:
        roots: They need not exist; each is taken for the folder that it leads to when it is asked.
    """

    def __init__(self, roots: Iterable[str | Path]) -> None:
        self._roots = tuple(roots)

    def allows(self, path: str) -> bool:
        """Whether a path leads into one of the folders. Relative ones do not: they would depend on where we run."""
        if "\0" in path or not os.path.isabs(path):  # noqa: PTH117 - text only
            return False
        try:
            real = Path(os.path.realpath(path))
            return any(real.is_relative_to(os.path.realpath(root)) for root in self._roots)
        except (OSError, ValueError):
            return False
