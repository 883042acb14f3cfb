"""File names and folders of rollouts (01 §4), and which rollout of a thread is its present (07 §7)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Self

_ID = r"[0-9A-Za-z][0-9A-Za-z.-]{0,80}"
_NAME = re.compile(rf"rollout-(\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d)-({_ID}?)(?:_({_ID}))?\.jsonl(\.zst)?")
_VALID_ID = re.compile(_ID)
_STAMP = "%Y-%m-%dT%H-%M-%S"


def is_id(text: str) -> bool:
    """Whether a thread or rollout id may become part of a file name."""
    return _VALID_ID.fullmatch(text) is not None and ".." not in text


@dataclass(frozen=True, slots=True)
class Entry:
    """One rollout of a store, known by its name and place alone.

    Attributes:
        stamp: Local time of creation, `YYYY-MM-DDTHH-MM-SS`.
        segment: The name carries the rollout id; the first rollout of a thread has the thread's own id.
        folder: `YYYY/MM/DD` below `sessions`; kept while archived, where all lie flat.
    """

    stamp: str
    thread_id: str
    rollout_id: str
    segment: bool = False
    folder: str = ""
    archived: bool = False
    compressed: bool = False

    @classmethod
    def new(cls, thread_id: str, rollout_id: str, now: datetime, *, after: "Entry | None" = None) -> Self:
        """Name a new rollout so that it is newer than `after` even when the wall clock went back."""
        moment = now.astimezone().replace(tzinfo=None, microsecond=0)
        segment = rollout_id != thread_id
        entry = cls(moment.strftime(_STAMP), thread_id, rollout_id, segment)
        entry = replace(entry, folder=entry.dated_folder)
        if after is not None and entry.key <= after.key:
            last = datetime.strptime(after.stamp, _STAMP)
            for moment in (last, last + timedelta(seconds=1), last + timedelta(days=1)):
                entry = replace(entry, stamp=moment.strftime(_STAMP))
                entry = replace(entry, folder=entry.dated_folder)
                if entry.key > after.key:
                    break
        return entry

    @classmethod
    def parse(cls, name: str, *, folder: str = "", archived: bool = False) -> Self | None:
        """Read a file name; None for everything that is no rollout (copies like `name (1).jsonl` included)."""
        found = _NAME.fullmatch(name)
        if not found:
            return None
        stamp, thread_id, rollout_id, compressed = found.groups()
        entry = cls(
            stamp, thread_id, rollout_id or thread_id, rollout_id is not None, folder, archived, bool(compressed)
        )
        return entry if folder else replace(entry, folder=entry.dated_folder)

    @property
    def dated_folder(self) -> str:
        """The folder that the name asks for."""
        return self.stamp[:10].replace("-", "/")

    @property
    def key(self) -> tuple[str, str, str]:
        """Order among the rollouts of a thread; the first one has no id in its name and loses a tie."""
        return (self.folder, self.stamp, self.rollout_id if self.segment else "")

    @property
    def file_name(self) -> str:
        """The plain file name."""
        own = f"_{self.rollout_id}" if self.segment else ""
        return f"rollout-{self.stamp}-{self.thread_id}{own}.jsonl{'.zst' if self.compressed else ''}"

    @property
    def relative_path(self) -> PurePosixPath:
        """The path below the home."""
        if self.archived:
            return PurePosixPath("archived_sessions", self.file_name)
        return PurePosixPath("sessions", self.folder, self.file_name)


def present_order(entries: Iterable[Entry]) -> list[Entry]:
    """Candidates for a thread's present, best first: the newest live one, archived ones only when none is live."""
    return sorted(entries, key=lambda entry: (not entry.archived, entry.key), reverse=True)


def without_twins(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Entries by rollout id, oldest first; a plain file wins over its compressed twin, a live one over an archived."""
    best: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda entry: (entry.key, not entry.archived, not entry.compressed)):
        best[entry.rollout_id] = entry
    return best
