"""Reading a thread as it was at any position of any of its branches."""

from pathlib import Path

import pytest

from tests.state.inprocess import TOOL, Client, House, Message, house, user_texts

MODES = ["paginated", "legacy"]


async def begin(client: Client, mode: str, *texts: str) -> str:
    made = await client.call("thread/start", historyMode=mode, dynamicTools=[TOOL])
    thread_id = str(made["thread"]["id"])
    for text in texts:
        await client.turn(thread_id, text)
    return thread_id


def end(home: House, thread_id: str) -> Message:
    """The thread's present end as a position."""
    log = home.session(thread_id).log
    return {"rolloutId": log.info.rollout_id, "ordinal": log.next_ordinal}


async def texts_at(client: Client, thread_id: str, at: Message | None = None) -> list[str]:
    read = await client.call("thread/read", threadId=thread_id, includeTurns=True, **({"at": at} if at else {}))
    return [text for turn in read["thread"]["turns"] for text in user_texts(turn)]


def said(context: Message) -> list[str]:
    """What the user said, as the model sees it."""
    texts = []
    for entry in context["items"]:
        if entry["item"].get("role") == "user":
            texts += [part["text"] for part in entry["item"]["content"] if not part["text"].startswith(("<", "#"))]
    return texts


@pytest.mark.parametrize("mode", MODES)
async def test_a_thread_is_read_as_it_was_before_later_turns_and_rollbacks(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one")
        first = end(home, thread_id)
        await client.turn(thread_id, "two")
        second = end(home, thread_id)
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        await client.turn(thread_id, "three")

        assert await texts_at(client, thread_id) == ["one", "three"]
        assert await texts_at(client, thread_id, second) == ["one", "two"]
        assert await texts_at(client, thread_id, first) == ["one"]
        context = await client.call("thread/context", threadId=thread_id, at=second)
        assert said(context) == ["one", "two"]
        assert context["at"] == {"threadId": thread_id, **second}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("direction", ["asc", "desc"])
async def test_pages_at_a_position_hold_the_turns_of_then(tmp_path: Path, mode: str, direction: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one", "two", "three")
        at = end(home, thread_id)
        await client.turn(thread_id, "four")
        found: list[str] = []
        cursor = None
        while True:
            page = await client.call(
                "thread/turns/list", threadId=thread_id, at=at, cursor=cursor, limit=1, sortDirection=direction,
                itemsView="full",
            )  # fmt: skip
            found += [text for turn in page["data"] for text in user_texts(turn)]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        assert found == (["one", "two", "three"] if direction == "asc" else ["three", "two", "one"])


@pytest.mark.parametrize("mode", MODES)
async def test_a_position_inside_a_turn_shows_it_interrupted(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one", "two")
        store, info = home.store, home.session(thread_id).log.info
        records = [record async for record in store.read(info.rollout_id)]
        place = [record for record in records if record.event in ("task_complete", "turn_complete")][-1]
        read = await client.call("thread/read", threadId=thread_id, includeTurns=True, at={"ordinal": place.ordinal})
        assert [turn["status"] for turn in read["thread"]["turns"]] == ["completed", "interrupted"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["read", "turns/list", "fork", "context", "restore"])
async def test_a_position_that_the_thread_does_not_have_is_refused(tmp_path: Path, mode: str, method: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one")
        stranger = await begin(client, mode, "else")
        last = end(home, thread_id)["ordinal"]
        for at in (
            {"ordinal": 0},
            {"ordinal": last + 1},
            {"rolloutId": "0198c9b3-0000-7000-8000-000000000000", "ordinal": 2},
            {"rolloutId": "../../etc", "ordinal": 2},
            {"rolloutId": stranger, "ordinal": 2},
        ):
            error = await client.refused(f"thread/{method}", threadId=thread_id, at=at)
            assert (error.data["reason"], error.data["field"]) == ("positionInvalid", "at"), at
        error = await client.refused(f"thread/{method}", threadId=thread_id, at={"ordinal": -1})
        assert error.data["reason"] == "invalidParams"
        assert await texts_at(client, thread_id) == ["one"]


async def test_a_fork_can_name_positions_that_it_inherited_and_no_later_ones_of_its_source(tmp_path: Path) -> None:
    async with house(tmp_path) as home, home.client() as client:
        parent = await begin(client, "paginated", "one")
        inherited = end(home, parent)
        child = (await client.call("thread/fork", threadId=parent, excludeTurns=True))["thread"]["id"]
        await client.turn(parent, "two")
        later = end(home, parent)
        await client.turn(child, "mine")
        assert await texts_at(client, child, inherited) == ["one"]
        assert await texts_at(client, child, {"ordinal": inherited["ordinal"]}) == ["one"]
        error = await client.refused("thread/read", threadId=child, at=later)
        assert error.data["reason"] == "positionInvalid"


@pytest.mark.parametrize("mode", MODES)
async def test_the_context_is_what_the_next_request_begins_with(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one")
        context = await client.call("thread/context", threadId=thread_id)
        assert said(context) == ["one"]
        assert context["baseInstructions"]["item"]["role"] == "developer"
        assert context["totalTokens"] == context["baseInstructions"]["tokens"] + sum(
            entry["tokens"] for entry in context["items"]
        )
        assert context["settings"]["model"] == context["previousTurnSettings"]["model"]
        assert context["baseline"]["turnContext"]["model"] == context["settings"]["model"]
        assert context["window"]["number"] == 0
        await client.call("thread/compact", threadId=thread_id, summary="before: one")
        after = await client.call("thread/context", threadId=thread_id)
        assert (after["window"]["number"], after["baseline"]) == (1, {"turnContext": None, "worldState": None})
        assert [entry["item"]["content"][0]["text"] for entry in after["items"]] == ["before: one"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_fork_begins_at_any_boundary_of_any_branch(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one", "two")
        left = end(home, thread_id)
        await client.call("thread/rollback", threadId=thread_id, numTurns=2)
        await client.turn(thread_id, "three")
        forked = await client.call("thread/fork", threadId=thread_id, at=left)
        child = forked["thread"]["id"]
        assert [text for turn in forked["thread"]["turns"] for text in user_texts(turn)] == ["one", "two"]
        await client.turn(child, "four")
        assert said(await client.call("thread/context", threadId=child)) == ["one", "two", "four"]
        assert await texts_at(client, thread_id) == ["three"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["thread/fork", "thread/restore"])
async def test_a_cut_between_a_call_and_its_output_is_refused_with_the_nearest_ones(
    tmp_path: Path, mode: str, method: str
) -> None:
    async with house(tmp_path) as home, home.client() as client:
        home.services.env.providers.get("offline").script.replies.append([{"call": "look"}, {"call": "look"}])  # type: ignore[attr-defined]
        thread_id = await begin(client, mode, "one")
        info = home.session(thread_id).log.info
        records = [record async for record in home.store.read(info.rollout_id)]
        calls = [one.ordinal for one in records if one.payload.get("type") == "function_call"]
        outputs = [one.ordinal for one in records if one.payload.get("type") == "function_call_output"]
        assert len(calls) == len(outputs) == 2
        last = next(one.ordinal for one in records if one.ordinal > outputs[-1])
        error = await client.refused(method, threadId=thread_id, at={"ordinal": outputs[-1]})
        assert error.data["reason"] == "cutsCall"
        assert error.data["after"] == {"rolloutId": info.rollout_id, "ordinal": last}
        before = error.data["before"]
        assert before["ordinal"] in calls
        for at in (before, error.data["after"]):
            forked = await client.call("thread/fork", threadId=thread_id, at=at)
            items = (await client.call("thread/context", threadId=forked["thread"]["id"]))["items"]
            assert all(entry["position"] is not None for entry in items), "no output had to be made up"


@pytest.mark.parametrize("mode", MODES)
async def test_a_fork_keeps_the_last_boundaries_and_tells_its_context_anew(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one", "two", "three", "four")
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        forked = await client.call("thread/fork", threadId=thread_id, lastNBoundaries=2)
        child = forked["thread"]["id"]
        assert [user_texts(turn) for turn in forked["thread"]["turns"]] == [["two"], ["three"]]
        assert forked["thread"]["forkedFromId"] == thread_id
        context = await client.call("thread/context", threadId=child)
        assert said(context) == ["two", "three"]
        assert context["items"][0]["item"]["role"] == "user"
        assert context["baseline"] == {"turnContext": None, "worldState": None}
        assert (
            context["previousTurnSettings"]
            == (await client.call("thread/context", threadId=thread_id))["previousTurnSettings"]
        )
        await client.turn(child, "mine")
        after = await client.call("thread/context", threadId=child)
        assert said(after) == ["two", "three", "mine"]
        assert after["baseline"]["turnContext"] is not None and len(after["items"]) > len(context["items"]) + 2
        whole = await client.call("thread/fork", threadId=thread_id, lastNBoundaries=9)
        assert [user_texts(turn) for turn in whole["thread"]["turns"]] == [["one"], ["two"], ["three"]]


async def test_a_kept_fork_survives_a_restart_and_its_source(tmp_path: Path) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, "paginated", "one", "two")
        child = (await client.call("thread/fork", threadId=thread_id, lastNBoundaries=1))["thread"]["id"]
        before = await client.call("thread/context", threadId=child)
        await client.call("thread/delete", threadId=thread_id)
    async with house(tmp_path) as home, home.client() as client:
        assert await texts_at(client, child) == ["two"]
        assert (await client.call("thread/context", threadId=child))["items"] == before["items"]


@pytest.mark.parametrize("cut", [{"lastTurnId": "x"}, {"beforeTurnId": "x"}])
async def test_a_position_excludes_other_cuts(tmp_path: Path, cut: Message) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, "paginated", "one")
        error = await client.refused("thread/fork", threadId=thread_id, at=end(home, thread_id), **cut)
        assert (error.data["reason"], error.data["field"]) == ("invalidParams", "at")
        error = await client.refused("thread/fork", threadId=thread_id, lastNBoundaries=0)
        assert error.data["field"] == "lastNBoundaries"
