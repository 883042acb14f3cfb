"""What resuming, forking, rolling back and paging a long thread cost, in bytes and lines (DESIGN §1.4)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unspool_protocol.turns import Turn
from unspool_server.history import turn_draft
from unspool_server.store.contract import ReadStats

from tests.costs.conftest import Big
from tests.state.inprocess import Client, House, Message, house, user_texts

SPARE_LINES = 200


class Spent:
    """What was read and written in between."""

    def __init__(self, stats: ReadStats) -> None:
        self._stats, self._before = stats, replace(stats)

    @property
    def read(self) -> int:
        """Bytes read."""
        return self._stats.bytes_read - self._before.bytes_read

    @property
    def written(self) -> int:
        """Bytes written."""
        return self._stats.bytes_written - self._before.bytes_written

    @property
    def lines(self) -> int:
        """Lines decoded."""
        return self._stats.lines_parsed - self._before.lines_parsed


@contextmanager
def counted(daemon: House) -> Iterator[Spent]:
    """Count what the store reads and writes inside."""
    yield Spent(daemon.store.stats)


def lines_since_checkpoint(home: Path) -> int:
    """Lines of the newest log from its checkpoint on."""
    [path] = home.rglob("rollout-*.jsonl")
    lines = path.read_bytes().splitlines()
    newest = max(number for number, line in enumerate(lines) if b'"type":"compacted"' in line)
    assert newest > len(lines) * 0.99
    return len(lines) - newest


def size_on_disk(home: Path) -> int:
    """Bytes of all logs and side files."""
    return sum(path.stat().st_size for path in (home / "sessions").rglob("*") if path.is_file())


def base_instructions(path: str) -> int:
    """Bytes of the base instructions in a log's header, which a fork repeats."""
    with Path(path).open("rb") as log:
        header: Message = json.loads(log.readline())
    return len(json.dumps(header["payload"].get("base_instructions", "")))


async def resume(client: Client, thread_id: str) -> Message:
    return await client.call("thread/resume", threadId=thread_id, excludeTurns=True)


async def test_a_cold_resume_reads_less_than_three_hundredths_of_a_long_log(big: Big) -> None:
    tail = lines_since_checkpoint(big.home)
    async with house(big.home) as daemon, daemon.client() as client:
        with counted(daemon) as spent:
            resumed = await resume(client, big.thread_id)
        assert spent.read < big.log_bytes * 0.03
        assert spent.lines < tail + SPARE_LINES
        assert spent.written == 0
        assert resumed["thread"]["preview"].startswith("0 lorem")
        await client.turn(big.thread_id, "still here")
        page = await client.call("thread/turns/list", threadId=big.thread_id, limit=1)
        assert user_texts(page["data"][0]) == ["still here"]


async def test_a_cold_resume_through_a_chain_of_branches_costs_no_more(big: Big) -> None:
    async with house(big.home) as daemon, daemon.client() as client:
        await resume(client, big.thread_id)
        await client.call("thread/rollback", threadId=big.thread_id, numTurns=1)
        forked = await client.call("thread/fork", threadId=big.thread_id, excludeTurns=True)
        thread_id = forked["thread"]["id"]
        await client.turn(thread_id, "in the fork")
        last = await client.turn(thread_id, "to be reverted")
        await client.call("thread/revert", threadId=thread_id, beforeTurnId=last["id"])
        again = (await client.call("thread/fork", threadId=thread_id, excludeTurns=True))["thread"]["id"]
    async with house(big.home) as daemon, daemon.client() as client:
        for each in (again, thread_id, big.thread_id):
            with counted(daemon) as spent:
                resumed = await resume(client, each)
            assert spent.read < big.log_bytes * 0.03
            # Less than the tail of the first log, as the newest turns were taken away, and what the branches added.
            assert spent.lines < 100 + SPARE_LINES
            assert resumed["thread"]["preview"].startswith("0 lorem")


@pytest.mark.parametrize("cut", ["whole", "lastTurnId", "beforeTurnId"])
async def test_a_fork_of_a_long_thread_writes_less_than_4_kb_beside_base_instructions(big: Big, cut: str) -> None:
    async with house(big.home) as daemon, daemon.client() as client:
        await resume(client, big.thread_id)
        page = await client.call("thread/turns/list", threadId=big.thread_id, limit=2)
        named: dict[str, Any] = {} if cut == "whole" else {cut: page["data"][1]["id"]}
        before = size_on_disk(big.home)
        with counted(daemon) as spent:
            made = await client.call("thread/fork", threadId=big.thread_id, excludeTurns=True, **named)
        inherited = base_instructions(made["thread"]["path"])
        assert 0 < size_on_disk(big.home) - before - inherited < 4096
        assert spent.written - inherited < 4096
        assert spent.read < big.log_bytes * 0.03


async def test_a_fork_of_a_thread_that_is_not_loaded_costs_no_more(big: Big) -> None:
    async with house(big.home) as daemon, daemon.client() as client:
        before = size_on_disk(big.home)
        with counted(daemon) as spent:
            made = await client.call("thread/fork", threadId=big.thread_id, excludeTurns=True)
        assert size_on_disk(big.home) - before - base_instructions(made["thread"]["path"]) < 4096
        assert spent.read < big.log_bytes * 0.03


@pytest.mark.parametrize("method", ["rollback", "revert", "undo"])
async def test_rolling_a_long_thread_back_writes_less_than_4_kb_beside_base_instructions(big: Big, method: str) -> None:
    async with house(big.home) as daemon, daemon.client() as client:
        await resume(client, big.thread_id)
        page = await client.call("thread/turns/list", threadId=big.thread_id, limit=2)
        if method == "undo":
            await client.call("thread/revert", threadId=big.thread_id, beforeTurnId=page["data"][0]["id"])
        before = size_on_disk(big.home)
        with counted(daemon) as spent:
            match method:
                case "rollback":
                    await client.call("thread/rollback", threadId=big.thread_id, numTurns=2)
                case "revert":
                    await client.call("thread/revert", threadId=big.thread_id, beforeTurnId=page["data"][1]["id"])
                case "undo":
                    await client.call("thread/rollback/undo", threadId=big.thread_id)
        inherited = base_instructions(daemon.session(big.thread_id).log.info.path or "")
        assert 0 < size_on_disk(big.home) - before - inherited < 4096
        assert spent.written - inherited < 4096
        if method == "revert":  # the others answer with every turn of the thread
            assert spent.read < big.log_bytes * 0.03


@pytest.mark.parametrize("loaded", [True, False])
async def test_a_page_of_twenty_turns_from_the_end_reads_less_than_2_mb_and_builds_no_earlier_turns(
    big: Big, loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    whole = turn_draft.TurnDraft.turn

    def build(draft: turn_draft.TurnDraft, *view: Any) -> Turn:
        built.append(draft.id)
        return whole(draft, *view)

    monkeypatch.setattr(turn_draft.TurnDraft, "turn", build)
    async with house(big.home) as daemon, daemon.client() as client:
        if loaded:
            await resume(client, big.thread_id)
        built.clear()
        with counted(daemon) as spent:
            page = await client.call("thread/turns/list", threadId=big.thread_id, limit=20, itemsView="full")
        assert len(page["data"]) == 20
        assert spent.read < 2_000_000
        # One more tells whether there is a next page.
        assert len(set(built)) <= 21
        with counted(daemon) as spent:
            older = await client.call(
                "thread/turns/list", threadId=big.thread_id, limit=20, itemsView="full", cursor=page["nextCursor"]
            )
        assert spent.read < 2_000_000
        ids = [turn["id"] for turn in (*page["data"], *older["data"])]
        assert len(set(ids)) == 40


async def test_page_cursors_survive_append_branch_and_restart(big: Big) -> None:
    async def page(client: Client, cursor: str | None) -> Message:
        return await client.call("thread/turns/list", threadId=big.thread_id, limit=5, cursor=cursor)

    async with house(big.home) as daemon, daemon.client() as client:
        await resume(client, big.thread_id)
        first = await page(client, None)
        expected = await page(client, first["nextCursor"])
        await client.turn(big.thread_id, "appended")
        assert await page(client, first["nextCursor"]) == expected
        await client.call("thread/revert", threadId=big.thread_id, beforeTurnId=first["data"][0]["id"])
        assert await page(client, first["nextCursor"]) == expected
    async with house(big.home) as daemon, daemon.client() as client:
        with counted(daemon) as spent:
            assert await page(client, first["nextCursor"]) == expected
        assert spent.read < 2_000_000
        forwards = await client.call(
            "thread/turns/list",
            threadId=big.thread_id,
            limit=5,
            cursor=expected["backwardsCursor"],
            sortDirection="asc",
        )
        assert forwards["data"][0] == expected["data"][0]
