"""A stream that breaks within a turn: what stays, what clients are told, and that the model is asked again."""

import asyncio
import json

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import TOOL, House, LocalDaemon
from tests.interaction.prompts import inputs, talk
from tests.interaction.wire import Client, Message, within

HALF: list[Message] = [{"say": "finished"}, {"say": "half", "partial": True}, {"cut": True}]


class Waits:
    """In place of waiting: notes each wait, and lets it pass at once or never."""

    def __init__(self, daemon: LocalDaemon, *, end: bool = True) -> None:
        self.seconds: list[float] = []
        self.began = asyncio.Event()
        self._end = end
        daemon.services.sessions.env.providers.sleep = self

    async def __call__(self, delay_s: float) -> None:
        self.seconds.append(delay_s)
        self.began.set()
        if not self._end:
            await asyncio.Event().wait()


def retries(client: Client) -> list[Message]:
    """Every failure that clients were told of."""
    return [message["params"] for message in client.seen if message.get("method") == "error"]


async def test_finished_items_stay_and_the_unfinished_one_is_made_anew(house: House, mock: Mock) -> None:
    house.service(mock, stream_max_retries=2)
    mock.replies += [HALF, [{"say": "whole"}]]
    async with house.daemon() as daemon:
        waits, client = Waits(daemon), await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.turn(thread, "go")

        assert await client.shown(thread) == [["go", "finished", "whole"]]
        assert talk(inputs(mock)[1])[-2:] == ["user: go", "assistant: finished"]
        [told] = retries(client)
        assert told == {
            "threadId": thread,
            "turnId": turn,
            "willRetry": True,
            "error": {
                "message": "Reconnecting... 1/2",
                "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": None}},
                "additionalDetails": ("stream disconnected before completion: stream closed before response.completed"),
            },
        }
        assert len(waits.seconds) == 1
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert resumed["thread"]["status"] == {"type": "idle"}
        await client.turn(thread, "more")
    assert "half" not in json.dumps(inputs(mock))


async def test_a_call_that_was_finished_runs_once_and_the_next_try_has_its_output(house: House, mock: Mock) -> None:
    house.service(mock, stream_max_retries=1)
    mock.replies += [[{"call": "look", "id": "c1"}, {"cut": True}], [{"say": "seen"}]]
    async with house.daemon() as daemon:
        Waits(daemon)
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        turn = await client.begin(thread, "go")
        request = await client.event("item/tool/call")
        content = [{"type": "inputText", "text": "a view"}]
        await client.send({"id": request["id"], "result": {"contentItems": content, "success": True}})
        assert (await client.ended(turn))["status"] == "completed"

    assert client.count("item/tool/call") == 1
    assert len(mock.requests) == 2
    assert [item["type"] for item in inputs(mock)[1]][-2:] == ["function_call", "function_call_output"]


async def test_when_no_try_is_left_the_turn_fails_as_without_retries(house: House, mock: Mock) -> None:
    house.service(mock, stream_max_retries=1)
    mock.replies += [HALF, [{"cut": True}]]
    async with house.daemon() as daemon:
        Waits(daemon)
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        ended = await client.ended(await client.begin(thread, "go"))

        assert ended["status"] == "failed"
        assert ended["error"]["message"].startswith("stream disconnected before completion")
        assert [told["willRetry"] for told in retries(client)] == [True, False]
        await client.turn(thread, "next")
        assert await client.shown(thread) == [["go", "finished", "half"], ["next", "ok 3"]]


async def test_without_retries_nothing_is_asked_twice(house: House, mock: Mock) -> None:
    house.service(mock)
    mock.replies.append(HALF)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        assert (await client.ended(await client.begin(thread, "go")))["status"] == "failed"

    assert [told["willRetry"] for told in retries(client)] == [False]
    assert len(mock.requests) == 1


async def test_an_interrupt_ends_the_wait(house: House, mock: Mock) -> None:
    house.service(mock, stream_max_retries=1)
    mock.replies.append(HALF)
    async with house.daemon() as daemon:
        waits, client = Waits(daemon, end=False), await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.begin(thread, "go")
        await within(waits.began.wait())
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        assert (await client.ended(turn))["status"] == "interrupted"

    assert len(mock.requests) == 1


async def test_a_steer_ends_the_wait_and_is_what_the_model_sees_next(house: House, mock: Mock) -> None:
    house.service(mock, stream_max_retries=1)
    mock.replies.append(HALF)
    async with house.daemon() as daemon:
        waits, client = Waits(daemon, end=False), await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.begin(thread, "go")
        await within(waits.began.wait())
        steer = {"threadId": thread, "expectedTurnId": turn, "input": [{"type": "text", "text": "rather this"}]}
        await client.call("turn/steer", steer)
        assert (await client.ended(turn))["status"] == "completed"

    assert talk(inputs(mock)[1])[-3:] == ["user: go", "assistant: finished", "user: rather this"]


async def test_a_summary_whose_stream_breaks_is_asked_for_again(house: House, mock: Mock) -> None:
    house.service(mock, stream_max_retries=1)
    async with house.daemon() as daemon:
        waits, client = Waits(daemon), await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        mock.compact_replies += [[{"say": "half of", "partial": True}, {"cut": True}], [{"say": "all of it"}]]
        await client.call("thread/compact/start", {"threadId": thread})
        await client.event("item/completed", since=client.mark)
        await client.settled()
        await client.turn(thread, "two")

    assert len(waits.seconds) == 1
    assert "all of it" in json.dumps(inputs(mock)[-1]) and "half of" not in json.dumps(inputs(mock)[-1])


@pytest.mark.parametrize("step", [{"http": 400}, {"fail": "invalid_prompt"}, {"fail": "server_is_overloaded"}])
async def test_failures_that_another_try_does_not_mend_end_the_turn_at_once(
    house: House, mock: Mock, step: Message
) -> None:
    house.service(mock, stream_max_retries=3)
    mock.replies.append([step])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        assert (await client.ended(await client.begin(thread, "go")))["status"] == "failed"

    assert len(mock.requests) == 1


async def test_no_secret_of_the_service_reaches_wire_or_log(house: House, mock: Mock) -> None:
    house.service(mock, experimental_bearer_token="sk-very-secret")
    house.tables["model_providers.mock.http_headers"] = {"x-team": "header-secret"}
    leak = "Incorrect API key: sk-very-secret (Authorization: Bearer sk-very-secret, header-secret)"
    failed = {"type": "response.failed", "response": {"error": {"code": "invalid_prompt", "message": leak}}}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        handler = mock.srv.RequestHandlerClass
        before = handler.stream  # type: ignore[attr-defined]
        handler.stream = lambda self, _steps, _n: self.ev(failed)  # type: ignore[attr-defined]
        try:
            ended = await client.ended(await client.begin(thread, "two"))
        finally:
            handler.stream = before  # type: ignore[attr-defined]
        await client.call("thread/read", {"threadId": thread, "includeTurns": True})
        await client.call("config/read", {})

    assert "[redacted]" in ended["error"]["message"]
    shown = json.dumps(client.seen) + house.log(thread).decode()
    assert "very-secret" not in shown and "header-secret" not in shown
