"""`thread/delete` with `dependents`: refused, deleted along, or given a copy of what they inherited."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from unspool_server.errors import WriteFailed
from unspool_server.store import LocalStore
from unspool_server.store.rollouts import RolloutStore

from tests.interaction.house import House, LocalDaemon
from tests.interaction.wire import Client, texts_of


async def forked(client: Client, thread: str, **params: Any) -> str:
    answer = await client.call("thread/fork", {"threadId": thread, "excludeTurns": True, **params})
    child: str = answer["thread"]["id"]
    return child


async def family(house: House, client: Client) -> tuple[str, str, str]:
    """A thread, a fork of it, and a fork of that one; each with a turn of its own."""
    root = await client.start(cwd=str(house.work))
    await client.turns(root, "one", "two")
    child = await forked(client, root)
    await client.turn(child, "three")
    grandchild = await forked(client, child)
    await client.turn(grandchild, "four")
    return root, child, grandchild


async def turns(client: Client, thread: str) -> list[Any]:
    read = await client.call("thread/read", {"threadId": thread, "includeTurns": True})
    found: list[Any] = read["thread"]["turns"]
    return found


def history(daemon: LocalDaemon, thread: str) -> tuple[Any, ...]:
    return tuple(daemon.session(thread).history.state.history)


def files(house: House) -> set[str]:
    return set(house.logs())


async def test_a_thread_that_others_build_on_is_refused_unless_told_otherwise(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root, child, _ = await family(house, client)
        before = files(house)
        for params in ({}, {"dependents": "refuse"}):
            refusal = await client.refused("thread/delete", {"threadId": root, **params})
            assert (refusal.reason, refusal.data["threadIds"]) == ("dependentThreads", [child])
        assert (await client.refused("thread/delete", {"threadId": root, "dependents": "x"})).reason == "invalidParams"
        assert files(house) == before
        leaf = await forked(client, child)
        assert await client.call("thread/delete", {"threadId": leaf}) == {}


async def test_a_cascade_deletes_all_that_builds_on_a_thread_before_the_thread(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root, child, grandchild = await family(house, client)
        stranger = await client.start(cwd=str(house.work))
        await client.turn(stranger, "else")
        answer = await client.call("thread/delete", {"threadId": root, "dependents": "cascade"})
        assert answer == {"deletedThreadIds": [grandchild, child, root], "materializedThreadIds": []}
        for thread in (grandchild, child, root):
            await client.event("thread/deleted", threadId=thread)
        listed = (await client.call("thread/list", {}))["data"]
    assert [one["id"] for one in listed] == [stranger]
    assert len(files(house)) == 1


async def test_a_cascade_is_refused_as_a_whole_while_a_dependent_runs(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root, child, grandchild = await family(house, client)
        session = daemon.session(grandchild)
        before = files(house)

        class Running:
            id = "turn-1"
            announced = False

        session.turn = Running()  # type: ignore[assignment]
        try:
            for how in ("cascade", "materialize"):
                refusal = await client.refused("thread/delete", {"threadId": root, "dependents": how})
                assert (refusal.reason, refusal.data["turnId"]) == ("activeTurn", "turn-1")
        finally:
            session.turn = None
        assert files(house) == before
        assert daemon.session(child).log.info.thread_id == child


async def test_a_cascade_is_refused_as_a_whole_while_another_process_writes_to_a_dependent(house: House) -> None:
    async with house.daemon() as daemon:
        root, child, grandchild = await family(house, await daemon.connect())
    before = files(house)
    other = LocalStore(house.home)
    log = await other.open(grandchild)
    try:
        async with house.daemon() as daemon:
            client = await daemon.connect()
            for how in ("cascade", "materialize"):
                refusal = await client.refused("thread/delete", {"threadId": root, "dependents": how})
                assert refusal.reason == "held"
            assert files(house) == before
            assert len(await turns(client, child)) == 3
    finally:
        await log.close()
        await other.close()


@pytest.mark.parametrize("loaded", [True, False], ids=["loaded", "cold"])
async def test_materialised_threads_are_as_before_and_go_on_without_their_origin(house: House, loaded: bool) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root, child, grandchild = await family(house, client)
        told = {thread: await turns(client, thread) for thread in (child, grandchild)}
        model = {thread: history(daemon, thread) for thread in (child, grandchild)}
        cursors = {thread: str(daemon.session(thread).end_cursor.encode()) for thread in (child, grandchild)}
        if loaded:
            await deleted(client, root, child, grandchild)
            assert {thread: await turns(client, thread) for thread in told} == told
            assert {thread: history(daemon, thread) for thread in told} == model
    if not loaded:
        house.only_logs_stay()
        async with house.daemon() as daemon:
            await deleted(await daemon.connect(), root, child, grandchild)
    house.only_logs_stay()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        for thread, cursor in cursors.items():
            assert await turns(client, thread) == told[thread]
            mark = client.mark
            replay = {"after": cursor, "mode": "events"}
            resumed = await client.call("thread/resume", {"threadId": thread, "replay": replay})
            assert resumed["thread"]["forkedFromId"] == {child: root, grandchild: child}[thread]
            assert history(daemon, thread) == model[thread]
            await client.turn(thread, "more")
            replayed = [event for event in client.events(thread, mark) if event.get("replayed")]
            assert replayed == []
        assert texts_of(await turns(client, child))[-1][0] == "more"
        assert (await client.refused("thread/read", {"threadId": root})).reason == "threadNotFound"


async def deleted(client: Client, root: str, *kept: str) -> None:
    answer = await client.call("thread/delete", {"threadId": root, "dependents": "materialize"})
    assert answer["deletedThreadIds"] == [root]
    assert sorted(answer["materializedThreadIds"]) == sorted(kept)


async def test_a_copy_holds_the_lines_of_its_origin_byte_for_byte(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root, child, grandchild = await family(house, client)
        entries = (await client.call("thread/audit", {"threadId": child, "includeRaw": True, "limit": 1000}))["data"]
        await deleted(client, root, child, grandchild)
        branch = (await client.call("thread/branches", {"threadId": child}))["data"]
        copied = (await client.call("thread/audit", {"threadId": child, "includeRaw": True, "limit": 1000}))["data"]
    in_force = [entry for entry in entries if entry["model"].get("reason") != "forkCut"]
    assert [entry["raw"] for entry in copied[1:]] == [entry["raw"] for entry in in_force[1:]]
    assert [entry["ordinal"] for entry in copied] == [entry["ordinal"] for entry in in_force]
    assert [(one["why"], one["reachable"], one["present"]) for one in branch] == [
        ("fork", False, False),
        ("materialize", True, True),
    ]
    assert branch[1]["base"] is None
    assert branch[1]["left"] == {"rolloutId": child, "ordinal": branch[1]["endOrdinal"]}


async def test_subscribers_of_a_materialised_thread_see_its_next_turn_once(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root, child, grandchild = await family(house, client)
        await client.settled()
        mark = client.mark
        await deleted(client, root, child, grandchild)
        await client.turn(child, "five")
        await client.settled()
        begun = [event for event in client.events(child, mark) if event["method"] == "turn/started"]
        assert len(begun) == 1 and client.count("thread/reverted", mark) == 0
        second = await daemon.connect()
        replay = {"after": begun[0]["cursor"], "mode": "events"}
        await second.call("thread/resume", {"threadId": child, "replay": replay})
        await second.settled()
        again = [event["cursor"] for event in second.events(child)]
        first = [event["cursor"] for event in client.events(child, mark)]
        assert again == first[first.index(begun[0]["cursor"]) + 1 :]


async def test_a_client_that_was_away_during_the_copy_goes_on_at_its_old_cursor(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root, child, grandchild = await family(house, client)
        await client.settled()
        events = client.events(child)
        begun = next(index for index, event in enumerate(events) if event["method"] == "turn/started")
        old = events[begun]["cursor"]
        await deleted(client, root, child, grandchild)
        second = await daemon.connect()
        replay = {"after": old, "mode": "events"}
        await second.call("thread/resume", {"threadId": child, "replay": replay})
        await second.event("turn/completed")
        words = [event["method"] for event in second.events(child)]
    # What is read from the log has no deltas and no passing states.
    recorded = ("item/completed", "turn/completed", "turn/started")
    told = [event["method"] for event in events[begun + 1 :]]
    assert [word for word in words if word in recorded] == [word for word in told if word in recorded]


async def test_an_archived_dependent_is_copied_and_stays_in_the_archive(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root = await client.start(cwd=str(house.work))
        await client.turn(root, "one")
        child = await forked(client, root)
        await client.turn(child, "two")
        told = await turns(client, child)
        await client.call("thread/archive", {"threadId": child})
        await deleted(client, root, child)
        listed = (await client.call("thread/list", {"archived": True}))["data"]
        assert [one["id"] for one in listed] == [child]
        assert await turns(client, child) == told


async def test_a_fork_that_was_rolled_back_is_copied_from_where_it_is_now(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root = await client.start(cwd=str(house.work))
        await client.turns(root, "one", "two")
        child = await forked(client, root)
        await client.turn(child, "three")
        await client.call("thread/rollback", {"threadId": child, "numTurns": 2})
        await client.turn(child, "other")
        told = await turns(client, child)
        assert len(told) == 2
        await deleted(client, root, child)
        await client.turn(child, "next")
    house.only_logs_stay()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await turns(client, child))[:2] == told


@pytest.mark.parametrize("how", ["materialize", "cascade"])
@pytest.mark.parametrize("steps", range(6))
async def test_a_kill_between_any_two_steps_leaves_threads_that_open(
    house: House, monkeypatch: pytest.MonkeyPatch, how: str, steps: int
) -> None:
    """Every file that a delete writes or removes is a step; after `steps` of them nothing more reaches the disk."""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root, child, grandchild = await family(house, client)
        told = {thread: await turns(client, thread) for thread in (root, child, grandchild)}
    left = steps
    dead = False

    def step() -> None:
        nonlocal left, dead
        dead = dead or left == 0
        if dead:
            raise WriteFailed("killed", retryable=False)
        left -= 1

    write, remove = RolloutStore._write_branch, RolloutStore._remove

    async def write_or_die(self: RolloutStore, *args: Any) -> Any:
        step()
        return await write(self, *args)

    async def remove_or_die(self: RolloutStore, entries: Any) -> None:
        for entry in reversed(entries):
            step()
            await remove(self, [entry])

    monkeypatch.setattr(RolloutStore, "_write_branch", write_or_die)
    monkeypatch.setattr(RolloutStore, "_remove", remove_or_die)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        request = await client.ask("thread/delete", {"threadId": root, "dependents": how})
        answer = await client.answer(request)
        assert ("error" in answer) == dead
    monkeypatch.undo()
    house.only_logs_stay()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        stay = [one["id"] for one in (await client.call("thread/list", {}))["data"]]
        assert how == "cascade" or {child, grandchild} <= set(stay)
        for thread in stay:
            assert await turns(client, thread) == told[thread]
            await client.call("thread/resume", {"threadId": thread})
            await client.turn(thread, "after")
        if root in stay:
            await client.call("thread/delete", {"threadId": root, "dependents": how})
            assert root not in [one["id"] for one in (await client.call("thread/list", {}))["data"]]


async def test_two_deletes_at_once_leave_one_answer_and_no_thread(house: House, tmp_path: Path) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root, *_ = await family(house, client)
        asked = [await client.ask("thread/delete", {"threadId": root, "dependents": "cascade"}) for _ in range(2)]
        answers = await asyncio.gather(*(client.answer(one) for one in asked))
    assert sum("result" in answer for answer in answers) == 1
    assert files(house) == set()


async def test_a_copy_is_found_sound_by_a_check_of_the_log(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root, child, grandchild = await family(house, client)
        await client.call("thread/delete", {"threadId": grandchild})
        await deleted(client, root, child)
        await client.turn(child, "more")
        found = await client.call("thread/verify", {"threadId": child})
    present = [one for one in found["findings"] if one.get("rolloutId") != child]
    assert present == []
