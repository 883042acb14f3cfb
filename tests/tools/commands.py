"""Threads whose model calls for commands, and what came of them."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.interaction.prompts import inputs, text_of
from tests.interaction.wire import WAIT_S, Client, Message

FULL = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
"""Settings of a thread whose commands simply run."""

ASKING = {"approvalPolicy": "on-request", "sandbox": "read-only"}
"""Settings of a thread that asks about each command."""

REQUEST = "item/commandExecution/requestApproval"

NEST = "sleep 600 & echo $!; setsid sleep 600 & echo $!; echo $$; echo up; wait"
"""A command that tells the numbers of its child, of a grandchild in a session of its own, and its own, and stays."""


def shell_house(house: House, mock: Mock) -> None:
    """Let the mock service be the model; login files of whoever runs the tests stay out."""
    house.service(mock)
    house.settings["allow_login_shell"] = False


def command(cmd: str, call: str = "c1", **more: Any) -> dict[str, Any]:
    """A step of the model that calls for a command."""
    return {"call": "exec_command", "id": call, "args": {"cmd": cmd, **more}}


def outputs(mock: Mock) -> dict[str, str]:
    """Tool outputs in the newest request, by call."""
    items = inputs(mock)[-1]
    return {item["call_id"]: text_of(item) for item in items if item.get("type") == "function_call_output"}


def output_lines(mock: Mock, call: str = "c1") -> list[str]:
    """An output's lines without what differs from run to run."""
    lines = outputs(mock)[call].split("\n")
    return [line for line in lines if not line.startswith(("Chunk ID: ", "Wall time: "))]


def session_of(mock: Mock, call: str = "c1") -> int:
    """The session of a command that the model was told is running."""
    return int(output_lines(mock, call)[0].removeprefix("Process running with session ID "))


def commands(turn: Any) -> list[Any]:
    """The commands of a turn as clients see them."""
    return [item for item in turn["items"] if item["type"] == "commandExecution"]


async def done(client: Client, item_id: str = "c1") -> Any:
    """The finished item of a command as it was told."""
    told = await client.until(lambda m: m.get("method") == "item/completed" and m["params"]["item"]["id"] == item_id)
    return told["params"]["item"]


def deltas(client: Client, item_id: str = "c1") -> str:
    """The output of a command as it was streamed."""
    method = "item/commandExecution/outputDelta"
    return "".join(
        m["params"]["delta"] for m in client.seen if m.get("method") == method and m["params"]["itemId"] == item_id
    )


async def printed(client: Client, text: str, item_id: str = "c1") -> list[str]:
    """Wait until a command has printed something; returns its lines so far."""
    await client.until(lambda _: text in deltas(client, item_id))
    return deltas(client, item_id).split()


async def asked(client: Client, item_id: str = "c1", since: int = 0) -> Message:
    """Wait until a client is asked about a command."""
    return await client.event(REQUEST, itemId=item_id, since=since)


def decided(request: Message, decision: Any) -> Message:
    """A client's answer."""
    return {"id": request["id"], "result": {"decision": decision}}


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def eventually(holds: Callable[[], bool], limit_s: float = WAIT_S) -> None:
    """Wait for something that no message tells of."""
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def all_gone(pids: list[str]) -> None:
    """Wait until none of these processes is there."""
    await eventually(lambda: not any(alive(int(pid)) for pid in pids))
