"""Comparing two points of a thread, and two threads of one lineage, through the daemon."""

from pathlib import Path
from typing import Any

import pytest

from tests.interaction.test_time_travel import MODES, begin, end
from tests.state.inprocess import Message, house


def texts(items: list[Message]) -> list[str]:
    """The texts of the user among some items."""
    return [
        part["text"]
        for one in items
        if one["item"].get("role") == "user"
        for part in one["item"]["content"]
        if not part["text"].startswith(("<", "#"))
    ]


@pytest.mark.parametrize("mode", MODES)
async def test_two_branches_of_a_thread_are_compared_with_their_common_ancestor(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one")
        after_one = end(home, thread_id)
        two = (await client.turn(thread_id, "two", model="other"))["id"]
        left = end(home, thread_id)
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        three = (await client.turn(thread_id, "three", model="third"))["id"]
        found: dict[str, Any] = await client.call("thread/diff", threadId=thread_id, **{"from": left})
        assert found["from"] == {"threadId": thread_id, **left}
        assert found["to"] == {"threadId": thread_id, **end(home, thread_id)}
        assert found["turns"] == {"added": [three], "removed": [two], "changed": []}
        assert (texts(found["items"]["added"]), texts(found["items"]["removed"])) == (["three"], ["two"])
        changed = {one["name"]: (one["old"], one["new"]) for one in found["settings"]}
        assert changed["model"] == ("other", "third")
        if mode == "paginated":
            assert found["commonAncestor"] == {"threadId": thread_id, **after_one}
        same = await client.call("thread/diff", threadId=thread_id, to=left, **{"from": left})
        assert (same["items"]["added"], same["items"]["removed"], same["settings"]) == ([], [], [])
        assert same["commonAncestor"] == same["from"]


@pytest.mark.parametrize("mode", MODES)
async def test_two_forks_of_one_thread_are_compared_from_where_they_parted(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        parent = await begin(client, mode, "one")
        parted = end(home, parent)
        first = (await client.call("thread/fork", threadId=parent, excludeTurns=True))["thread"]["id"]
        await client.turn(first, "two")
        second = (await client.call("thread/fork", threadId=first, excludeTurns=True))["thread"]["id"]
        await client.turn(second, "three")
        await client.turn(parent, "four")
        found = await client.call("thread/diff", threadId=parent, otherThreadId=second)
        assert (texts(found["items"]["removed"]), texts(found["items"]["added"])) == (["four"], ["two", "three"])
        assert found["commonAncestor"] == {"threadId": parent, **parted}
        owners = {one["position"]["threadId"] for one in found["items"]["added"]}
        assert owners == {first, second}
        assert len(found["turns"]["added"]) == 2 and len(found["turns"]["removed"]) == 1
        back = await client.call("thread/diff", threadId=second, otherThreadId=parent)
        assert texts(back["items"]["added"]) == ["four"]


@pytest.mark.parametrize("mode", MODES)
async def test_threads_without_a_common_past_are_not_compared(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        one, other = await begin(client, mode, "one"), await begin(client, mode, "one")
        error = await client.refused("thread/diff", threadId=one, otherThreadId=other)
        assert (error.data["reason"], error.data["field"]) == ("notRelated", "otherThreadId")
        bad = {"from": {"ordinal": 10_000}}
        error = await client.refused("thread/diff", threadId=one, **bad)
        assert (error.data["reason"], error.data["field"]) == ("positionInvalid", "from")
        error = await client.refused("thread/diff", threadId=one, to={"rolloutId": other, "ordinal": 3})
        assert (error.data["reason"], error.data["field"]) == ("positionInvalid", "to")


@pytest.mark.parametrize("mode", MODES)
async def test_a_compaction_between_two_points_is_told_as_a_replacement(tmp_path: Path, mode: str) -> None:
    async with house(tmp_path) as home, home.client() as client:
        thread_id = await begin(client, mode, "one", "two")
        before = end(home, thread_id)
        await client.call("thread/compact", threadId=thread_id, summary="short", keepLast=1)
        found = await client.call("thread/diff", threadId=thread_id, **{"from": before})
        (one,) = found["items"]["replaced"]
        assert texts(one["removed"]) == ["one", "two"] and texts(one["added"]) == ["two"]
        assert (found["items"]["added"], found["items"]["removed"]) == ([], [])
        assert found["window"] == {"name": "number", "old": 0, "new": 1}
