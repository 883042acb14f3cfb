"""What random lives found, each in as few steps as show it."""

from pathlib import Path
from typing import Any

import pytest
from unspool_server.model.offline import OfflineProvider
from unspool_server.sessions.views.pages import Shelf, all_turns

from tests.state.agreement import our_texts
from tests.state.inprocess import TOOL, Client, House, Message, house

MODES = ("paginated", "legacy")


async def begin(client: Client, mode: str, *texts: str) -> tuple[str, list[str]]:
    """A thread with a turn for each text; its id and the ids of its turns."""
    thread_id = (await client.call("thread/start", historyMode=mode, dynamicTools=[TOOL]))["thread"]["id"]
    return thread_id, [(await client.turn(thread_id, text))["id"] for text in texts]


def end(home: House, thread_id: str) -> dict[str, Any]:
    """The position behind everything."""
    log = home.session(thread_id).log
    return {"rolloutId": log.info.rollout_id, "ordinal": log.next_ordinal}


async def turns_of(client: Client, thread_id: str) -> list[Message]:
    """The turns that clients see."""
    read = await client.call("thread/read", threadId=thread_id, includeTurns=True)
    turns: list[Message] = read["thread"]["turns"]
    return turns


async def input_of_next(home: House, client: Client, thread_id: str) -> list[Message]:
    """The model's history after one more turn."""
    await client.turn(thread_id, "next")
    return [dict(item) for item in home.session(thread_id).history.state.history]


def environment(items: list[Message]) -> list[str]:
    """What the items tell of the environment."""
    texts = [part["text"] for item in items for part in item.get("content") or () if "text" in part]
    return [text for text in texts if text.startswith("<environment_context>")]


async def test_a_legacy_fork_gets_nothing_of_a_turn_that_was_rolled_back_behind_its_cut(tmp_path: Path) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id, _ = await begin(client, "legacy")
        await client.call("thread/inject_items", threadId=thread_id, items=[said("developer", "t0")])
        compacted = await client.call("thread/compact", threadId=thread_id, summary="In short.", keepLast=1)
        [kept] = compacted["thread"]["turns"]
        await client.turn(thread_id, "t1")
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)

        child = await client.call("thread/fork", threadId=thread_id, lastTurnId=kept["id"])

        assert [turn["id"] for turn in child["thread"]["turns"]] == [kept["id"]]


def said(role: str, text: str) -> Message:
    """A message to inject."""
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


@pytest.mark.parametrize("word", ["thread/rollback", "thread/rollback/undo", "thread/restore"])
async def test_a_name_outlives_going_back_to_before_it_was_given(tmp_path: Path, word: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id, _ = await begin(client, "paginated", "t1", "t2")
        await client.call("thread/name/set", threadId=thread_id, name="older")
        early = end(home, thread_id)
        if word == "thread/rollback/undo":
            await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        await client.call("thread/name/set", threadId=thread_id, name="given")
        more: dict[str, dict[str, Any]] = {"thread/rollback": {"numTurns": 1}, "thread/restore": {"at": early}}
        await client.call(word, threadId=thread_id, **more.get(word, {}))
        live = (await client.call("thread/read", threadId=thread_id))["thread"]["name"]

    async with house(tmp_path) as home, home.client() as client:
        again = (await client.call("thread/resume", threadId=thread_id))["thread"]["name"]

    assert (live, again) == ("given", "given")


async def test_an_ephemeral_fork_shows_the_compaction_that_it_begins_with_as_its_source_does(tmp_path: Path) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id, _ = await begin(client, "paginated", "t1")
        since = len(client.log)
        await client.call("thread/compact/start", threadId=thread_id)
        begun = await client.event("turn/started", after=since, threadId=thread_id)
        compacted = await client.ended(begun["params"]["turn"]["id"])
        child = await client.call("thread/fork", threadId=thread_id, ephemeral=True, excludeTurns=True)
        session = home.session(child["thread"]["id"])
        shown = await all_turns(Shelf(session.store, session.log.info, session))

    assert [turn.id for turn in shown] == [compacted["id"]]


@pytest.mark.parametrize("reopened", [False, True])
async def test_a_restore_in_a_copied_legacy_log_reads_its_older_restores_where_they_are(
    tmp_path: Path, reopened: bool
) -> None:
    """The copy tells how far back a restore went by distance, which holds in the whole log only."""
    async with house(tmp_path) as home, home.client() as client:
        thread_id, _ = await begin(client, "legacy", "t1", "t2")
        await client.call("thread/rollback", threadId=thread_id, numTurns=2)
        await client.turn(thread_id, "t3")
        await client.call("thread/rollback/undo", threadId=thread_id)
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        child_id = (await client.call("thread/fork", threadId=thread_id))["thread"]["id"]
        place, before = end(home, child_id), home.session(child_id).history.state.history
        await client.turn(child_id, "t4")
        await client.call("thread/restore", threadId=child_id, at=place)
        after = home.session(child_id).history.state.history
    if reopened:
        async with house(tmp_path) as home, home.client() as client:
            await client.call("thread/resume", threadId=child_id)
            after = home.session(child_id).history.state.history

    assert our_texts(before) == ["t1"]
    assert after == before


async def test_a_legacy_rollback_leaves_the_turn_before_whole_whose_end_was_restored_away(tmp_path: Path) -> None:
    provider = OfflineProvider()
    async with house(tmp_path, provider) as home, home.client() as client:
        thread_id, _ = await begin(client, "legacy", "t1")
        provider.script.replies.append([{"say": "first words", "partial": True}, {"hang": True}])
        asked = [{"type": "text", "text": "t2"}]
        turn_id = (await client.call("turn/start", threadId=thread_id, input=asked))["turn"]["id"]
        await client.event("item/agentMessage/delta", turnId=turn_id)
        await client.call("turn/interrupt", threadId=thread_id, turnId=turn_id)
        await client.ended(turn_id)
        place = end(home, thread_id)
        before_its_end = {**place, "ordinal": place["ordinal"] - 1}
        restored = await client.call("thread/restore", threadId=thread_id, at=before_its_end)
        await client.turn(thread_id, "t3")

        await client.call("thread/rollback", threadId=thread_id, numTurns=1)

        assert await turns_of(client, thread_id) == restored["thread"]["turns"]
        assert [turn["id"] for turn in restored["thread"]["turns"]][-1] == turn_id


# -- found by living beside the real Codex -----------------------------------------------------------------------------


async def test_the_single_text_of_a_tool_is_its_output_itself(tmp_path: Path) -> None:
    provider = OfflineProvider()
    async with house(tmp_path, provider) as home, home.client() as client:
        thread_id, _ = await begin(client, "paginated")
        provider.script.replies.append([{"call": "look", "id": "call_1"}])
        await client.turn(thread_id, "t1")
        history = home.session(thread_id).history.state.history

    assert [item["output"] for item in history if item["type"] == "function_call_output"] == ["saw call_1"]


@pytest.mark.parametrize("mode", MODES)
async def test_updated_settings_outlive_the_process(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id, _ = await begin(client, mode, "t1")
        changed = {"model": "other", "cwd": str(tmp_path), "sandboxPolicy": {"type": "dangerFullAccess"}}
        await client.call("thread/settings/update", threadId=thread_id, **changed)

    async with house(tmp_path) as home, home.client() as client:
        again = await client.call("thread/resume", threadId=thread_id)

    assert (again["model"], again["cwd"], again["sandbox"]) == ("other", str(tmp_path), {"type": "dangerFullAccess"})


@pytest.mark.parametrize("mode", MODES)
async def test_context_comes_before_what_is_injected_into_a_fork_of_nothing(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id, [first] = await begin(client, mode, "t1")
        child_id = (await client.call("thread/fork", threadId=thread_id, beforeTurnId=first))["thread"]["id"]
        await client.call("thread/inject_items", threadId=child_id, items=[said("user", "t2")])
        history = await input_of_next(home, client, child_id)

    texts = [part["text"] for item in history if item.get("role") == "user" for part in item["content"]]
    assert [text.split("\n")[0] for text in texts] == ["<environment_context>", "t2", "next"]


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("mode", MODES)
async def test_a_fork_takes_the_settings_that_its_source_has_now_wherever_it_is_cut(
    tmp_path: Path, mode: str, live: bool
) -> None:
    async with house(tmp_path) as home, home.client() as client:
        given = {"cwd": str(tmp_path), "sandbox": "danger-full-access", "historyMode": mode}
        thread_id = (await client.call("thread/start", **given))["thread"]["id"]
        first = (await client.turn(thread_id, "t1"))["id"]
        (tmp_path / "sub").mkdir()
        changed = {"cwd": str(tmp_path / "sub"), "sandboxPolicy": {"type": "readOnly"}, "model": "other"}
        await client.turn(thread_id, "t2", **changed)
        if live:
            await assert_forks_are_there(client, thread_id, first, tmp_path / "sub")
    if not live:
        async with house(tmp_path) as home, home.client() as client:
            await assert_forks_are_there(client, thread_id, first, tmp_path / "sub")


async def assert_forks_are_there(client: Client, thread_id: str, first: str, folder: Path) -> None:
    """Forks with each kind of cut stand in the folder, with the narrower sandbox and the newer model."""
    for cut in ({"lastTurnId": first}, {"beforeTurnId": first}, {}):
        child = await client.call("thread/fork", threadId=thread_id, **cut)
        assert (child["cwd"], child["sandbox"]["type"], child["model"]) == (str(folder), "readOnly", "other")
