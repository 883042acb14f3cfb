"""One home, and daemon processes on it one after the other: started, killed, asked to stop, looked at."""

import asyncio
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.torture.sizes import Sizes

ROOT = Path(__file__).parents[2]
START_S = 60.0
"""Longest wait for a daemon to listen, and to end."""

CONFIG = """
thread_unload_delay_secs = 1.0
drain_timeout_secs = 1.0
[model_providers.offline]
name = "Offline"
wire_api = "offline"
pace_s = {pace_s}
[history]
retained_events = 256
slow_client_bytes = 16384
[limits]
connections = 4096
connections_per_token = 4096
"""


class ServerProcess:
    """The daemon of a home at the moment, if one runs.

    Attributes:
        stderr: What all daemons of the home wrote.
        max_rss_kib: The most memory that one of them took.
        replayed: How many events were served again, by where they came from.
    """

    def __init__(self, home: Path, sizes: Sizes) -> None:
        self.home = home
        self.stderr: list[str] = []
        self.max_rss_kib = 0
        self.starts = 0
        self.replayed: dict[str, int] = {}
        self.published = 0
        self._url = ""
        self._up = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(CONFIG.format(pace_s=sizes.pace_s))

    async def url(self) -> str:
        """Where the daemon listens; waits for one."""
        async with asyncio.timeout(2 * START_S):
            await self._up.wait()
        return self._url

    async def start(self) -> None:
        """Start a daemon and wait until it listens."""
        path = os.pathsep.join(str(ROOT / part) for part in ("server", "protocol", "clients"))
        command = [sys.executable, "-m", "unspool_server.cli.main", "app-server", "--listen", "ws://127.0.0.1:0"]
        self._process = await asyncio.create_subprocess_exec(
            *command,
            "--home",
            str(self.home),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            limit=1 << 24,
        )
        self.starts += 1
        self._reader = asyncio.create_task(self._read(self._process), name="daemon's stderr")
        async with asyncio.timeout(START_S):
            up = asyncio.create_task(self._up.wait())
            await asyncio.wait({up, self._reader}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        assert self._up.is_set(), "the daemon did not start:\n" + "\n".join(self.stderr[-20:])

    async def end(self, signal_number: int) -> None:
        """Send a signal and wait until the process is gone."""
        process = self._process
        if process is None:
            return
        if signal_number != signal.SIGTERM:
            self._up.clear()
        self._measure(process.pid)
        with suppress(ProcessLookupError):
            process.send_signal(signal_number)
        try:
            async with asyncio.timeout(START_S):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        self._up.clear()
        if self._reader is not None:
            await self._reader
        self._process = None
        if signal_number == signal.SIGTERM:
            assert process.returncode == 0, f"the daemon ended with {process.returncode}"

    async def look(self) -> None:
        """Add the figures of the running daemon to the sums; call it before its end."""
        parts = urlsplit(self._url)
        try:
            async with asyncio.timeout(START_S):
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                text = (await reader.read()).decode()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            return
        for where, count in re.findall(r'^unspool_events_replayed_total\{source="(\w+)"\} (\S+)', text, re.M):
            self.replayed[where] = self.replayed.get(where, 0) + int(float(count))
        for count in re.findall(r"^unspool_events_published_total (\S+)", text, re.M):
            self.published += int(float(count))

    def _measure(self, pid: int) -> None:
        with suppress(OSError):
            found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
            self.max_rss_kib = max(self.max_rss_kib, int(found[1]) if found else 0)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while line := (await process.stderr.readline()).decode(errors="replace").rstrip():
            self.stderr.append(line)
            if "listening on" in line and not self._up.is_set():
                self._url = line.split()[-1]
                self._up.set()
