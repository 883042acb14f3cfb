"""Going back: restore to any point of any branch, and undo after undo, on both kinds of log."""

import json
import uuid
from pathlib import Path

import pytest

from tests.interaction.test_time_travel import MODES, begin, end, said, texts_at
from tests.state.agreement import assert_memory_is_the_log
from tests.state.inprocess import Client, House, Message, house


async def present(home: House, client: Client, thread_id: str) -> list[str]:
    """What was said in the thread, the same for clients, for the model, and for a restart."""
    texts = await texts_at(client, thread_id)
    assert said(await client.call("thread/context", threadId=thread_id)) == texts
    await assert_memory_is_the_log(home, thread_id)
    return texts


async def turns_of(client: Client, thread_id: str, at: Message | None = None) -> list[Message]:
    more = {"at": at} if at else {}
    read: Message = await client.call("thread/read", threadId=thread_id, includeTurns=True, **more)
    turns: list[Message] = read["thread"]["turns"]
    return turns


@pytest.mark.parametrize("mode", MODES)
async def test_any_branch_becomes_the_present_again_and_every_subscriber_is_told(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client, home.client() as other:
        thread_id = await begin(client, mode, "one", "two")
        await other.call("thread/resume", threadId=thread_id, excludeTurns=True)
        two = (await turns_of(client, thread_id))[1]["id"]
        left, turns = end(home, thread_id), await turns_of(client, thread_id)
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        three = (await client.turn(thread_id, "three"))["id"]
        since = len(other.log)
        restored = await client.call("thread/restore", threadId=thread_id, at=left)
        assert restored["thread"]["turns"] == turns
        assert await present(home, client, thread_id) == ["one", "two"]
        told = await other.event("thread/reverted", after=since, threadId=thread_id)
        assert told["params"] == {
            "threadId": thread_id, "reason": "restore", "turnIds": [three], "restoredTurnIds": [two],
        }  # fmt: skip
        assert (await client.turn(thread_id, "four"))["status"] == "completed"
        assert await present(home, client, thread_id) == ["one", "two", "four"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_restore_holds_after_a_restart_and_in_forks(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one", "two")
        left = end(home, thread_id)
        await client.call("thread/rollback", threadId=thread_id, numTurns=2)
        await client.turn(thread_id, "three")
        await client.call("thread/restore", threadId=thread_id, at=left)
        turns = await turns_of(client, thread_id)
    async with house(tmp_path) as home, home.client() as client:
        await client.call("thread/resume", threadId=thread_id)
        assert await turns_of(client, thread_id) == turns
        assert await present(home, client, thread_id) == ["one", "two"]
        child = (await client.call("thread/fork", threadId=thread_id))["thread"]
        assert child["turns"] == turns
        await client.turn(child["id"], "five")
        assert await present(home, client, child["id"]) == ["one", "two", "five"]
        await client.call("thread/rollback", threadId=child["id"], numTurns=2)
        assert await present(home, client, child["id"]) == ["one"]


@pytest.mark.parametrize("mode", MODES)
async def test_undo_after_undo_goes_back_cut_by_cut(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one", "two", "three")
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        assert await present(home, client, thread_id) == ["one"]
        await client.call("thread/rollback/undo", threadId=thread_id)
        assert await present(home, client, thread_id) == ["one", "two"]
        await client.call("thread/rollback/undo", threadId=thread_id)
        assert await present(home, client, thread_id) == ["one", "two", "three"]
        error = await client.refused("thread/rollback/undo", threadId=thread_id)
        assert error.data["reason"] == "nothingToUndo"


@pytest.mark.parametrize("mode", MODES)
async def test_turns_made_since_a_cut_give_way_to_its_undo_and_can_be_restored(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one", "two", "three")
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        await client.turn(thread_id, "four")
        await client.call("thread/rollback", threadId=thread_id, numTurns=2)
        await client.turn(thread_id, "five")
        five = end(home, thread_id)
        for expected in (["one", "two", "four"], ["one", "two", "three"]):
            await client.call("thread/rollback/undo", threadId=thread_id)
            assert await present(home, client, thread_id) == expected
        assert (await client.refused("thread/rollback/undo", threadId=thread_id)).data["reason"] == "nothingToUndo"
        await client.call("thread/restore", threadId=thread_id, at=five)
        assert await present(home, client, thread_id) == ["one", "five"]
        await client.call("thread/rollback/undo", threadId=thread_id)
        assert await present(home, client, thread_id) == ["one", "two", "three"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_rollback_after_an_undo_is_undone_by_itself(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one", "two")
        for _ in range(3):
            await client.call("thread/rollback", threadId=thread_id, numTurns=1)
            assert await present(home, client, thread_id) == ["one"]
            await client.call("thread/rollback/undo", threadId=thread_id)
            assert await present(home, client, thread_id) == ["one", "two"]
        await client.turn(thread_id, "three")
        assert (await client.refused("thread/rollback/undo", threadId=thread_id)).data["reason"] == "nothingToUndo"


@pytest.mark.parametrize("mode", MODES)
async def test_restores_and_their_undo_cross_compactions(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one", "two")
        before, turns = end(home, thread_id), await turns_of(client, thread_id)
        await client.call("thread/compact", threadId=thread_id, summary="short")
        await client.turn(thread_id, "three")
        compacted = await client.call("thread/context", threadId=thread_id)
        shown = await turns_of(client, thread_id)
        await client.call("thread/restore", threadId=thread_id, at=before)
        assert await turns_of(client, thread_id) == turns
        assert await present(home, client, thread_id) == ["one", "two"]
        await client.call("thread/rollback/undo", threadId=thread_id)
        assert await turns_of(client, thread_id) == shown
        now = await client.call("thread/context", threadId=thread_id)
        assert [one["item"] for one in now["items"]] == [one["item"] for one in compacted["items"]]
        await assert_memory_is_the_log(home, thread_id)


@pytest.mark.parametrize("mode", MODES)
async def test_a_busy_thread_is_not_restored_unless_it_is_interrupted(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one")
        at = end(home, thread_id)
        script = home.services.env.providers.get("offline").script  # type: ignore[attr-defined]
        script.replies.append([{"say": "well", "partial": True}, {"hang": True}])
        started = await client.call("turn/start", threadId=thread_id, input=[{"type": "text", "text": "two"}])
        error = await client.refused("thread/restore", threadId=thread_id, at=at)
        assert error.data == {"reason": "activeTurn", "turnId": started["turn"]["id"]}
        await client.call("thread/restore", threadId=thread_id, at=at, interrupt=True)
        assert await present(home, client, thread_id) == ["one"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_point_inside_a_turn_gives_it_back_as_interrupted(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one", "two")
        info = home.session(thread_id).log.info
        records = [record async for record in home.store.read(info.rollout_id)]
        ends = [one.ordinal for one in records if one.event == "task_complete"]
        at = {"rolloutId": info.rollout_id, "ordinal": ends[-1]}
        turns = await turns_of(client, thread_id, at)
        context = await client.call("thread/context", threadId=thread_id, at=at)
        restored = await client.call("thread/restore", threadId=thread_id, at=at)
        assert restored["thread"]["turns"] == turns
        assert [turn["status"] for turn in turns] == ["completed", "interrupted"]
        now = await client.call("thread/context", threadId=thread_id)
        assert [one["item"] for one in now["items"]] == [one["item"] for one in context["items"]]
        await client.turn(thread_id, "three")
        assert [turn["status"] for turn in await turns_of(client, thread_id)] == [
            "completed",
            "interrupted",
            "completed",
        ]
        assert await present(home, client, thread_id) == ["one", "two", "three"]


async def test_segments_that_another_program_made_are_undone_as_well(tmp_path: Path) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, "paginated", "one", "two")
        second = (await turns_of(client, thread_id))[1]["id"]
        await client.call("thread/revert", threadId=thread_id, beforeTurnId=second)
        path = Path(str(home.session(thread_id).log.info.path))
    header, *rest = [json.loads(line) for line in path.read_text().splitlines()]
    foreign = [{key: value for key, value in header.items() if key not in ("unspool", "check")}]
    foreign += [{key: value for key, value in one.items() if key != "check"} for one in rest]
    path.write_text("".join(json.dumps(one) + "\n" for one in foreign))
    async with house(tmp_path) as home, home.client() as client:
        await client.call("thread/resume", threadId=thread_id)
        assert await present(home, client, thread_id) == ["one"]
        await client.turn(thread_id, "three")
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        for expected in (["one", "three"], ["one", "two"]):
            await client.call("thread/rollback/undo", threadId=thread_id)
            assert await present(home, client, thread_id) == expected
        assert (await client.refused("thread/rollback/undo", threadId=thread_id)).data["reason"] == "nothingToUndo"


async def test_a_thread_that_never_ran_has_nothing_to_restore(tmp_path: Path) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, "paginated")
        error = await client.refused("thread/restore", threadId=thread_id, at={"ordinal": 1})
        assert error.data["reason"] == "notMaterialized"
        error = await client.refused("thread/restore", threadId=str(uuid.uuid4()), at={"ordinal": 1})
        assert error.data["reason"] == "threadNotFound"
