"""The seam between the store's rules and a medium: where rollouts lie, and the bytes of one.

Everything here blocks; the store calls it through `Shelf.run`. Media raise `OSError`, nothing else.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from .names import Entry

T = TypeVar("T")


class Blob(Protocol):
    """The bytes of one rollout."""

    def size(self) -> int:
        """How many bytes there are now."""

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`; fewer only at the end."""

    def append(self, content: bytes) -> int:
        """Write at the end; returns how many bytes went in, which may be fewer than given."""

    def truncate(self, size: int) -> None:
        """Cut back bytes of a write that failed."""

    def sync(self) -> None:
        """Make everything written, and the rollout's name, survive power loss."""

    def rewrite(self, offset: int, content: bytes) -> None:
        """Write bytes that are there already once more, so that the next sync takes care of them again."""

    def close(self) -> None:
        """Release the handle."""


class Lease(Protocol):
    """The right to write to one thread, held until released or until the process ends."""

    @property
    def epoch(self) -> int:
        """Rises with every writer of the thread."""

    def renew(self) -> int:
        """Pass the right on within this process; returns the new epoch."""

    def release(self) -> None:
        """Give it back."""


class Shelf(Protocol):
    """Where rollouts lie."""

    async def run(self, call: Callable[[], T]) -> T:
        """Run a blocking call without holding up the event loop."""

    def scan(self) -> list[Entry]:
        """Every rollout by name alone."""

    def changed(self) -> bool:
        """Whether rollouts may have come or gone since the last scan, told cheaply."""

    def stat(self, entry: Entry) -> tuple[int, int]:
        """Size in bytes and a stamp that moves with every change."""

    def stat_all(self, entries: Sequence[Entry]) -> list[tuple[int, int] | None]:
        """The same of many rollouts at once, None for those that are gone."""

    def open(self, entry: Entry, *, writable: bool = False) -> Blob:
        """Open the bytes; a compressed rollout is read unpacked and cannot be written."""

    def unpack(self, entry: Entry) -> Entry:
        """Replace a compressed rollout by its plain form before it is appended to."""

    def publish(self, entry: Entry, content: bytes, *, sync: bool) -> None:
        """Create a rollout with this content in one step. Raises FileExistsError."""

    def move(self, entry: Entry, *, archived: bool) -> Entry:
        """Put a rollout, its twin and its side files into or out of the archive."""

    def remove(self, entry: Entry) -> None:
        """Remove a rollout, its twin and its side files."""

    def read_side(self, entry: Entry, name: str) -> bytes | None:
        """A cache file beside the rollout."""

    def write_side(self, entry: Entry, name: str, content: bytes) -> None:
        """Replace a cache file beside the rollout."""

    def lease(self, thread_id: str) -> Lease:
        """Take the writer lock. Raises WriterHeld."""

    def path(self, entry: Entry) -> Path | None:
        """The path for display, None where there are no files."""
