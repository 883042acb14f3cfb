"""A thread with a log of 50 MB, made quickly: one real turn of the daemon, copied many times with new ids.

Its last part is real again: a compaction and a few turns, so that a checkpoint lies in its last hundredth.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.state.inprocess import house

BIG_BYTES = 50_000_000
TEXT = "lorem ipsum dolor sit amet " * 190
"""A user message of about 5 KB; the offline model echoes it, and each text is in the log twice."""


async def make_big_thread(home: Path, *, size: int = BIG_BYTES) -> str:
    """Write the log into a fresh home; returns the thread's id."""
    async with house(home) as daemon, daemon.client() as client:
        thread_id: str = (await client.call("thread/start"))["thread"]["id"]
        for number in range(2):
            await client.turn(thread_id, f"{number} {TEXT}")
        path = Path(daemon.session(thread_id).log.info.path or "")
    _grow(path, size)
    async with house(home) as daemon, daemon.client() as client:
        await client.call("thread/resume", threadId=thread_id, excludeTurns=True)
        await client.call("thread/compact", threadId=thread_id, summary="Much was said.", keepLast=2)
        for number in range(3):
            await client.turn(thread_id, f"after the compaction {number}")
    assert path.stat().st_size > size
    return thread_id


def _grow(path: Path, size: int) -> None:
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    begins = [number for number, record in enumerate(records) if record["payload"].get("type") == "task_started"]
    turn = records[begins[1] :]
    with path.open("ab") as out:
        out.writelines(_copies(turn, records[-1]["ordinal"] + 1, size - path.stat().st_size))


def _copies(turn: list[dict[str, Any]], ordinal: int, size: int) -> Iterator[bytes]:
    """Lines of further turns: the id is new in each, the lines carry no check value, as those of other programs."""
    for record in turn:
        del record["check"]
    turn_id: str = turn[0]["payload"]["turn_id"]
    pieces = [json.dumps(record, separators=(",", ":")).encode().split(turn_id.encode()) for record in turn]
    number = 0
    while size > 0:
        number += 1
        fresh = str(UUID(int=UUID(turn_id).int + (number << 8))).encode()
        for record, parts in zip(turn, pieces, strict=True):
            line = fresh.join(parts).replace(b'"ordinal":%d' % record["ordinal"], b'"ordinal":%d' % ordinal, 1) + b"\n"
            ordinal += 1
            size -= len(line)
            yield line
