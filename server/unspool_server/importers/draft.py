"""What converters hand over: threads to be, their headers, and records with marks where others may begin."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from unspool_protocol.log import NewRecord


@dataclass(frozen=True, slots=True)
class Mark:
    """A place among the records of a draft, just behind the newest one, that a fork may begin at."""

    node: int


@dataclass(frozen=True, slots=True)
class DraftBase:
    """Where a fork begins: a mark of an earlier draft of the same session."""

    draft: int
    node: int


@dataclass(frozen=True, slots=True)
class ThreadDraft:
    """One thread to be.

    Attributes:
        wanted_id: The id that the thread shall have if it is free; `spare_id` otherwise.
        spare_id: An id that nothing else can have.
        ms: When the thread began; decides its file name and folder.
        header: Members of its `session_meta` besides ids, times, mode and base.
        origin: What it was made from, kept in the header, so that the same thing is known again.
        base: Drafts without one begin with nothing.
        forked_from: The thread of another source file that it goes on from, as the source names it.
        parent: The thread that spawned it, as the source names it.
    """

    wanted_id: str | None
    spare_id: str
    ms: int
    header: Mapping[str, Any]
    origin: Mapping[str, str]
    base: DraftBase | None = None
    forked_from: str | None = None
    parent: str | None = None


class Converted(Protocol):
    """A converted session. Records are made while they are read, those of a base before those of its forks."""

    @property
    def drafts(self) -> Sequence[ThreadDraft]:
        """The threads to be, bases first."""

    def records(self, draft: int, thread_id: str) -> Iterator[NewRecord | Mark]:
        """The records of a draft without its header, as those of the thread that it becomes."""
