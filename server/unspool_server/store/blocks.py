"""Raw lines of a blob, forwards and backwards, in blocks. Splits on byte 0x0A only and decodes nothing."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from .contract import ReadStats
from .memory_blob import MemoryBlob
from .shelf import Blob, Shelf

BLOCK_BYTES = 64 * 1024
"""How much is read at a time (03 §7)."""
LINE_BYTES = 4 * 1024
"""How much is read at a time where one line is wanted."""


@dataclass(frozen=True, slots=True)
class RawLine:
    """A line without its line feed.

    Attributes:
        start, end: Byte offsets; `end` is behind the line feed.
        terminated: False for a last line without line feed.
    """

    content: bytes
    start: int
    end: int
    terminated: bool = True


@dataclass(frozen=True, slots=True)
class Bytes:
    """The part of a blob that a reader may see: everything before `limit`."""

    shelf: Shelf
    blob: Blob
    limit: int
    stats: ReadStats

    async def read(self, offset: int, length: int) -> bytes:
        """Read a block and count it."""
        length = min(length, self.limit - offset)
        if length <= 0:
            return b""
        if isinstance(self.blob, MemoryBlob):
            # No worker thread for what is in memory, but others may run in between all the same.
            await asyncio.sleep(0)
            block = self.blob.read(offset, length)
        else:
            block = await self.shelf.run(lambda: self.blob.read(offset, length))
        self.stats.bytes_read += len(block)
        return block


async def lines_forward(
    source: Bytes, start: int = 0, *, block_bytes: int = BLOCK_BYTES
) -> AsyncGenerator[RawLine, None]:
    """Lines from `start`, which must be the beginning of a line, oldest first."""
    offset, line_start = start, start
    parts: list[bytes] = []
    while block := await source.read(offset, block_bytes):
        offset += len(block)
        pieces = block.split(b"\n")
        for piece in pieces[:-1]:
            content = b"".join((*parts, piece)) if parts else piece
            parts.clear()
            end = line_start + len(content) + 1
            yield RawLine(content, line_start, end)
            line_start = end
        if pieces[-1]:
            parts.append(pieces[-1])
    if parts:
        content = b"".join(parts)
        yield RawLine(content, line_start, line_start + len(content), terminated=False)


async def lines_backward(
    source: Bytes, end: int | None = None, *, block_bytes: int = BLOCK_BYTES
) -> AsyncGenerator[RawLine, None]:
    """Lines before `end` (default: the limit), which must be the end of a line, newest first."""
    top = source.limit if end is None else end
    offset, line_end = top, top
    parts: list[bytes] = []
    terminated = False
    while offset > 0:
        length = min(block_bytes, offset)
        block = await source.read(offset - length, length)
        if len(block) < length:
            # The file became shorter while it was read; what is left above cannot be trusted.
            return
        offset -= length
        pieces = block.split(b"\n")
        for index in range(len(pieces) - 1, 0, -1):
            content = b"".join((pieces[index], *reversed(parts))) if parts else pieces[index]
            parts.clear()
            start = line_end - len(content) - (1 if terminated else 0)
            if terminated or content:
                yield RawLine(content, start, line_end, terminated)
            line_end, terminated = start, True
        if pieces[0]:
            parts.append(pieces[0])
    content = b"".join(reversed(parts))
    if terminated or content:
        yield RawLine(content, 0, line_end, terminated)


async def count_lines(source: Bytes) -> int:
    """How many lines there are, a last one without line feed included."""
    count, offset, last = 0, 0, b"\n"
    while block := await source.read(offset, 16 * BLOCK_BYTES):
        count += block.count(b"\n")
        offset += len(block)
        last = block[-1:]
    return count + (last != b"\n")
