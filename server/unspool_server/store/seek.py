"""Finding where a record with a given ordinal begins, without reading everything before it.

Ordinals rise along a sound file, so a few blocks are probed; what is found is verified by the record just before. A
file whose ordinals do not rise is walked from its end.
"""

from contextlib import aclosing
from dataclasses import dataclass, replace

from .blocks import BLOCK_BYTES, lines_forward
from .contract import ReadReport
from .lines import line_ordinal, parse_line
from .reader import Source, records_backward

_NEAR_RECORDS = 64
"""So many records are looked at from the end before blocks are probed: most questions are about the newest ones."""


@dataclass(frozen=True, slots=True)
class Found:
    """A cut: everything with a lower ordinal lies before byte `offset`; a record there would get `expected`."""

    offset: int
    expected: int


async def seek(source: Source, ordinal: int) -> Found:
    """Find the cut before the first record whose ordinal is not lower than `ordinal` (legacy: line index)."""
    source = replace(source, report=ReadReport())
    if source.legacy:
        return await _legacy_seek(source, ordinal)
    near = await _walk(source, source.data.limit, ordinal, at_most=_NEAR_RECORDS)
    if near is not None and near.expected == ordinal:
        return near
    probed = await _probe(source, ordinal)
    found = await _walk(source, probed, ordinal, at_most=2 * _NEAR_RECORDS)
    if found is not None and found.expected == ordinal:
        return found
    walked = await _walk(source, source.data.limit, ordinal, at_most=None)
    assert walked is not None
    return walked


async def cut(source: Source, end: int, hint: int | None) -> int:
    """The byte offset at which the inherited part of a base ends.

    Args:
        hint: `end_byte_offset` as recorded; used when the line before ends there and the ordinals agree.
    """
    if hint is not None and not source.legacy and await _hint_holds(source, end, hint):
        return hint
    return (await seek(source, end)).offset


async def _hint_holds(source: Source, end: int, hint: int) -> bool:
    data = source.data
    if hint == 0 or hint > data.limit or await data.read(hint - 1, 1) != b"\n":
        return False
    if hint == data.limit:
        last = await _walk(replace(source, report=ReadReport()), hint, end, at_most=1)
        return last is not None and last.expected == end
    async with aclosing(lines_forward(data, hint, block_bytes=BLOCK_BYTES // 16)) as lines:
        async for line in lines:
            objects = parse_line(line.content).objects
            if objects:
                return line_ordinal(objects[0][0]) == end
    return False


async def _walk(source: Source, top: int, ordinal: int, *, at_most: int | None) -> Found | None:
    """Go back from byte `top` to two records in a row with lower ordinals; None after `at_most` others."""
    offset, seen, lower = top, 0, None
    async with aclosing(records_backward(source, end=top)) as placed:
        async for each in placed:
            own = each.record.ordinal
            if own == ordinal - 1:
                return Found(each.end, ordinal)
            if own < ordinal:
                if lower is not None:
                    return lower
                lower = Found(each.end, own + 1)
            else:
                offset, lower = each.start, None
            seen += 1
            if at_most is not None and seen >= at_most:
                return None
    return lower or Found(0 if offset != top else top, source.first_ordinal)


async def _probe(source: Source, ordinal: int) -> int:
    """The end of a line not far behind the cut."""
    low, high = 0, source.data.limit
    while high - low > 2 * BLOCK_BYTES:
        middle = (low + high) // 2
        start, own = await _first_numbered(source, middle)
        if own is None or start >= high:
            # Nothing numbered begins in the upper half; the walk from there decides.
            break
        if own >= ordinal:
            high = start
        else:
            low = start
    return high


async def _first_numbered(source: Source, offset: int) -> tuple[int, int | None]:
    """The first whole line behind `offset` that has an ordinal: where it begins, and the ordinal."""
    first = True
    async with aclosing(lines_forward(source.data, offset)) as lines:
        async for line in lines:
            if first:
                first = False
                continue
            source.data.stats.lines_parsed += 1
            for value, _ in parse_line(line.content).objects:
                own = line_ordinal(value)
                if own is not None:
                    return line.start, own
    return source.data.limit, None


async def _legacy_seek(source: Source, index: int) -> Found:
    number = 0
    async with aclosing(lines_forward(source.data)) as lines:
        async for line in lines:
            if number == index:
                return Found(line.start, index)
            number += 1
    return Found(source.data.limit, number)
