"""A thread over a chat service: tools, reasoning, a broken stream and a restart, as over the Responses API."""

import re
import tomllib
from pathlib import Path

import pytest
from unspool_server.config_file import load_config

from tests.interaction.house import TOOL, House
from tests.model.chat_service import CUT, ChatService, call_piece, chunk, serving

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def uses(house: House, service: ChatService) -> None:
    house.settings |= {"model": "local", "model_provider": "chat"}
    table = {"wire_api": "chat", "base_url": f"http://127.0.0.1:{service.port}/v1", "stream_max_retries": 1}
    house.providers["chat"] = table


async def test_a_thread_with_tools_goes_on_after_a_cut_and_a_restart(house: House) -> None:
    async with serving() as service:
        uses(house, service)
        service.answers += [
            [
                chunk(reasoning_content="look first"),
                chunk(tool_calls=[call_piece(0, "c1", name="look")]),
                chunk("stop"),
            ],
            [chunk(content="ha"), CUT],
            [chunk("stop", content="seen"), "[DONE]"],
            [chunk("stop", content="again"), "[DONE]"],
        ]
        async with house.daemon() as daemon:
            client = await daemon.connect()
            thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
            turn = await client.begin(thread, "go")
            request = await client.event("item/tool/call")
            content = [{"type": "inputText", "text": "a view"}]
            await client.send({"id": request["id"], "result": {"contentItems": content, "success": True}})
            assert (await client.ended(turn))["status"] == "completed"
        async with house.daemon() as daemon:
            client = await daemon.connect()
            await client.call("thread/resume", {"threadId": thread})
            await client.turn(thread, "more")
    asked = [body["messages"] for body in service.bodies]
    assert asked[1] == asked[2]
    assert [one["role"] for one in asked[3][-5:]] == ["user", "assistant", "tool", "assistant", "user"]
    assert asked[3][: len(asked[2])] == asked[2]
    called = asked[3][-4]
    assert (called["reasoning_content"], called["tool_calls"][0]["id"]) == ("look first", "c1")
    assert (asked[3][-3]["content"], asked[3][-2]["content"]) == ("a view", "seen")


EXAMPLES = [
    example
    for example in re.findall(r"```toml\n(.*?)```", OPERATIONS.read_text("utf-8"), re.S)
    if "model_provider" in tomllib.loads(example)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_a_model_service_is_a_configuration_without_warnings(example: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(example)

    config, warnings = load_config(tmp_path, environ={})

    assert not warnings
    assert config.provider() is not None


async def test_arguments_nested_without_end_harm_neither_this_turn_nor_the_next(house: House) -> None:
    async with serving() as service:
        uses(house, service)
        call = call_piece(0, "c1", name="look", arguments="[" * 100_000)
        said: list[object] = [chunk(content="fine"), chunk("stop")]
        service.answers += [[chunk(tool_calls=[call]), chunk("tool_calls")], said, said]
        async with house.daemon() as daemon:
            client = await daemon.connect()
            thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
            await client.turns(thread, "one", "two")
        assert [one["role"] for one in service.bodies[2]["messages"]][-3:] == ["tool", "assistant", "user"]
