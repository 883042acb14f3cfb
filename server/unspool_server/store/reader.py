"""Records of one rollout, forwards and backwards, with ordinals and faults (01 §2, §6; 03 §7).

Both directions yield the same records with the same ordinals. Chains of rollouts are put together in `chain.py`.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from unspool_protocol.log import LineFault, Record

from .blocks import Bytes, RawLine, count_lines, lines_backward, lines_forward
from .contract import ReadReport
from .lines import ParsedLine, line_ordinal, parse_line, record_of


@dataclass(frozen=True, slots=True)
class Source:
    """One rollout to be read.

    Attributes:
        legacy: Ordinals are line indices.
        first_ordinal: The ordinal of the first record in paginated mode.
    """

    rollout_id: str
    data: Bytes
    legacy: bool
    first_ordinal: int = 0
    report: ReadReport = field(default_factory=ReadReport)

    def fault(self, line: int, code: str, detail: str = "") -> None:
        """Note a line that is skipped or odd."""
        self.report.faults.append(LineFault(self.rollout_id, line, code, detail))


@dataclass(frozen=True, slots=True)
class Placed:
    """A record and where its line lies in the file."""

    record: Record
    start: int
    end: int


async def records_forward(
    source: Source, *, start: int = 0, expected: int | None = None, line_index: int = 0
) -> AsyncGenerator[Placed, None]:
    """Records of all lines from byte `start`, oldest first.

    Args:
        expected: The ordinal for a record at `start` that has none of its own.
        line_index: The index of the line at `start` (legacy).
    """
    number = source.first_ordinal if expected is None else expected
    last: bytes | None = None
    async with aclosing(lines_forward(source.data, start)) as lines:
        async for line in lines:
            if source.legacy:
                number, line_index = line_index, line_index + 1
            parsed = parse_line(line.content)
            source.data.stats.lines_parsed += 1
            if parsed.fault is not None:
                source.fault(number, _fault_code(line, parsed), parsed.detail)
            for value, raw in parsed.objects:
                ordinal = number if source.legacy else line_ordinal(value)
                if ordinal is None:
                    source.fault(number, "ordinalMissing")
                    ordinal = number
                elif not source.legacy and raw == last:
                    source.fault(ordinal, "duplicate")
                    continue
                last = raw
                number = ordinal + 1 if not source.legacy else number
                yield Placed(record_of(value, raw, source.rollout_id, ordinal), line.start, line.end)


def _fault_code(line: RawLine, parsed: ParsedLine) -> str:
    """A last line that holds no record was cut off while it was written, unless a power cut left zeros there."""
    if parsed.objects or line.terminated or parsed.fault == "zeroBytes":
        return parsed.fault or ""
    return "tornTail"


def records_backward(source: Source, *, end: int | None = None) -> AsyncGenerator[Placed, None]:
    """The same newest first, starting at the line that ends at byte `end`."""
    return _legacy_backward(source, end) if source.legacy else _paginated_backward(source, end)


async def _legacy_backward(source: Source, end: int | None) -> AsyncGenerator[Placed, None]:
    """Line indices are counted from the start, so the bytes before are counted, though not decoded."""
    data = source.data
    top = data.limit if end is None else end
    index = await count_lines(Bytes(data.shelf, data.blob, top, data.stats))
    async with aclosing(lines_backward(data, top)) as lines:
        async for line in lines:
            index -= 1
            parsed = parse_line(line.content)
            data.stats.lines_parsed += 1
            if parsed.fault is not None:
                source.fault(index, _fault_code(line, parsed), parsed.detail)
            for value, raw in reversed(parsed.objects):
                yield Placed(record_of(value, raw, source.rollout_id, index), line.start, line.end)


@dataclass(slots=True)
class _Held:
    """Something met on the way back whose number depends on the next older record that has one."""

    code: str
    detail: str = ""
    value: Mapping[str, Any] | None = None
    raw: bytes = b""
    line: RawLine | None = None


async def _paginated_backward(source: Source, end: int | None) -> AsyncGenerator[Placed, None]:
    held: list[_Held] = []
    last: bytes | None = None
    async with aclosing(lines_backward(source.data, end)) as lines:
        async for line in lines:
            parsed = parse_line(line.content)
            source.data.stats.lines_parsed += 1
            for value, raw in reversed(parsed.objects):
                ordinal = line_ordinal(value)
                if ordinal is None:
                    held.append(_Held("ordinalMissing", "", value, raw, line))
                    last = raw
                    continue
                for placed in _number(source, held, ordinal + 1):
                    yield placed
                if raw == last:
                    source.fault(ordinal, "duplicate")
                    continue
                last = raw
                yield Placed(record_of(value, raw, source.rollout_id, ordinal), line.start, line.end)
            # Behind the line's records on this way: the fault is numbered like the first of them.
            if parsed.fault is not None:
                held.append(_Held(_fault_code(line, parsed), parsed.detail))
    for placed in _number(source, held, source.first_ordinal):
        yield placed


def _number(source: Source, held: list[_Held], number: int) -> list[Placed]:
    """Give the held things their numbers, oldest first, and return the records among them, newest first."""
    placed: list[Placed] = []
    for thing in reversed(held):
        source.fault(number, thing.code, thing.detail)
        if thing.value is not None and thing.line is not None:
            record = record_of(thing.value, thing.raw, source.rollout_id, number)
            placed.append(Placed(record, thing.line.start, thing.line.end))
            number += 1
    held.clear()
    return placed[::-1]
