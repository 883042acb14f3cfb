"""Two quick first messages made two threads: a client's key makes one of them, also after a restart."""

import asyncio
import json

from tests.interaction.house import House


async def test_b117_one_key_makes_one_thread_at_once_and_after_a_restart(house: House) -> None:
    house.offline()
    asked = {"cwd": str(house.work), "idempotencyKey": "first", "sandbox": "read-only"}
    async with house.daemon() as daemon:
        client, other = await daemon.connect(), await daemon.connect()
        both = await asyncio.gather(client.call("thread/start", asked), other.call("thread/start", asked))
        assert both[0] == both[1]
        thread = both[0]["thread"]["id"]
        assert len(house.logs()) == 1, "a thread with a key is there at once"
        assert [one.count("thread/started") for one in (client, other)] == [1, 1]
    async with house.daemon() as daemon:
        client = await daemon.connect()
        again = await client.call("thread/start", asked)
        assert (again["thread"]["id"], again["sandbox"]) == (thread, both[0]["sandbox"])
        assert again["model"] == both[0]["model"]
        await client.turn(thread, "hello")
        assert (await client.call("thread/start", asked))["thread"]["id"] == thread
        assert len(house.logs()) == 1
        another = await client.call("thread/start", {**asked, "idempotencyKey": "second"})
        assert another["thread"]["id"] != thread


async def test_b117_a_key_for_something_else_is_refused_and_a_refused_call_leaves_its_key_free(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        asked = {"cwd": str(house.work), "idempotencyKey": "k"}
        bad = await client.refused("thread/start", {**asked, "modelProvider": "nobody"})
        assert bad.reason == "unknownProvider"
        thread = (await client.call("thread/start", asked))["thread"]["id"]
        refused = await client.refused("thread/start", {**asked, "ephemeral": True})
        assert (refused.reason, refused.data["key"]) == ("idempotencyKeyReused", "k")
        assert len(house.logs()) == 1
        await client.call("thread/delete", {"threadId": thread})
        assert (await client.refused("thread/start", asked)).reason == "noRollout"
        assert not house.logs(), "a thread that is gone is not made again by a late repeat"


async def test_b117_a_thread_whose_creation_was_cut_off_is_made_by_the_repeat_with_its_reserved_id(
    house: House,
) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), idempotencyKey="cut")
    (journal,) = (house.home / "unspool_calls").glob("*.jsonl")
    begun, done = journal.read_bytes().splitlines()
    assert json.loads(done)["what"] == "done"
    journal.write_bytes(begun + b'\n{"torn')
    house.log_file(thread).unlink()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        for _ in range(2):
            assert await client.start(cwd=str(house.work), idempotencyKey="cut") == thread
    assert len(house.logs()) == 1
