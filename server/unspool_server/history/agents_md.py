"""AGENTS.md: which files count, how their texts are joined, and which part is due (07 §2.2).

Pure path and text logic; reading the files is the caller's work, done when a thread is loaded or its cwd changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from .fields import texts_of
from .state import Item

FILE_NAMES = ("AGENTS.override.md", "AGENTS.md")
"""In each folder the first of these that exists counts."""

REPLACED_NOTICE = "These instructions replace all AGENTS.md instructions that were given earlier."
REMOVED_NOTICE = "The AGENTS.md instructions that were given earlier no longer apply."

_HEAD = "# AGENTS.md instructions"
_SEPARATOR = "\n\n--- project-doc ---\n\n"


@dataclass(frozen=True, slots=True)
class AgentsMd:
    """Instructions in force.

    Attributes:
        directory: The thread's cwd, not the folder of a file.
        is_global_only: No project file took part, so the text is not bound to a folder.
    """

    directory: str
    text: str
    is_global_only: bool = False

    def document(self) -> dict[str, Any]:
        """The `agents_md` section of a world state."""
        return {"directory": self.directory, "text": self.text}

    def part(self, *, replaces: bool = False) -> str:
        """The text for the model, with a notice in front when it takes the place of earlier instructions."""
        head = _HEAD if self.is_global_only else f"{_HEAD} for {self.directory}"
        return _framed(head, f"{REPLACED_NOTICE}\n\n{self.text}" if replaces else self.text)


def agents_md_candidates(cwd: str, project_root: str | None) -> list[tuple[str, ...]]:
    """Files to try, one tuple per folder from the project root down to the cwd; the first that exists counts.

    Args:
        project_root: The nearest folder upwards that holds a project's mark, or None.
    """
    folder = PurePath(cwd)
    folders = [folder]
    if project_root is not None and PurePath(project_root) in folder.parents:
        below = folder.relative_to(project_root).parts
        folders = [PurePath(project_root, *below[:depth]) for depth in range(len(below) + 1)]
    return [tuple(str(each / name) for name in FILE_NAMES) for each in folders]


def assemble_agents_md(cwd: str, project_texts: Iterable[str], global_text: str | None = None) -> AgentsMd | None:
    """Join the texts of the files that were found, in the order of `agents_md_candidates`; None when all are blank."""
    project = "\n\n".join(text for text in project_texts if text.strip())
    shared = (global_text or "").strip()
    if not project and not shared:
        return None
    joined = _SEPARATOR.join(text for text in (shared, project) if text)
    return AgentsMd(cwd, joined, is_global_only=not project)


def due_part(baseline: Mapping[str, Any] | None, now: AgentsMd | None, history: Sequence[Item]) -> str | None:
    """The part that tells the model of a change, None when it knows already.

    Args:
        baseline: The recorded `agents_md` section: `{}` means known to be none, None means unknown.
    """
    if baseline is None:
        shown = any(text.startswith(_HEAD) for item in history for text in texts_of(item))
        if now is None:
            return _removed() if shown else None
        return now.part(replaces=shown)
    old_text = baseline.get("text")
    if not isinstance(old_text, str):
        return None if now is None else now.part()
    if now is None:
        return _removed()
    moved = not now.is_global_only and baseline.get("directory") != now.directory
    return now.part(replaces=True) if moved or old_text != now.text else None


def _removed() -> str:
    return _framed(_HEAD, REMOVED_NOTICE)


def _framed(head: str, text: str) -> str:
    return f"{head}\n\n<INSTRUCTIONS>\n{text}\n</INSTRUCTIONS>"
