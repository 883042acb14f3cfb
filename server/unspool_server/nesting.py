"""How deeply JSON from outside may be nested; what is deeper cannot be written, shown and read again everywhere."""

from typing import Any

DEEPEST = 128
"""Objects and arrays within each other. The fastest encoder ends at 254, and records and messages add their own."""


def too_deep(value: Any) -> bool:
    """Whether a JSON value is nested more deeply than anything here has to be."""
    level, depth = [value], 0
    while level:
        if depth > DEEPEST:
            return True
        depth += 1
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(part for part in one.values() if isinstance(part, dict | list))
            elif isinstance(one, list):
                inner.extend(part for part in one if isinstance(part, dict | list))
        level = inner
    return False
