"""Commands that the user runs (`thread/shellCommand`), and commands that are left running."""

from typing import Any

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.interaction.prompts import inputs, text_of
from tests.interaction.stories import story
from tests.interaction.wire import Client
from tests.tools.commands import FULL, NEST, all_gone, command, commands, done, outputs, printed, shell_house


async def ran(client: Client, thread: str, line: str, **more: Any) -> Any:
    """Let the user run a command in a turn of its own; returns the turn's id."""
    mark = client.mark
    assert await client.call("thread/shellCommand", {"threadId": thread, "command": line, **more}) == {}
    started = await client.event("turn/started", since=mark)
    return started["params"]["turn"]["id"]


def notes(mock: Mock) -> list[str]:
    """User commands in the newest request, without their duration."""
    texts = [text_of(item) for item in inputs(mock)[-1] if item.get("role") == "user"]
    lines = [text.split("\n") for text in texts if text.startswith("<user_shell_command>")]
    return ["\n".join(line for line in one if not line.startswith("Duration: ")) for one in lines]


def note(line: str, code: int, output: str) -> str:
    """What the model reads of a user's command."""
    result = f"Exit code: {code}\nOutput:\n{output}"
    return f"<user_shell_command>\n<command>\n{line}\n</command>\n<result>\n{result}\n</result>\n</user_shell_command>"


async def test_a_users_command_is_a_turn_of_its_own_that_asks_nobody_and_that_the_model_reads_of(
    house: House, mock: Mock
) -> None:
    shell_house(house, mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), approvalPolicy="untrusted", sandbox="read-only")
        mark = client.mark
        turn = await ran(client, thread, "echo hello; exit 3")
        assert (await client.ended(turn))["status"] == "completed"
        assert story(client.seen[mark:]) == [
            "answer",
            "status active",
            "turn/started",
            "item/started commandExecution",
            "item/commandExecution/outputDelta",
            "item/completed commandExecution",
            "status idle",
            "turn/completed completed",
        ]
        (item,) = commands((await client.read(thread))["turns"][0])
        assert (item["source"], item["status"], item["exitCode"]) == ("userShell", "failed", 3)
        assert (item["aggregatedOutput"], item["processId"]) == ("hello\n", None)
        await client.turn(thread, "and?")
        assert notes(mock) == [note("echo hello; exit 3", 3, "hello\n")]


async def test_during_a_turn_a_users_command_joins_it_behind_the_outputs_of_the_round(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    gate = house.work / "gate"
    mock.push(command(f"until [ -e {gate} ]; do sleep 0.01; done", yield_time_ms=30000))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        turn = await client.begin(thread, "go")
        await client.until(lambda m: m.get("method") == "item/started" and m["params"]["item"]["id"] == "c1")
        await client.call("thread/shellCommand", {"threadId": thread, "command": f"touch {gate}"})
        await client.ended(turn)
        turns = (await client.read(thread))["turns"]
        assert [turn["id"] for turn in turns] == [turn]
        assert {item["source"] for item in commands(turns[0])} == {"unifiedExecStartup", "userShell"}
        await client.turn(thread, "on")
    kinds = [item.get("type") for item in inputs(mock)[-1]]
    call = kinds.index("function_call")
    assert kinds[call : call + 2] == ["function_call", "function_call_output"]
    assert notes(mock) == [note(f"touch {gate}", 0, "")]


@pytest.mark.parametrize("joined", [False, True])
async def test_an_interrupt_ends_a_users_command_and_the_model_reads_so(house: House, mock: Mock, joined: bool) -> None:
    shell_house(house, mock)
    mock.push({"say": "x", "partial": True}, {"hang": True}) if joined else None
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        if joined:
            turn = await client.begin(thread, "go")
            await client.event("item/agentMessage/delta")
            await client.call("thread/shellCommand", {"threadId": thread, "command": NEST})
        else:
            turn = await ran(client, thread, NEST)
        started = await client.until(
            lambda m: m.get("method") == "item/started" and m["params"]["item"]["type"] == "commandExecution"
        )
        item_id = started["params"]["item"]["id"]
        *pids, _ = await printed(client, "up\n", item_id)
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        assert (await client.ended(turn))["status"] == "interrupted"
        await all_gone(pids)
        ended = await done(client, item_id)
        assert (ended["status"], ended["exitCode"]) == ("failed", -1)
        await client.turn(thread, "on")
        assert notes(mock) == [note(NEST, -1, "command aborted by user")]


async def test_a_users_command_has_the_time_it_was_given(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        turn = await ran(client, thread, "sleep 600", timeoutMs=50)
        assert (await client.ended(turn))["status"] == "completed"
        (item,) = commands((await client.read(thread))["turns"][0])
        assert (item["status"], item["exitCode"]) == ("failed", -1)


async def test_what_is_no_command_of_this_server_is_refused_and_changes_nothing(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        empty = await client.refused("thread/shellCommand", {"threadId": thread, "command": "  "})
        assert (empty.reason, empty.message) == ("invalidParams", "command must not be empty")
        unknown = await client.refused("thread/shellCommand", {"threadId": _NOBODY, "command": "true"})
        assert unknown.reason == "threadNotFound"
        early = await client.refused("thread/shellCommand", {"threadId": thread, "command": "true", "timeoutMs": -1})
        assert early.reason == "invalidParams"


_NOBODY = "01900000-0000-7000-8000-0000000000ff"


async def test_commands_that_are_left_running_can_be_listed_and_ended(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(*(command("sleep 600", f"c{number}", yield_time_ms=1) for number in range(3)))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        await client.turn(thread, "go")
        ids = {"threadId": thread}
        page = await client.call("thread/backgroundTerminals/list", {**ids, "limit": 2})
        rest = await client.call("thread/backgroundTerminals/list", {**ids, "cursor": page["nextCursor"]})
        assert (len(page["data"]), len(rest["data"]), rest["nextCursor"]) == (2, 1, None)
        first = page["data"][0]
        assert (first["command"], first["cwd"]) == ("sleep 600", str(house.work))
        ended = await client.call("thread/backgroundTerminals/terminate", {**ids, "processId": first["processId"]})
        assert ended == {"terminated": True}
        again = await client.call("thread/backgroundTerminals/terminate", {**ids, "processId": first["processId"]})
        assert again == {"terminated": False}
        await client.call("thread/backgroundTerminals/clean", ids)
        assert (await client.call("thread/backgroundTerminals/list", ids))["data"] == []
        for number in range(3):
            assert (await done(client, f"c{number}"))["exitCode"] == -1
        await all_gone([str(one["osPid"]) for one in [*page["data"], *rest["data"]]])
        assert len(outputs(mock)) == 3
