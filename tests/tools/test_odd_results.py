"""Arguments, results and failures that no tool should have: the model reads something of them, and the turn goes on."""

import json

import pytest
from mcp.shared.exceptions import MCPError
from unspool_server.mcp.failures import LONGEST, reason_of
from unspool_server.nesting import DEEPEST
from unspool_server.sessions.tools.mcp_output import model_output

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import TOOL, House
from tests.interaction.prompts import inputs

NESTED = '{"a":' + "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1) + "}"


@pytest.mark.parametrize("arguments", ['{"a":"\\ud83d"}', '{"a":NaN}', '{"a":1}{"b":2}', NESTED, "[" * 100_000])
async def test_arguments_that_are_no_json_come_back_to_the_model(house: House, mock: Mock, arguments: str) -> None:
    house.service(mock)
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": TOOL["name"], "arguments": arguments}
    mock.replies.append([{"raw": call}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        await client.turn(thread, "go")
        assert client.count("item/tool/call") == 0
    assert inputs(mock)[1][-1]["output"].startswith("failed to parse function arguments: ")


def test_numbers_beyond_64_bits_are_told_as_they_are() -> None:
    output = model_output({"structuredContent": {"n": 10**40}}, wall_s=0)
    assert isinstance(output, str)
    assert json.loads(output.splitlines()[-1]) == {"n": 10**40}


@pytest.mark.parametrize("mime", ['image/png","x', "text/html", "image/png\n", "image/" + "x" * 100])
def test_an_image_of_no_kind_of_image_is_left_out(mime: str) -> None:
    image = {"type": "image", "data": "iVBORw0KGgoAAAAN", "mimeType": mime}
    output = model_output({"content": [image]}, wall_s=0)
    assert output[1] == {"type": "input_text", "text": "image content omitted because it could not be processed"}


def test_a_servers_own_words_are_cut_where_they_have_no_end() -> None:
    told = reason_of(MCPError(-5, "e" * 1_000_000))
    assert told.startswith("Mcp error: -5: eee") and len(told) < LONGEST + 100
