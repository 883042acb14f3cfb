"""A real daemon inside the test, and a client that talks to it over the in-memory transport."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from unspool_server.cli.daemon import daemon
from unspool_server.config import Config
from unspool_server.connection import Shared
from unspool_server.handlers.services import Services
from unspool_server.model.contract import ModelProvider
from unspool_server.sessions.session import Session
from unspool_server.transport.memory import MemoryTransport

WAIT_S = 20.0
Message = dict[str, Any]
Tool = Callable[[Message], Awaitable[Mapping[str, Any]]]

TOOL = {"type": "function", "name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}


class Refused(Exception):
    """A request was answered with an error."""

    def __init__(self, error: Message) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Message = error.get("data") or {}


async def _look(request: Message) -> Mapping[str, Any]:
    return {"contentItems": [{"type": "inputText", "text": f"saw {request['params']['callId']}"}], "success": True}


class Client:
    """One connection: requests with their answers, and every other message in the order it came."""

    def __init__(self, shared: Shared, *, tool: Tool = _look) -> None:
        self._transport = MemoryTransport(shared)
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._came = asyncio.Event()
        self._tool = tool
        self._tools: set[asyncio.Task[None]] = set()
        self.log: list[Message] = []
        self.turns: dict[str, list[tuple[str, str]]] = {}
        """Per thread: `turn/started` and `turn/completed` with the turn's id, as they came."""
        self._ended: dict[str, Message] = {}
        self.answered: dict[int, list[int]] = {}
        """For each request, how long `log` was when an answer came."""

    async def __aenter__(self) -> Self:
        self._transport.start()
        self._reader = asyncio.create_task(self._read(), name="test client")
        info = {"name": "state-test", "version": "1"}
        await self.call("initialize", clientInfo=info, capabilities={"experimentalApi": True})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()
        assert self._reader is not None
        for task in (self._reader, *self._tools):
            task.cancel()
        await asyncio.gather(self._reader, *self._tools, return_exceptions=True)

    async def begin(self, method: str, **params: Any) -> asyncio.Future[Message]:
        """Send a request; the future is its answer message."""
        number = next(self._ids)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._transport.send({"id": number, "method": method, "params": params})
        return answer

    async def call(self, method: str, **params: Any) -> Message:
        """The result of a request. Raises Refused."""
        return result_of(await asyncio.wait_for(await self.begin(method, **params), WAIT_S))

    async def refused(self, method: str, **params: Any) -> Refused:
        """The error of a request that must be refused."""
        try:
            result = await self.call(method, **params)
        except Refused as error:
            return error
        raise AssertionError(f"{method} was not refused: {result}")

    async def event(self, method: str, *, after: int = 0, **params: Any) -> Message:
        """The first notification of this kind with these parameters from a place in `log` on, waited for."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for message in self.log[after:]:
                    if message["method"] == method and params.items() <= message["params"].items():
                        return message
                self._came.clear()
                await self._came.wait()

    async def ended(self, turn_id: str) -> Message:
        """The turn as `turn/completed` shows it."""
        async with asyncio.timeout(WAIT_S):
            while turn_id not in self._ended:
                self._came.clear()
                await self._came.wait()
        return self._ended[turn_id]

    async def turn(self, thread_id: str, text: str, **more: Any) -> Message:
        """Run a turn to its end."""
        started = await self.call("turn/start", threadId=thread_id, input=[{"type": "text", "text": text}], **more)
        return await self.ended(started["turn"]["id"])

    async def _read(self) -> None:
        while True:
            try:
                message = await self._transport.recv()
            except EOFError:
                return
            if "method" not in message:
                number = message["id"]
                self.answered.setdefault(number, []).append(len(self.log))
                if not self._answers[number].done():
                    self._answers[number].set_result(message)
                continue
            self.log.append(message)
            if message["method"] in ("turn/started", "turn/completed"):
                self._note_turn(message)
            self._came.set()
            if message["method"] == "item/tool/call":
                task = asyncio.create_task(self._run_tool(message))
                self._tools.add(task)
                task.add_done_callback(self._tools.discard)

    def _note_turn(self, message: Message) -> None:
        turn = message["params"]["turn"]
        self.turns.setdefault(message["params"]["threadId"], []).append((message["method"], turn["id"]))
        if message["method"] == "turn/completed":
            self._ended[turn["id"]] = turn

    async def _run_tool(self, request: Message) -> None:
        result = await self._tool(request)
        await self._transport.send({"id": request["id"], "result": result})


def result_of(message: Message) -> Message:
    """The result of an answer message. Raises Refused."""
    if "error" in message:
        raise Refused(message["error"])
    return cast(Message, message["result"])


class House:
    """A running daemon with its services, for looking behind the wire."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.services = cast(Services, shared.services)

    @property
    def store(self) -> Any:
        """The store of lasting threads."""
        return self.services.env.store

    def session(self, thread_id: str) -> Session:
        """A live session."""
        session = self.services.sessions.get(thread_id)
        assert session is not None, f"{thread_id} is not loaded"
        return session

    def serve_model(self, provider: ModelProvider) -> None:
        """Answer with this provider instead of the offline one."""
        self.services.env.providers._built["offline"] = provider

    def client(self, **options: Any) -> Client:
        """A further connection, to be entered."""
        return Client(self.shared, **options)


@asynccontextmanager
async def house(home: Path, provider: ModelProvider | None = None, **config: Any) -> AsyncIterator[House]:
    """A daemon on a home; it is closed in order at the end."""
    async with daemon(Config(**config), home) as shared:
        built = House(shared)
        if provider is not None:
            built.serve_model(provider)
        yield built


def as_after_a_crash(home: Path, target: Path) -> Path:
    """What a process that died this instant would leave behind: a copy of the home, without its locks."""
    shutil.copytree(home, target)
    return target


def user_texts(turn: Message) -> list[str]:
    """The texts of a turn's user messages."""
    return [
        "".join(part.get("text", "") for part in item["content"])
        for item in turn["items"]
        if item["type"] == "userMessage"
    ]
