"""The end of one rollout on its medium: where the good bytes end and how more get behind them (02 §3).

Blocking; called from the writer alone, one call at a time. A write that got in partly is remembered, so that a retry
goes on exactly where it stopped, and a withdrawn one is cut off again.
"""

import errno
from contextlib import suppress

from .names import Entry
from .shelf import Blob, Shelf


class ForeignChange(OSError):
    """Somebody else wrote to, cut or replaced the file; appending now could only do harm."""

    def __init__(self) -> None:
        super().__init__(errno.ESTALE, "the log was changed by another writer")


class RolloutTail:
    """Appends to one rollout.

    Args:
        size: Bytes of the rollout that are known; 0 with `exists=False` for one that is to be created.
    """

    def __init__(self, shelf: Shelf, entry: Entry, size: int, *, exists: bool) -> None:
        self._shelf = shelf
        self.entry = entry
        self.exists = exists
        self.good = size
        self.partial = 0
        self._blob: Blob | None = None
        self._checked_end = not exists
        self._void = b""
        self._synced = size
        self._sync_failed = False

    def publish(self, content: bytes, *, sync: bool) -> None:
        """Create the rollout with this content, in one step or not at all."""
        self._shelf.publish(self.entry, content, sync=sync)
        self.exists, self._checked_end, self.good = True, True, len(content)
        self._synced = self.good if sync else 0

    def extend(self, content: bytes) -> None:
        """Write behind the good bytes. On OSError, `partial` tells how many bytes of `content` are in the file.

        The next call must bring content that starts with those bytes, unless `withdraw` was called.
        """
        blob = self._open()
        self._settle_end(blob, content)
        try:
            while self.partial < len(content):
                count = blob.append(content[self.partial :])
                if count <= 0:
                    raise OSError(errno.EIO, "nothing was written")
                self.partial += count
        except OSError:
            # The call may have failed with its bytes in the file; what is there is measured, never guessed.
            with suppress(OSError):
                self._settle_end(blob, content)
            raise
        self.good += len(content)
        self.partial = 0

    def settle(self, count: int) -> None:
        """Count the first `count` of the partly written bytes as good."""
        self.good += count
        self.partial -= count

    def withdraw(self, content: bytes, good: int) -> None:
        """Cut off what a failed write of `content` left behind; if that is refused, the next write does it first.

        Args:
            good: Where the good bytes ended before that write.
        """
        self.good, self._void = good, content
        with suppress(OSError):
            self._cut(self._open())

    def sync(self) -> None:
        """Make the rollout survive power loss.

        After a failed sync the system may take the bytes for clean without having stored them, so that a second sync
        would succeed and prove nothing; they are written once more first.
        """
        if not self.exists:
            return
        blob = self._open()
        if self._sync_failed:
            start = min(self._synced, self.good)
            blob.rewrite(start, blob.read(start, self.good - start))
        self._sync_failed = True
        blob.sync()
        self._sync_failed, self._synced = False, self.good

    def close(self) -> None:
        """Drop the handle; the next write opens a new one."""
        blob, self._blob = self._blob, None
        if blob is not None:
            with suppress(OSError):
                blob.close()

    def _open(self) -> Blob:
        if self._blob is None:
            if self.entry.compressed:
                self.entry = self._shelf.unpack(self.entry)
            self._blob = self._shelf.open(self.entry, writable=True)
        if not self._checked_end:
            self._close_torn_line(self._blob)
        return self._blob

    def _close_torn_line(self, blob: Blob) -> None:
        """A torn last line becomes a bad line of its own and never merges with the next record."""
        if blob.size() != self.good:
            raise ForeignChange
        if self.good and blob.read(self.good - 1, 1) != b"\n":
            blob.append(b"\n")
            if blob.size() != self.good + 1:
                raise OSError(errno.EIO, "nothing was written")
            self.good += 1
        self._checked_end = True

    def _settle_end(self, blob: Blob, content: bytes) -> None:
        if self._void:
            self._cut(blob)
        behind = blob.size() - self.good
        if behind == self.partial == 0:
            return
        if behind < 0 or behind > len(content) or blob.read(self.good, behind) != content[:behind]:
            raise ForeignChange
        self.partial = behind

    def _cut(self, blob: Blob) -> None:
        behind = blob.size() - self.good
        if behind > 0:
            if blob.read(self.good, behind) != self._void[:behind]:
                raise ForeignChange
            blob.truncate(self.good)
        self.partial, self._void = 0, b""


def whole_lines(lines: list[bytes], count: int) -> tuple[int, int]:
    """How many of the lines (line feed included) lie within the first `count` bytes, and their bytes."""
    number = size = 0
    for line in lines:
        if size + len(line) > count:
            break
        number, size = number + 1, size + len(line)
    return number, size
