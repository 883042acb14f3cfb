"""A thread handle looks at, compares, forks from and restores earlier points."""

from pathlib import Path

import pytest
from unspool_client import Client, RpcError
from unspool_protocol.positions import LogPosition
from unspool_server.cli.connect import MemoryLink
from unspool_server.cli.daemon import daemon
from unspool_server.config import Config
from unspool_server.transport.memory import MemoryTransport


async def test_a_handle_travels_in_time(tmp_path: Path) -> None:
    async with daemon(Config(), tmp_path) as shared:

        async def open_link() -> MemoryLink:
            transport = MemoryTransport(shared)
            transport.start()
            return MemoryLink(transport)

        async with Client(open_link) as client:
            thread = await client.start_thread()
            await thread.run("one")
            after_one = (await thread.context()).at
            await thread.run("two")
            left = (await thread.context()).at
            place = LogPosition(rollout_id=left.rollout_id, ordinal=left.ordinal)
            await thread.rollback(2)
            assert (await thread.read(include_turns=True)).turns == ()
            assert len((await thread.read(include_turns=True, at=place)).turns) == 2
            difference = await thread.diff(place)
            assert len(difference.turns.removed) == 2 and not difference.turns.added
            child = await thread.fork(after_one)
            assert len([turn async for turn in child.turns()]) == 1
            assert len((await thread.restore(place)).turns) == 2
            assert (await thread.undo_rollback()).turns == ()
            compared = await thread.diff(place, other_thread_id=child.id)
            assert len(compared.turns.removed) == 1
            with pytest.raises(RpcError) as refused:
                await thread.restore(99_999)
            assert refused.value.data["reason"] == "positionInvalid"
