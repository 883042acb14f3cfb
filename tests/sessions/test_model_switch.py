"""`<model_switch>`: told once, by the first turn that runs with another model than the turn before it (07 §3)."""

from typing import Any

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.interaction.prompts import inputs, text_of
from tests.interaction.wire import Client

SWITCH = "<model_switch>"


def switches(mock: Mock, request: int = -1) -> int:
    """How many notices a request holds."""
    return sum(SWITCH in text_of(item) for item in inputs(mock)[request])


async def started(client: Client, house: House) -> str:
    """A thread with one turn of the configured model."""
    thread = await client.start(cwd=str(house.work))
    await client.turn(thread, "one")
    return thread


async def test_a_turn_with_another_model_tells_it_once_directly_before_its_text(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await started(client, house)
        await client.turn(thread, "two", model="other")
        assert SWITCH in text_of(inputs(mock)[-1][-2]) and inputs(mock)[-1][-2]["role"] == "developer"
        await client.turn(thread, "three")
    assert switches(mock) == 1
    assert [request["body"]["model"] for request in mock.requests] == ["mock-model", "other", "other"]


async def test_a_first_turn_tells_nothing_whatever_its_model(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one", model="other")
    assert switches(mock) == 0


@pytest.mark.parametrize("model", ["other", None])
async def test_a_resume_with_another_model_warns_and_tells_it(house: House, mock: Mock, model: str | None) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        thread = await started(await daemon.connect(), house)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread, **({"model": model} if model else {})})
        await client.turn(thread, "two")
        codes = [m["params"].get("code") for m in client.seen if m.get("method") == "warning"]
    assert codes == (["modelMismatch"] if model else [])
    assert switches(mock) == (1 if model else 0)
    async with house.daemon() as daemon:  # a plain resume keeps the other model and has nothing to tell
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert resumed["model"] == (model or "mock-model")
        await client.turn(thread, "three")
        assert client.count("warning") == 0
    assert switches(mock) == (1 if model else 0)


async def test_a_fork_with_another_model_tells_it_to_the_child_only(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await started(client, house)
        forked: dict[str, Any] = await client.call("thread/fork", {"threadId": thread, "model": "other"})
        await client.turn(forked["thread"]["id"], "two")
        assert (mock.last()["model"], switches(mock)) == ("other", 1)
        await client.turn(thread, "two")
        assert (mock.last()["model"], switches(mock)) == ("mock-model", 0)


async def test_after_a_revert_the_model_stays_and_is_told_again(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await started(client, house)
        other = await client.turn(thread, "two", model="other")
        await client.call("thread/revert", {"threadId": thread, "beforeTurnId": other})
        await client.turn(thread, "three")
    assert (mock.last()["model"], switches(mock)) == ("other", 1)


async def test_a_compaction_before_the_turn_tells_it_in_its_fresh_context(house: House, mock: Mock) -> None:
    house.service(mock)
    house.settings |= {"model_auto_compact_token_limit": 5000, "developer_instructions": "DEV"}
    mock.usage.update({"in": 6000, "out": 10})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await started(client, house)
        mock.usage.update({"in": 100, "out": 10})
        await client.turn(thread, "two", model="other")
        assert [request["body"]["model"] for request in mock.requests] == ["mock-model", "other", "other"]
        [bundle] = [item for item in inputs(mock)[-1] if SWITCH in text_of(item)]
        assert [part["text"][: len(SWITCH)] for part in bundle["content"]][:2] == [SWITCH, "DEV"]
        await client.turn(thread, "three")
    assert switches(mock) == 1
