"""What a test knows of a tool server: the messages it got, and whether it runs."""

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fixtures.mockmodel import Mock
from tests.interaction.wire import WAIT_S

SPACE = "mcp__box"


@dataclass(frozen=True, slots=True)
class Peer:
    """A server that writes down its process ids and everything it is sent."""

    log: Path

    def lines(self) -> list[Any]:
        """Process ids (numbers) and messages, in order."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def got(self, method: str) -> list[Any]:
        """The parameters of the messages of one method."""
        told = [line for line in self.lines() if isinstance(line, dict)]
        return [line.get("params") for line in told if line.get("method") == method]

    def starts(self) -> list[int]:
        """Process ids, oldest first."""
        return [line for line in self.lines() if isinstance(line, int)]

    def running(self) -> list[int]:
        """The processes of it that are alive."""
        return [pid for pid in self.starts() if _is_alive(pid)]

    async def until_gone(self) -> None:
        """Wait until none of its processes is alive."""
        for pid in self.running():
            await _exit_of(pid)


async def _exit_of(pid: int) -> None:
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watched, ended.set)
    try:
        async with asyncio.timeout(WAIT_S):
            await ended.wait()
    finally:
        loop.remove_reader(watched)
        os.close(watched)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def push_call(mock: Mock, tool: str, call_id: str = "c1", space: str = SPACE, **arguments: Any) -> None:
    """Let the model call a tool next, and then say that it is done."""
    call = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": tool, "namespace": space}
    mock.push({"raw": {**call, "arguments": json.dumps(arguments)}})
    mock.push({"say": "done"})


def output_of(mock: Mock, call_id: str = "c1") -> Any:
    """What the model was told of a call."""
    found = [item for item in mock.last()["input"] if item["type"] == "function_call_output"]
    return next(item["output"] for item in found if item["call_id"] == call_id)


def texts(output: Any) -> list[str]:
    """The texts of an output's parts behind the line with the time."""
    assert output[0]["text"].startswith("Wall time: ")
    return [part.get("text", part.get("image_url")) for part in output[1:]]


def spaces(mock: Mock) -> dict[str, list[str]]:
    """The namespaces of the newest request with the names of their tools."""
    declared = [tool for tool in mock.last().get("tools", []) if tool["type"] == "namespace"]
    return {space["name"]: [tool["name"] for tool in space["tools"]] for space in declared}
