"""A full disk: turns go on and are written later, lifecycle operations fail and change nothing (DESIGN §1.3, §5)."""

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.faulty_shelf import Faults
from tests.state.agreement import assert_memory_is_the_log, without_spans
from tests.state.inprocess import Client, house, user_texts

ALWAYS = 10_000


def fill(faults: Faults, *, partial: int = 0) -> None:
    """Let the disk refuse everything from now on, the first write after some bytes."""
    faults.plan("append", errno.ENOSPC, partial=partial)
    for operation in ("append", "publish"):
        faults.plan(operation, errno.ENOSPC, times=ALWAYS)


async def read_texts(client: Client, thread_id: str) -> list[list[str]]:
    read = await client.call("thread/read", threadId=thread_id, includeTurns=True)
    return [user_texts(turn) for turn in read["thread"]["turns"]]


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
@pytest.mark.parametrize("partial", [0, 37])
async def test_turns_on_a_full_disk_are_accepted_and_written_in_order_when_space_returns(
    mode: str, partial: int, tmp_path: Path, faults: Faults
) -> None:
    home = tmp_path / "home"
    async with house(home) as daemon, daemon.client() as client:
        thread_id = (await client.call("thread/start", historyMode=mode))["thread"]["id"]
        assert "durability" not in await client.turn(thread_id, "t1")
        path = Path(daemon.session(thread_id).log.info.path or "")
        whole = path.read_bytes()
        fill(faults, partial=partial)
        mark = len(client.log)
        for text in ("t2", "t3"):
            turn = await client.turn(thread_id, text)
            assert (turn["status"], turn["durability"]) == ("completed", "accepted")
        warnings = [each["params"] for each in client.log[mark:] if each["method"] == "warning"]
        assert [warning["code"] for warning in warnings] == ["logNotWritten"]
        assert await read_texts(client, thread_id) == [["t1"], ["t2"], ["t3"]]
        assert path.read_bytes().startswith(whole)
        faults.clear()
        assert "durability" not in await client.turn(thread_id, "t4")
        await assert_memory_is_the_log(daemon, thread_id)
        expected = (await client.call("thread/read", threadId=thread_id, includeTurns=True))["thread"]["turns"]
    async with house(home) as daemon, daemon.client() as client:
        resumed = await client.call("thread/resume", threadId=thread_id)
        assert [user_texts(turn) for turn in resumed["thread"]["turns"]] == [["t1"], ["t2"], ["t3"], ["t4"]]
        assert resumed["thread"]["turns"] == expected
        await assert_memory_is_the_log(daemon, thread_id)


ITEM = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "injected 1"}]}
OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "rollback": ("thread/rollback", {"numTurns": 1}),
    "undo": ("thread/rollback/undo", {}),
    "revert": ("thread/revert", {"beforeTurnId": "LAST"}),
    "compact": ("thread/compact", {"summary": "s", "keepLast": 1}),
    "fork": ("thread/fork", {}),
    "fork at a turn": ("thread/fork", {"lastTurnId": "FIRST"}),
    "inject": ("thread/inject_items", {"items": [ITEM]}),
    "name": ("thread/name/set", {"name": "new name"}),
}


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_lifecycle_operation_that_cannot_be_written_changes_nothing(
    operation: str, mode: str, tmp_path: Path, faults: Faults
) -> None:
    if (operation, mode) == ("revert", "legacy"):
        pytest.skip("legacy threads have no revert")
    home = tmp_path / "home"
    async with house(home) as daemon, daemon.client() as client:
        thread_id = (await client.call("thread/start", historyMode=mode))["thread"]["id"]
        turns = [await client.turn(thread_id, text) for text in ("t1", "t2", "t3")]
        await client.call("thread/name/set", threadId=thread_id, name="old name")
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        session = daemon.session(thread_id)
        before = (without_spans(session.history.state), session.settings, session.log.next_ordinal, logs(home))
        read = await client.call("thread/read", threadId=thread_id, includeTurns=True)
        method, params = OPERATIONS[operation]
        named = {"FIRST": turns[0]["id"], "LAST": turns[1]["id"]}
        given = {key: named.get(value, value) if isinstance(value, str) else value for key, value in params.items()}
        mark = len(client.log)
        fill(faults)
        refused = await client.refused(method, threadId=thread_id, **given)
        assert refused.data["reason"] == "writeFailed"
        faults.clear()
        after = (without_spans(session.history.state), session.settings, session.log.next_ordinal, logs(home))
        assert after == before
        assert daemon.session(thread_id) is session
        assert await client.call("thread/read", threadId=thread_id, includeTurns=True) == read
        told = {each["method"] for each in client.log[mark:]} - {"thread/status/changed", "deprecationNotice"}
        assert told == set()
        assert len((await client.call("thread/loaded/list"))["data"]) == 1
        # The same request succeeds as soon as there is space, and everything still agrees.
        await client.call(method, threadId=thread_id, **given)
        await client.turn(thread_id, "t9")
        await assert_memory_is_the_log(daemon, thread_id)


def logs(home: Path) -> dict[str, bytes]:
    """The content of every log."""
    return {path.name: path.read_bytes() for path in home.rglob("rollout-*.jsonl")}


async def test_a_compaction_by_the_model_that_cannot_be_written_fails_its_turn_and_keeps_the_history(
    tmp_path: Path, faults: Faults
) -> None:
    async with house(tmp_path / "home") as daemon, daemon.client() as client:
        thread_id = (await client.call("thread/start"))["thread"]["id"]
        await client.turn(thread_id, "t1")
        history = daemon.session(thread_id).history.state.history
        mark = len(client.log)
        fill(faults)
        await client.call("thread/compact/start", threadId=thread_id)
        begun = await client.event("turn/started", after=mark, threadId=thread_id)
        turn = await client.ended(begun["params"]["turn"]["id"])
        assert (turn["status"], turn["durability"]) == ("failed", "accepted")
        assert daemon.session(thread_id).history.state.history == history
        faults.clear()
        await client.turn(thread_id, "t2")
        await assert_memory_is_the_log(daemon, thread_id)


async def test_the_first_turn_of_a_thread_on_a_full_disk_is_written_later(tmp_path: Path, faults: Faults) -> None:
    home = tmp_path / "home"
    async with house(home) as daemon, daemon.client() as client:
        thread_id = (await client.call("thread/start"))["thread"]["id"]
        fill(faults)
        turn = await client.turn(thread_id, "t1")
        assert (turn["status"], turn["durability"]) == ("completed", "accepted")
        assert logs(home) == {}
        faults.clear()
        await client.turn(thread_id, "t2")
        assert await read_texts(client, thread_id) == [["t1"], ["t2"]]
        await assert_memory_is_the_log(daemon, thread_id)


async def test_a_daemon_that_ends_with_a_full_disk_says_so_and_ends(
    tmp_path: Path, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    async with house(home) as daemon, daemon.client() as client:
        thread_id = (await client.call("thread/start"))["thread"]["id"]
        await client.turn(thread_id, "t1")
        fill(faults)
        await client.turn(thread_id, "t2")
    (told,) = [vars(one) for one in caplog.records if one.getMessage() == "thread not drained"]
    assert told["unspool_facts"] == {"thread": thread_id}
    faults.clear()
    async with house(home) as daemon, daemon.client() as client:
        await client.call("thread/resume", threadId=thread_id)
        assert await read_texts(client, thread_id) == [["t1"]]
