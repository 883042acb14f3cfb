"""Bytes in memory that behave like a file's: rollouts of ephemeral threads, and unpacked compressed rollouts."""

import errno


class MemoryBlob:
    """See `shelf.Blob`. Shares the buffer it is given when that is a bytearray."""

    def __init__(self, content: bytes | bytearray) -> None:
        self._content = content

    def size(self) -> int:
        """How many bytes there are."""
        return len(self._content)

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`."""
        return bytes(self._content[offset : offset + length])

    def append(self, content: bytes) -> int:
        """Add bytes at the end; refused for read-only content."""
        if not isinstance(self._content, bytearray):
            raise OSError(errno.EROFS, "read-only")
        self._content += content
        return len(content)

    def truncate(self, size: int) -> None:
        """Cut back to a size; refused for read-only content."""
        if not isinstance(self._content, bytearray):
            raise OSError(errno.EROFS, "read-only")
        del self._content[size:]

    def sync(self) -> None:
        """Memory has no power loss to survive."""

    def rewrite(self, offset: int, content: bytes) -> None:
        """Nothing can have been dropped."""

    def close(self) -> None:
        """Nothing to release."""
