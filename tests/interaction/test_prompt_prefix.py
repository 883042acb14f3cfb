"""The prompt prefix rule (06): request k+1 starts with the exact items of request k, whatever happened in between."""

import itertools

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.interaction.moves import compacted, fork
from tests.interaction.prompts import assert_prefix, contexts, inputs, prefix_length, said, talk

MODES = pytest.mark.parametrize("mode", ["paginated", "legacy"])
NOTE = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a note"}]}


@MODES
async def test_plain_turns_and_restarts_only_append(house: House, mock: Mock, mode: str) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turns(thread, "one", "two", "three")
    for text in ("four", "five"):
        async with house.daemon() as daemon:
            client = await daemon.connect()
            await client.call("thread/resume", {"threadId": thread})
            await client.turn(thread, text)
    requests = inputs(mock)
    assert len(requests) == 5 and contexts(requests[0]) >= 1
    for earlier, later in itertools.pairwise(requests):
        assert_prefix(earlier, later, new=2)
    bodies = [request["body"] for request in mock.requests]
    assert {body["prompt_cache_key"] for body in bodies} == {thread}
    assert len({str(body.get("tools")) for body in bodies}) == 1


@MODES
async def test_an_interrupted_turn_stays_and_leaves_its_marker(house: House, mock: Mock, mode: str) -> None:
    house.service(mock)
    mock.push({"say": "ok 1"})
    mock.push({"say": "finished"}, {"say": "cut", "partial": True}, {"hang": True})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turn(thread, "one")
        turn = await client.begin(thread, "two")
        await client.event("item/agentMessage/delta", turnId=turn, delta="cut")
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await client.ended(turn)
        await client.turns(thread, "three", "four")
    _, second, third, fourth = inputs(mock)
    assert_prefix(second, third, new=3)
    assert_prefix(third, fourth, new=2)
    assert said(third)[-3] == "assistant: finished" and said(third)[-2].startswith("user: <turn_aborted>")
    assert "cut" not in " ".join(said(third))


async def test_injected_items_come_behind_what_was_sent(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        await client.call("thread/inject_items", {"threadId": thread, "items": [NOTE]})
        await client.turns(thread, "two", "three")
        first, second, third = inputs(mock)
        assert_prefix(first, second, new=3)
        assert_prefix(second, third, new=2)
        assert said(second)[-2:] == ["developer: a note", "user: two"]

        unused = await client.start(cwd=str(house.work))
        await client.call("thread/inject_items", {"threadId": unused, "items": [NOTE]})
        await client.turn(unused, "one")
        words = said(inputs(mock)[-1])
        assert words[-2:] == ["developer: a note", "user: one"] and contexts(inputs(mock)[-1]) >= 1


@MODES
async def test_a_fork_starts_with_its_parents_requests(house: House, mock: Mock, mode: str) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        turns = await client.turns(thread, "one", "two", "three")
        parents = inputs(mock)
        whole = await fork(client, thread)
        cut = await fork(client, thread, lastTurnId=turns[1])
        await client.turn(whole, "four")
        await client.turn(cut, "other")
        grandchild = await fork(client, cut)
        await client.turn(grandchild, "deeper")
    of_whole, of_cut, deeper = inputs(mock)[3:]
    assert_prefix(parents[2], of_whole, new=2)
    assert_prefix(parents[1], of_cut, new=2)
    assert_prefix(of_cut, deeper, new=2)
    keys = [request["body"]["prompt_cache_key"] for request in mock.requests]
    assert keys == [thread] * 3 + [whole, cut, grandchild]


@MODES
async def test_an_empty_fork_tells_its_context_anew(house: House, mock: Mock, mode: str) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        (first,) = await client.turns(thread, "one")
        child = await fork(client, thread, beforeTurnId=first)
        await client.turn(child, "one")
    parent, empty = inputs(mock)
    assert said(empty) == said(parent)


@MODES
async def test_a_rollback_keeps_the_prefix_up_to_the_cut_and_its_undo_brings_the_rest_back(
    house: House, mock: Mock, mode: str
) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turns(thread, "one", "two", "three")
        first, _, third = inputs(mock)
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        await client.turn(thread, "other")
        after = inputs(mock)[-1]
        assert_prefix(first, after, new=2)
        assert talk(after) == ["user: one", "assistant: ok 1", "user: other"]
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        await client.call("thread/rollback/undo", {"threadId": thread})
        await client.call("thread/rollback/undo", {"threadId": thread})
        await client.turn(thread, "four")
        undone = inputs(mock)[-1]
        if mode == "paginated":
            assert_prefix(third, undone, new=2)
        else:
            # The undo of a legacy log is a checkpoint that clears the baseline, so the context comes once more.
            assert_prefix(third, undone)
            assert talk(undone)[-2:] == ["assistant: ok 3", "user: four"]


async def test_a_rollback_of_everything_tells_the_context_anew(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        await client.turn(thread, "anew")
        assert (await client.shown(thread)) == [["anew", "ok 3"]]
    first, _, anew = inputs(mock)
    assert [word for word in said(anew) if word == "context"] == [word for word in said(first) if word == "context"]
    assert talk(anew) == ["user: anew"]


@MODES
async def test_a_compaction_breaks_the_prefix_once_and_the_new_one_is_stable(
    house: House, mock: Mock, mode: str
) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turns(thread, "one", "two")
        await compacted(client, thread)
        await client.turns(thread, "three", "four")
        before, asked, third, fourth = inputs(mock)[1:5]
        assert_prefix(before, asked, new=2)
        assert prefix_length(before, third) < len(before)
        assert_prefix(third, fourth, new=2)
        child = await fork(client, thread)
        await client.turn(child, "five")
        assert_prefix(fourth, inputs(mock)[-1], new=2)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        for one in (thread, child):
            await client.call("thread/resume", {"threadId": one})
            await client.turn(one, "six")
    assert_prefix(fourth, inputs(mock)[-2], new=2)
    assert_prefix(inputs(mock)[-3], inputs(mock)[-1], new=2)


async def test_a_compaction_undone_by_a_rollback_gives_the_old_prefix_back(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        await compacted(client, thread)
        await client.turn(thread, "three")
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        await client.turn(thread, "again")
    assert_prefix(inputs(mock)[0], inputs(mock)[-1], new=2)


async def test_changed_settings_are_told_behind_what_was_sent(house: House, mock: Mock) -> None:
    house.service(mock)
    other = house.work / "elsewhere"
    other.mkdir()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        await client.turn(thread, "two", cwd=str(other))
        await client.turn(thread, "three", effort="high")
        await client.turn(thread, "four", model="other-model")
        await client.turn(thread, "five")
    requests = inputs(mock)
    new = [len(later) - len(earlier) for earlier, later in itertools.pairwise(requests)]
    assert new == [3, 2, 3, 2]
    for earlier, later in itertools.pairwise(requests):
        assert_prefix(earlier, later)
    assert str(other) in str(requests[1][-2]) and "<model_switch>" in str(requests[3][-2])


async def test_a_torn_last_line_does_not_disturb_the_prefix(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
    with house.log_file(thread).open("a") as log:
        log.write('{"timestamp":"2026-01-01T00:00:00.000Z","ordinal":99,"type":"response_it')
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await client.turns(thread, "three", "four")
    requests = inputs(mock)
    for earlier, later in itertools.pairwise(requests):
        assert_prefix(earlier, later, new=2)
