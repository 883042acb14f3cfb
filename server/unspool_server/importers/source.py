"""Source files as lines: streamed, never held whole, and single lines again by their place.

Compressed files are unpacked as they are read; only Codex keeps such files, and those are copied, not converted.
"""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

from ..store.lines import parse_line

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line: its 1-based number, where it begins, and its objects (none: blank or damaged)."""

    number: int
    offset: int
    objects: tuple[Entry, ...]
    fault: str | None = None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A source opened for reading bytes, unpacked if its name says that it is compressed. Raises OSError."""
    if path.suffix != ".zst":
        with path.open("rb") as file:
            yield file
        return
    # Imported here: few sources are compressed.
    import zstandard

    try:
        with zstandard.open(path, "rb") as unpacked:
            yield cast(BinaryIO, unpacked)
    except zstandard.ZstdError as error:
        raise OSError(errno.EIO, "the compressed file is damaged") from error


class SourceFile:
    """A plain JSONL file: all lines in order, or one entry again. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[SourceLine]:
        return self.lines()

    def lines(self, holding: bytes = b"") -> Iterator[SourceLine]:
        """All lines, or those that hold these bytes. Reading entries meanwhile does not disturb it."""
        offset = number = 0
        self._file.seek(0)
        while line := self._file.readline():
            number += 1
            end = offset + len(line)
            if holding in line:
                parsed = parse_line(line.removesuffix(b"\n"))
                objects = tuple(value for value, _ in parsed.objects)
                yield SourceLine(number, offset, objects, None if objects else parsed.fault)
                self._file.seek(end)
            offset = end

    def entry(self, offset: int, index: int = 0) -> Entry:
        """The object at a place that iterating has told; several may share a line."""
        self._file.seek(offset)
        return parse_line(self._file.readline().removesuffix(b"\n")).objects[index][0]


def text_at(source: Entry, key: str) -> str | None:
    """A text member, None where there is none."""
    value = source.get(key)
    return value if isinstance(value, str) else None


def object_at(source: Entry, key: str) -> Entry:
    """An object member, empty where there is none."""
    value = source.get(key)
    return value if isinstance(value, dict) else {}
