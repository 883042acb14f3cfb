"""What a turn may begin with beside text: reports of other programs, added context, skills and mentions (07 §9)."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.interaction.prompts import assert_prefix, inputs
from tests.interaction.wire import Client, Message

MODES = pytest.mark.parametrize("mode", ["paginated", "legacy"])
REPORT = {"name": "mailer", "namespace": "box", "output": "you have mail"}


def bare(item: Mapping[str, Any]) -> Message:
    """An item without its id."""
    return {key: value for key, value in item.items() if key != "id"}


async def told(client: Client, thread: str, text: str, **context: tuple[str, str]) -> None:
    """A turn with added context: key -> (kind, value)."""
    pieces = {key: {"kind": kind, "value": value} for key, (kind, value) in context.items()}
    given = [{"type": "text", "text": text}]
    started = await client.call("turn/start", {"threadId": thread, "input": given, "additionalContext": pieces})
    await client.ended(started["turn"]["id"])


@MODES
async def test_a_report_is_a_tools_word_in_a_turn_of_its_own(house: House, mock: Mock, mode: str) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turn(thread, "hi")
        params = {"threadId": thread, "input": [], "toolOutput": REPORT, "turnTrigger": "cron"}
        started = await client.call("turn/start", params)
        await client.ended(started["turn"]["id"])
        live = (await client.read(thread))["turns"]
    first, second = inputs(mock)
    assert_prefix(first, second, new=2)
    assert bare(second[-1]) == {"type": "function_call_output", **REPORT}
    assert [item["type"] for item in live[1]["items"]] == ["functionCallOutput", "agentMessage"]
    assert {key: live[1]["items"][0][key] for key in REPORT} == REPORT
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await client.read(thread))["turns"] == live
    starts = [line["payload"] for line in house.records(thread) if line["payload"].get("type") == "task_started"]
    assert [start.get("turn_attribution", {}).get("turn_trigger") for start in starts] == [None, "cron"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"toolOutput": {"name": "", "output": "x"}}, "`toolOutput.name` must not be empty"),
        (
            {"toolOutput": REPORT, "input": [{"type": "text", "text": "both"}]},
            "`toolOutput` cannot be combined with nonempty `input`",
        ),
        ({"toolOutput": {"name": "m"}}, "Invalid request: missing field `output`"),
        *(
            (
                {"toolOutput": {"name": "m", "output": [part]}},
                "Invalid request: expected a part of type `input_text` with `text` or `input_image` with `image_url`",
            )
            for part in ({"type": "hologram"}, {"type": "input_text"}, {"type": ["input_text"], "text": "x"}, {})
        ),
        (
            {"additionalContext": {"a": {"kind": "untrusted", "value": "x"}}},
            "`additionalContext` needs an input to go with",
        ),
    ],
)
async def test_inputs_that_do_not_fit_are_refused(house: House, params: dict[str, Any], message: str) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        error = await client.refused("turn/start", {"threadId": thread, "input": [], **params})
        assert (error.code, error.message) == (-32600, message)
        assert (await client.call("thread/loaded/list", {}))["data"] == [thread]


@MODES
async def test_added_context_is_told_once_and_again_when_it_changes(house: House, mock: Mock, mode: str) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turn(thread, "hi")
        await told(client, thread, "one", b=("application", "V"), a=("untrusted", "U"))
        await told(client, thread, "two", b=("application", "V"), a=("untrusted", "U2"))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await told(client, thread, "three", b=("application", "V"), a=("untrusted", "U2"))
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        await told(client, thread, "four", a=("untrusted", "U2"))
    sent = inputs(mock)
    mail = {"type": "function_call_output", "name": "a", "namespace": "agent"}
    note = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<b>V</b>"}]}
    assert [bare(item) for item in sent[1][-3:-1]] == [{**mail, "output": "U"}, note]
    assert [bare(item) for item in sent[2][len(sent[1]) + 1 : -1]] == [{**mail, "output": "U2"}]
    assert_prefix(sent[2], sent[3], new=2)
    assert [bare(item) for item in sent[4][len(sent[1]) + 1 : -1]] == [{**mail, "output": "U2"}]


async def test_skills_and_mentions_are_shown_and_not_sent(house: House, mock: Mock) -> None:
    house.service(mock)
    given = [
        {"type": "text", "text": "use it", "text_elements": []},
        {"type": "skill", "name": "foo", "path": "/skills/foo/SKILL.md"},
        {"type": "mention", "name": "drive", "path": "app://drive"},
    ]
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        started = await client.call("turn/start", {"threadId": thread, "input": given})
        await client.ended(started["turn"]["id"])
        assert (await client.read(thread))["turns"][0]["items"][0]["content"] == given
    assert inputs(mock)[-1][-1]["content"] == [{"type": "input_text", "text": "use it"}]
