"""Reading any file at all: both directions agree, ranges are slices, and nothing raises."""

from hypothesis import given, settings
from hypothesis import strategies as st
from unspool_protocol.log import LineFault, Record
from unspool_server.store.blocks import Bytes, lines_backward, lines_forward
from unspool_server.store.contract import ReadReport, ReadStats
from unspool_server.store.memory import MemoryShelf
from unspool_server.store.memory_blob import MemoryBlob
from unspool_server.store.reader import Source, records_backward, records_forward
from unspool_server.store.seek import seek

from tests.examples import examples


def data(content: bytes) -> Bytes:
    """A file in memory."""
    return Bytes(MemoryShelf(), MemoryBlob(content), len(content), ReadStats())


def record(ordinal: int | None, text: str) -> bytes:
    """A line's object."""
    number = "" if ordinal is None else f'"ordinal":{ordinal},'
    return f'{{{number}"type":"event_msg","payload":{{"text":"{text}"}}}}'.encode()


LINES = st.one_of(
    st.builds(record, st.none() | st.integers(0, 30), st.sampled_from("abc")),
    st.builds(lambda one, two: record(one, "g") + record(two, "h"), st.integers(0, 30), st.none() | st.integers(0, 30)),
    st.sampled_from([b"", b"  ", b"\r", b"garbage", b'{"type":', b"\xff\xfe", b"\0\0", b"[]", record(7, "r") + b"\r"]),
)
FILES = st.builds(
    lambda lines, tail: b"".join(line + b"\n" for line in lines) + tail, st.lists(LINES, max_size=14), LINES
)


async def forward(content: bytes, *, legacy: bool) -> tuple[list[Record], list[LineFault]]:
    """Everything, oldest first."""
    source = Source("r", data(content), legacy, 2, ReadReport())
    return [placed.record async for placed in records_forward(source)], source.report.faults


async def backward(content: bytes, *, legacy: bool) -> tuple[list[Record], list[LineFault]]:
    """Everything, newest first, turned round."""
    source = Source("r", data(content), legacy, 2, ReadReport())
    return [placed.record async for placed in records_backward(source)][::-1], source.report.faults


def by_place(faults: list[LineFault]) -> list[tuple[int, str]]:
    """Faults in an order that does not depend on the direction."""
    return sorted((fault.line, fault.code) for fault in faults)


@settings(max_examples=examples(150), deadline=None)
@given(FILES, st.booleans())
async def test_both_directions_read_the_same_records_and_report_the_same_faults(content: bytes, legacy: bool) -> None:
    there, here = await forward(content, legacy=legacy), await backward(content, legacy=legacy)
    assert there[0] == here[0]
    assert by_place(there[1]) == by_place(here[1])


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.sampled_from([b"", b"a", b"bcdefghijklmnop", b"\n", b"\r\n"]), max_size=20), st.integers(1, 9))
async def test_lines_are_the_same_whatever_the_block_size(parts: list[bytes], block: int) -> None:
    content = b"".join(parts)
    there = [line async for line in lines_forward(data(content), block_bytes=block)]
    here = [line async for line in lines_backward(data(content), block_bytes=block)][::-1]
    assert there == here
    assert b"".join(line.content + b"\n" * line.terminated for line in there) == content
    assert all(content[line.start : line.end].removesuffix(b"\n") == line.content for line in there)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=300), st.integers(0, 320), st.integers(1, 4_000))
async def test_seeking_finds_the_cut_where_ordinals_rise(steps: list[int], wanted: int, width: int) -> None:
    lines: list[bytes] = []
    ordinals: list[int] = []
    for step in steps:
        # Mostly without gaps, as files are; bad lines in between must not matter.
        if step == 0:
            lines.append(b"bad" * 10)
        else:
            ordinals.append(2 + len(ordinals))
            lines.append(record(ordinals[-1], "x" * width))
    content = b"".join(line + b"\n" for line in lines)
    source = Source("r", data(content), False, 2, ReadReport())
    found = await seek(source, wanted)
    before = [placed.record.ordinal async for placed in records_backward(source, end=found.offset)]
    after = [placed.record.ordinal async for placed in records_forward(source, start=found.offset)]
    assert before[::-1] + after == ordinals
    assert all(ordinal < wanted for ordinal in before)
    assert all(ordinal >= wanted for ordinal in after)
