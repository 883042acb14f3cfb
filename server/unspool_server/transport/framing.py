"""Bytes to lines: a buffer that is fed as bytes come and asked for messages (`wire` §1). Does no I/O.

Lines end with byte 0x0A and nothing else: text may hold U+2028, U+0085, VT or FF. Blanks around a message and empty
lines mean nothing, so CRLF needs no rule of its own.
"""

from dataclasses import dataclass

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""The longest message that any transport takes."""

_BLANKS = b" \t\r"


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line longer than the limit; its bytes were thrown away as they came."""

    limit_bytes: int


class LineBuffer:
    """Collects chunks and gives out lines. Holds at most one unfinished line of `max_bytes` plus one chunk."""

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._overflowed = False

    def receive_data(self, chunk: bytes) -> list[bytes | TooLong]:
        """Add bytes; the messages that are complete now, in order."""
        *ends, rest = chunk.split(b"\n")
        messages = [message for end in ends if (message := self._finish(end)) is not None]
        self._keep(rest)
        return messages

    def receive_eof(self) -> list[bytes | TooLong]:
        """No more bytes: a last line without its line feed counts as a message."""
        message = self._finish(b"")
        return [] if message is None else [message]

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max_bytes:
            self._overflowed = True
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _finish(self, part: bytes) -> bytes | TooLong | None:
        self._keep(part)
        line = b"".join(self._parts).strip(_BLANKS)
        overflowed = self._overflowed
        self._parts, self._size, self._overflowed = [], 0, False
        if overflowed:
            return TooLong(self._max_bytes)
        return line or None
