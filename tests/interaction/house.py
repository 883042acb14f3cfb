"""A home folder of a test's own, and daemons that run on it one after the other, over any transport."""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson
from unspool_server.cli import daemon as composition
from unspool_server.cli.daemon import daemon as run_daemon
from unspool_server.config_file import load_config
from unspool_server.connection import Shared
from unspool_server.handlers.services import Services
from unspool_server.sessions.session import Session
from unspool_server.store import LocalStore
from unspool_server.store.files import LocalShelf
from unspool_server.transport.memory import MemoryTransport
from unspool_server.transport.websocket import listen_tcp
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.conformance.faulty_shelf import Faults, FaultyShelf
from tests.fixtures.mockmodel import Mock
from tests.interaction.wire import WAIT_S, Client, Message, Wire

Kind = Literal["memory", "stdio", "websocket"]
KINDS: tuple[Kind, ...] = ("memory", "stdio", "websocket")
COMPACT_PROMPT = "COMPACT-NOW: sum up."
FIXTURES = Path(__file__).parents[1] / "fixtures" / "codex"
TOOL = {
    "type": "function",
    "name": "look",
    "description": "Looks something up.",
    "inputSchema": {"type": "object", "properties": {}},
}


class MemoryWire:
    """The in-memory transport."""

    def __init__(self, shared: Shared) -> None:
        self._transport = MemoryTransport(shared)
        self._transport.start()

    async def send(self, message: Message | bytes) -> None:
        await self._transport.send(message)

    async def recv(self) -> Message:
        received: Message = await self._transport.recv()
        return received

    async def close(self) -> None:
        await self._transport.close()


class WebSocketWire:
    """One text frame for each message."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, message: Message | bytes) -> None:
        await self._socket.send(_encoded(message).decode())

    async def recv(self) -> Message:
        try:
            received: Message = orjson.loads(await self._socket.recv())
        except ConnectionClosed:
            raise EOFError from None
        return received

    async def close(self) -> None:
        await self._socket.close()


class StdioWire:
    """One line for each message, to and from a daemon of its own process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def send(self, message: Message | bytes) -> None:
        self._stdin.write(_encoded(message) + b"\n")
        await self._stdin.drain()

    async def recv(self) -> Message:
        line = await self._stdout.readline()
        if not line:
            raise EOFError
        received: Message = orjson.loads(line)
        return received

    async def close(self) -> None:
        self._stdin.close()


def _encoded(message: Message | bytes) -> bytes:
    return message if isinstance(message, bytes) else orjson.dumps(message)


class Daemon:
    """A running daemon. Clients that it made are closed with it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def open_wire(self) -> Wire:
        """A connection without a handshake."""
        raise NotImplementedError

    async def connect(self, **capabilities: Any) -> Client:
        """A client after its handshake; experimental unless told otherwise."""
        client = await self.raw_client()
        params = {
            "clientInfo": {"name": "tester", "version": "1"},
            "capabilities": {
                "experimentalApi": True,
                "optOutNotificationMethods": ["remoteControl/status/changed", "thread/goal/cleared"],
                **capabilities,
            },
        }
        await client.call("initialize", params)
        return client

    async def raw_client(self) -> Client:
        """A client before its handshake."""
        client = Client(await self.open_wire())
        self._stack.push_async_callback(client.close)
        return client


class LocalDaemon(Daemon):
    """A daemon in this process, so that its sessions can be looked at."""

    def __init__(self, stack: AsyncExitStack, shared: Shared) -> None:
        super().__init__(stack)
        self.shared = shared

    @property
    def services(self) -> Services:
        """What its handlers use."""
        services: Services = self.shared.services
        return services

    def session(self, thread_id: str) -> Session:
        """A loaded thread."""
        session = self.services.sessions.get(thread_id)
        assert session is not None
        return session

    async def open_wire(self) -> Wire:
        return MemoryWire(self.shared)


class WebSocketDaemon(Daemon):
    """A daemon in this process behind a socket."""

    def __init__(self, stack: AsyncExitStack, url: str) -> None:
        super().__init__(stack)
        self._url = url

    async def open_wire(self) -> Wire:
        return WebSocketWire(await connect(self._url, compression=None))


class StdioDaemon(Daemon):
    """A daemon of its own process; one connection, the process' own."""

    def __init__(self, stack: AsyncExitStack, process: asyncio.subprocess.Process) -> None:
        super().__init__(stack)
        self._process = process

    async def open_wire(self) -> Wire:
        return StdioWire(self._process)


@dataclass
class House:
    """A home and how its daemons are configured."""

    home: Path
    work: Path
    kind: Kind = "memory"
    settings: dict[str, Any] = field(default_factory=dict)
    providers: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: Faults | None = None

    def offline(
        self,
        *replies: Sequence[Mapping[str, Any]],
        compact: Sequence[Sequence[Mapping[str, Any]]] = (),
        default: Sequence[Mapping[str, Any]] | None = None,
        usage: Mapping[str, int] | None = None,
        **provider: Any,
    ) -> None:
        """Use the offline model, with a script of replies."""
        script = {"replies": replies, "compact": compact, "default": default, "usage": usage}
        (self.home / "script.json").write_text(json.dumps(script))
        self.providers["offline"] = {"name": "Offline", "wire_api": "offline", "script": "script.json", **provider}

    def service(self, mock: Mock, **provider: Any) -> None:
        """Use the mock model service, so that requests can be looked at."""
        self.settings |= {"model": "mock-model", "model_provider": "mock", "compact_prompt": COMPACT_PROMPT}
        self.providers["mock"] = {
            "name": "Mock",
            "base_url": f"http://127.0.0.1:{mock.port}/v1",
            "wire_api": "responses",
            "request_max_retries": 0,
            "stream_max_retries": 0,
            **provider,
        }

    def borrow(self, scenario: str) -> str:
        """Put a log of the reference's into the home; returns the id of its newest thread."""
        shutil.copytree(FIXTURES / scenario / "sessions", self.home / "sessions", dirs_exist_ok=True)
        newest = max((self.home / "sessions").rglob("*.jsonl"), key=lambda path: path.name)
        thread_id: str = json.loads(newest.read_text().splitlines()[0])["payload"]["id"]
        return thread_id

    # -- the log -------------------------------------------------------------------------------------------------------

    def logs(self) -> dict[str, bytes]:
        """Every rollout by its file name."""
        return {path.name: path.read_bytes() for path in self.home.rglob("rollout-*.jsonl")}

    def log(self, thread_id: str) -> bytes:
        """The bytes of a thread's newest rollout."""
        return self.log_file(thread_id).read_bytes()

    def log_file(self, thread_id: str) -> Path:
        """A thread's newest rollout."""
        return max(self.home.rglob(f"rollout-*{thread_id}*.jsonl"), key=lambda path: path.name)

    def records(self, thread_id: str) -> list[dict[str, Any]]:
        """The lines of a thread's newest rollout."""
        return [json.loads(line) for line in self.log(thread_id).splitlines()]

    def only_logs_stay(self) -> None:
        """Remove everything but rollouts and configuration: catalogue, side files, names, locks."""
        for path in self.home.rglob("*"):
            if path.is_file() and path.suffix not in (".jsonl", ".toml", ".json"):
                path.unlink()
        (self.home / "session_index.jsonl").unlink(missing_ok=True)

    # -- daemons -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Daemon]:
        """A daemon over the house's transport."""
        self._write_config()
        async with AsyncExitStack() as stack:
            if self.kind == "stdio":
                process = await _spawn(self.home)
                stack.push_async_callback(_ended, process)
                yield StdioDaemon(stack, process)
                return
            shared = await stack.enter_async_context(self._daemon())
            if self.kind == "websocket":
                listener = await stack.enter_async_context(listen_tcp(shared, "127.0.0.1", 0))
                yield WebSocketDaemon(stack, f"ws://127.0.0.1:{listener.address[1]}")
                return
            yield LocalDaemon(stack, shared)

    @asynccontextmanager
    async def process(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """A daemon of its own process, whose end is the test's business; killed if the test leaves it running."""
        self._write_config()
        process = await _spawn(self.home)
        try:
            yield process
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[LocalDaemon]:
        """A daemon in this process over the in-memory transport."""
        self._write_config()
        async with AsyncExitStack() as stack:
            yield LocalDaemon(stack, await stack.enter_async_context(self._daemon()))

    @asynccontextmanager
    async def _daemon(self) -> AsyncIterator[Shared]:
        config, warnings = load_config(self.home, environ={})
        assert not warnings
        faults, made = self.faults, LocalStore
        if faults is not None:

            def faulty(home: Path, *, durable: bool = False) -> LocalStore:
                return LocalStore(home, durable=durable, shelf=FaultyShelf(LocalShelf(home), faults))

            setattr(composition, "LocalStore", faulty)  # noqa: B010 - the seam between store and disk
        try:
            running = run_daemon(config, self.home)
            async with running as shared:
                yield shared
        finally:
            setattr(composition, "LocalStore", made)  # noqa: B010

    def _write_config(self) -> None:
        lines = [f"{name} = {json.dumps(value)}" for name, value in self.settings.items()]
        named = {f"model_providers.{name}": table for name, table in self.providers.items()}
        for name, table in {**self.tables, **named}.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        (self.home / "config.toml").write_text("\n".join(lines) + "\n")


async def _spawn(home: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "unspool_server.cli.main", "app-server", "--home", str(home)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End of input ends the process (`wire` §1)."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(WAIT_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
