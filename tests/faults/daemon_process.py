"""A real daemon process on its standard streams, to be killed at a chosen moment."""

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).parents[2]
WAIT_S = 30.0
Message = dict[str, Any]

CONFIG = """
[model_providers.offline]
name = "Offline"
wire_api = "offline"
pace_s = 0.001
"""


class Killed(Exception):
    """The daemon is gone: it was killed at the moment that was asked for."""


class DaemonProcess:
    """A client of its own daemon. After `kill_after` messages have come the daemon is killed with signal 9."""

    def __init__(self, process: asyncio.subprocess.Process, kill_after: int | None) -> None:
        self.process = process
        self._left = kill_after
        self._ids = itertools.count(1)
        self.log: list[Message] = []

    async def call(self, method: str, **params: Any) -> Message:
        """The answer message of a request; raises Killed when the daemon does not live to give it."""
        number = next(self._ids)
        await self._send({"id": number, "method": method, "params": params})
        while True:
            message = await self._receive()
            if "method" not in message and message["id"] == number:
                return message

    async def result(self, method: str, **params: Any) -> Message:
        """The result of a request."""
        answer = await self.call(method, **params)
        assert "result" in answer, answer
        return cast(Message, answer["result"])

    async def completed(self, turn_id: str) -> Message:
        """The turn as `turn/completed` shows it."""
        while True:
            for message in self.log:
                if message.get("method") == "turn/completed" and message["params"]["turn"]["id"] == turn_id:
                    return cast(Message, message["params"]["turn"])
            await self._receive()

    async def output_of(self, item_id: str, *, until: str) -> list[int]:
        """The numbers that a command has printed when it prints `until`."""
        while True:
            told = [m["params"] for m in self.log if m.get("method") == "item/commandExecution/outputDelta"]
            text = "".join(params["delta"] for params in told if params["itemId"] == item_id)
            if until in text:
                return [int(word) for word in text.split() if word.isdecimal()]
            await self._receive()

    async def kill(self) -> None:
        """Signal 9, and wait until it is gone."""
        if self.process.returncode is None:
            self.process.kill()
        await asyncio.wait_for(self.process.wait(), WAIT_S)

    async def _send(self, message: Message) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            await self.process.stdin.drain()
        except ConnectionError as error:
            raise Killed from error

    async def _receive(self) -> Message:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), WAIT_S)
        if not line:
            raise Killed
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                await self.kill()
                raise Killed
        message: Message = json.loads(line)
        self.log.append(message)
        return message


@asynccontextmanager
async def daemon_process(
    home: Path, *, kill_after: int | None = None, config: str = CONFIG
) -> AsyncIterator[DaemonProcess]:
    """Start `unspool app-server` on a home and shake hands; it is killed at the end in any case."""
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(config)
    path = os.pathsep.join(str(ROOT / part) for part in ("server", "protocol", "clients"))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "unspool_server.cli.main",
        "app-server",
        "--home",
        str(home),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        limit=1 << 24,
    )
    daemon = DaemonProcess(process, None)
    try:
        await daemon.result(
            "initialize", clientInfo={"name": "t", "version": "1"}, capabilities={"experimentalApi": True}
        )
        daemon._left = kill_after
        yield daemon
    finally:
        await daemon.kill()
