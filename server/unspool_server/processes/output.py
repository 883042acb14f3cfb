"""What is kept of a command's output: its head and its tail, within a bound, as text. Counts all of it."""

import codecs
from collections import deque

KEPT_BYTES = 1 << 20
"""Of one command's output; what lies between head and tail is left out."""


class KeptOutput:
    """Output as it comes, in pieces; the first and the last half of the bound are kept.

    Args:
        max_bytes: Bound of what is kept, in bytes of UTF-8.
    """

    def __init__(self, max_bytes: int = KEPT_BYTES) -> None:
        self._half = max_bytes // 2
        self._head: list[bytes] = []
        self._room = self._half
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.total_bytes = 0
        self.omitted_bytes = 0

    def add(self, text: str) -> None:
        """Take in a piece."""
        piece = text.encode("utf-8", "replace")
        self.total_bytes += len(piece)
        if self._room > 0:
            fitting, piece = piece[: self._room], piece[self._room :]
            self._head.append(fitting)
            self._room -= len(fitting)
        if not piece:
            return
        self._tail.append(piece)
        self._tail_bytes += len(piece)
        while (excess := self._tail_bytes - self._half) > 0:
            oldest = self._tail.popleft()
            if len(oldest) > excess:
                self._tail.appendleft(oldest[excess:])
            gone = min(len(oldest), excess)
            self._tail_bytes -= gone
            self.omitted_bytes += gone

    def text(self) -> str:
        """Everything, or head and tail with a line between them that says how many bytes are left out."""
        head, tail = b"".join(self._head), b"".join(self._tail)
        if not self.omitted_bytes:
            return (head + tail).decode("utf-8", "replace")
        return f"{_whole(head)}{omission(self.omitted_bytes)}{_whole(tail)}"


def omission(count: int) -> str:
    """The line that stands for what was left out (07 §5)."""
    return f"\n... {count} bytes omitted ...\n"


def _whole(part: bytes) -> str:
    """Text of a part that may begin or end inside a character."""
    return part.decode("utf-8", "ignore")


class TextStream:
    """Bytes to text, piece by piece; bytes that are no UTF-8 become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, chunk: bytes) -> str:
        """The text that is complete now."""
        return self._decoder.decode(chunk)

    def end(self) -> str:
        """What is left of an unfinished character."""
        return self._decoder.decode(b"", final=True)
