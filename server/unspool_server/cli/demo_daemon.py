"""The demo's daemon: the real program in a process of its own, with the offline model following a script."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_client import Client

from unspool_server import __version__

PACE_S = 0.03
"""Between two words of the offline model, so that people see an answer arrive."""

BANNER_MARK = "listening on: "
WAIT_S = 20.0


@dataclass(slots=True)
class DaemonProcess:
    """A running daemon: its process and where it listens."""

    process: asyncio.subprocess.Process
    url: str

    @asynccontextmanager
    async def client(self, name: str) -> AsyncIterator[Client]:
        """A client that does not reconnect: when this daemon is gone, it is told so."""
        async with Client.connect(self.url, name=name, version=__version__, reconnect=None) as client:
            yield client

    async def kill(self) -> int:
        """End it as kill -9 does: it can neither say goodbye nor tidy up. Gives the exit status, -9."""
        self.process.kill()
        return await self.wait()

    async def stop(self) -> int:
        """Ask it to end and wait. Gives the exit status."""
        if self.process.returncode is None:
            self.process.terminate()
        return await self.wait()

    async def wait(self) -> int:
        """Wait for its end, reading what it still says so that it cannot get stuck. Gives the exit status."""
        async with asyncio.timeout(WAIT_S):
            _, status = await asyncio.gather(self._drain(), self.process.wait())
        return status

    async def _drain(self) -> None:
        assert self.process.stderr is not None
        while await self.process.stderr.read(1 << 16):
            pass


@asynccontextmanager
async def running_daemon(home: Path, replies: Sequence[Sequence[dict[str, Any]]]) -> AsyncIterator[DaemonProcess]:
    """Start `unspool app-server` on a free port of 127.0.0.1; whatever happens, its process is over afterwards.

    Args:
        replies: What the offline model answers, one list of steps for each request (`model.script`).
    """
    script = home / "offline-model.json"
    script.write_text(json.dumps({"replies": replies}), encoding="utf-8")
    provider = f"{{ wire_api = 'offline', pace_s = {PACE_S}, script = {json.dumps(str(script))} }}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "unspool_server.cli.main", "app-server"),
        *("--listen", "ws://127.0.0.1:0", "--home", str(home), "-c", f"model_providers.offline={provider}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    daemon = DaemonProcess(process, "")
    try:
        async with asyncio.timeout(WAIT_S):
            daemon.url = await _url(process)
        yield daemon
    finally:
        if process.returncode is None:
            process.kill()
        await daemon.wait()


async def _url(process: asyncio.subprocess.Process) -> str:
    """Read the banner down to the address. Raises RuntimeError with what the daemon said instead."""
    assert process.stderr is not None
    said: list[str] = []
    while line := (await process.stderr.readline()).decode():
        if BANNER_MARK in line:
            return line.partition(BANNER_MARK)[2].strip()
        said.append(line)
    raise RuntimeError("the daemon did not start: " + "".join(said).strip())
