"""Several writers and several turns at once: one at a time, and nobody gets what is somebody else's."""

import asyncio

from tests.bugs.cases import said
from tests.interaction.house import House
from tests.interaction.wire import Message


async def test_b54_a_second_process_is_told_who_holds_a_thread_and_may_still_read_and_fork(house: House) -> None:
    house.offline()
    async with house.daemon() as one, house.daemon() as two:
        first, second = await one.connect(), await two.connect()
        thread = await first.start(cwd=str(house.work))
        await first.turn(thread, "one")
        for method in ("thread/resume", "thread/archive", "thread/delete"):
            refusal = await second.refused(method, {"threadId": thread})
            assert refusal.reason == "held" and "process" in refusal.data["holder"]
            assert "already has an active writer" in refusal.message
        assert [turn[0] for turn in await second.shown(thread)] == ["one"]
        child = (await second.call("thread/fork", {"threadId": thread}))["thread"]["id"]
        await second.turn(child, "mine")
        await first.turn(thread, "two")
        assert [turn[0] for turn in await first.shown(thread)] == ["one", "two"]
        assert [turn[0] for turn in await second.shown(child)] == ["one", "mine"]


async def test_b56_two_inputs_at_the_same_time_are_one_turn_or_two_turns_but_never_two_at_once(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        first, second = await daemon.connect(), await daemon.connect()
        thread = await first.start(cwd=str(house.work))
        await first.turn(thread, "begin")
        await second.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        since = first.mark
        texts = []
        for number in range(25):
            words = [f"a{number}", f"b{number}"]
            texts += words
            ids = await asyncio.gather(first.begin(thread, words[0]), second.begin(thread, words[1]))
            for turn in set(ids):
                assert (await first.ended(turn, since))["status"] == "completed"
        running: set[str] = set()
        for message in first.seen[since:]:
            if message.get("method") == "turn/started":
                running.add(message["params"]["turn"]["id"])
                assert len(running) == 1
            elif message.get("method") == "turn/completed":
                running.discard(message["params"]["turn"]["id"])
        asked = [text for text in said(daemon, thread) if text in texts]
        assert set(asked) == set(texts)


async def test_b58_two_prompts_at_once_get_their_own_answers(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        clients = [await daemon.connect() for _ in range(2)]
        threads = [await client.start(cwd=str(house.work)) for client in clients]
        for number in range(5):
            words = [f"left{number}", f"right{number}"]
            turns = await asyncio.gather(
                *(client.turn(thread, word) for client, thread, word in zip(clients, threads, words, strict=True))
            )
            assert len(set(turns)) == 2
        for client, thread, foreign in zip(clients, threads, ("right", "left"), strict=True):
            own = [m for m in client.seen if _is_of_a_turn(m)]
            assert own and all(m["params"]["threadId"] == thread for m in own)
            assert all(m["params"].get("turnId") or m["params"]["turn"]["id"] for m in own)
            assert foreign not in str(own)


def _is_of_a_turn(message: Message) -> bool:
    return str(message.get("method", "")).startswith(("item/", "turn/"))


async def test_b60_a_branch_from_an_earlier_point_never_writes_into_the_one_it_left(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        ids = await client.turns(thread, "one", "two")
        before = house.log(thread)
        child = (await client.call("thread/fork", {"threadId": thread, "lastTurnId": ids[0]}))["thread"]["id"]
        mine = await client.turn(child, "in the child")
        assert house.log(thread) == before
        own = house.log(child)
        other = await client.turn(thread, "in the parent")
        assert house.log(child) == own and house.log(thread).startswith(before)
        assert mine != other
        assert [turn[0] for turn in await client.shown(thread)] == ["one", "two", "in the parent"]
        assert [turn[0] for turn in await client.shown(child)] == ["one", "in the child"]
        await client.call("thread/revert", {"threadId": thread, "beforeTurnId": ids[1]})
        kept = house.logs()
        await client.turn(thread, "on the new branch")
        after = house.logs()
        changed = {name for name in after if kept.get(name) != after[name]}
        assert len(changed) == 1 and f"{thread}_" in changed.pop()
