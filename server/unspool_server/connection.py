"""One client: handshake, dialect, requests in flight, answers owed, outbox (`wire` §2, §3).

Rules that hold whatever the transport:

- Every request gets exactly one answer, and so does every message that is none: the error's id is null where no id
  could be read. Notifications and answers are never answered.
- `initialize` is answered here, at once; nothing heavy is imported for it (DESIGN §8).
- Requests start in the order of their arrival, each in a task of its own that `close` ends and awaits.
- Too many requests in flight: the next one is refused at once. Too much unsent: `ready` holds the reader back, so that
  nothing has to be dropped.

Bytes and frames belong to `transport/`, methods to `handlers/`.
"""

import asyncio
import contextlib
import itertools
import logging
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from unspool_protocol.startup import ClientCapabilities, InitializeParams, InitializeResult

from unspool_server import __version__
from unspool_server.access.gatekeeper import Gatekeeper
from unspool_server.access.principal import OWNER, Principal, Scope
from unspool_server.connection_stage import Move, Stage, next_stage
from unspool_server.envelope import (
    Answer,
    Malformed,
    MessageId,
    Notification,
    Request,
    encode,
    error_message,
    parse,
    result_message,
)
from unspool_server.errors import (
    AlreadyInitialized,
    NotInitialized,
    Overloaded,
    RequestError,
    ShuttingDown,
)
from unspool_server.events.outbox import Outbox
from unspool_server.events.slow import SlowClient
from unspool_server.handlers.context import Peer, RequestContext
from unspool_server.lifecycle import Lifecycle
from unspool_server.params import shorten, validate
from unspool_server.rpc import Dispatcher, refuse
from unspool_server.telemetry import metrics
from unspool_server.telemetry.instruments import Sample
from unspool_server.telemetry.logs import event
from unspool_server.telemetry.scope import bound

_log = logging.getLogger("unspool.connection")

CODEX_VERSION = "0.171.0"
"""The protocol version that clients read out of `userAgent`; they refuse older ones (`wire` §3)."""

MAX_IN_FLIGHT = 128
"""Requests of one connection that run at once; the reference refuses from about the 145th on (`wire` §2)."""

MAX_UNSENT_BYTES = 16 * 1024 * 1024
"""Answers and events that may wait for one client before its requests are no longer read. Large enough for clients
that write some ten thousand requests before they read the first answer."""


TOO_SLOW_CODE = 1013
"""The WebSocket close code of a client that was too slow: try again later, from the cursors that it was told."""


class Hub(Protocol):
    """What connections ask of the event fan-out (`events.hub`)."""

    def register(self, peer: Peer) -> None:
        """A connection was initialised: it gets broadcasts from now on."""

    def greet(self, peer: Peer) -> None:
        """The answer to its `initialize` is out: tell it what is due right after it."""

    def drop(self, peer: Peer) -> None:
        """A connection is gone: its subscriptions end. Also called for one that was never registered."""

    def answer(self, peer: Peer, request_id: MessageId, message: Mapping[str, Any]) -> bool:
        """A client answered a server request; False when it answers none that is pending for it (`wire` §6)."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of a process have in common.

    Attributes:
        services: Handed to handlers untouched.
        home: Reported as `codexHome`.
        lifecycle: Whether the daemon goes on.
        figures: The daemon's figures that are looked up when somebody asks for them.
        connections: All that are open, also before their handshake.
    """

    dispatcher: Dispatcher
    hub: Hub
    home: Path
    services: Any = None
    max_in_flight: int = MAX_IN_FLIGHT
    max_unsent_bytes: int = MAX_UNSENT_BYTES
    new_outbox: Callable[[], Outbox] = Outbox
    gatekeeper: Gatekeeper = field(default_factory=Gatekeeper)
    ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    figures: Callable[[], Iterable[Sample]] = tuple
    connections: "set[Connection]" = field(default_factory=set)


class Connection:
    """One client of the server, as a `Peer` for handlers and events. Lives on one event loop.

    A transport calls `receive` for each message after awaiting `ready`, sends what `take` gives, and ends with
    `end_input` (optional) and `close`.

    Args:
        principal: Who was let in; by default whoever needs no token.
    """

    def __init__(self, shared: Shared, principal: Principal = OWNER) -> None:
        self.id = next(shared.ids)
        self.principal = principal
        self._meter = shared.gatekeeper.meter(principal)
        self.outbox = shared.new_outbox()
        self.opted_out: frozenset[str] = frozenset()
        self.experimental = False
        self.client_name = ""
        self.client_version = ""
        self.slow_client: SlowClient = "coalesce"
        self.turn_completed_first = False
        self._shared = shared
        self._stage = Stage.NEW
        self._greeted = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._drained = asyncio.Event()
        self._gone = asyncio.Event()
        self._began = time.monotonic()
        self.close_code = 1000
        shared.connections.add(self)
        self._given_up = asyncio.Event()

    @property
    def stage(self) -> Stage:
        """Where the connection stands."""
        return self._stage

    @property
    def initialized(self) -> bool:
        """Whether `initialize` was answered and the connection still stands."""
        return self._greeted and self._stage is not Stage.CLOSED

    @property
    def in_flight(self) -> int:
        """Requests that are owed an answer."""
        return len(self._tasks)

    def receive(self, message: bytes | str) -> None:
        """Take one message. Never raises for anything that a client can send; the answer goes to the outbox."""
        if self._stage is Stage.CLOSED:
            return
        match parse(message):
            case Request(method="initialize") as request:
                self._initialize(request)
            case Request() as request:
                self._start(request)
            case Answer(id=request_id, message=body):
                if request_id is not None and self.initialized and self.principal.may(Scope.WRITE):
                    self._shared.hub.answer(self, request_id, body)
            case Malformed() as bad:
                self.reject(RequestError(bad.message, data={"reason": bad.reason}, code=bad.code), bad.id)
            case Notification():
                pass  # `initialized` changes nothing: requests are served before it, as by the reference (`wire` §3)

    def reject(self, error: RequestError, request_id: MessageId | None = None) -> None:
        """Answer something that is no request (a frame too long, not text, not JSON)."""
        metrics.REFUSALS.add(str(error.data["reason"]))
        self._put(encode(error_message(request_id, error.code, error.message, error.data)))

    async def ready(self) -> None:
        """Wait until one more message may be read: not more than `max_unsent_bytes` wait to be sent.

        While many requests are running they get a chance to finish first. Returns at once on a closed connection.
        """
        if len(self._tasks) * 2 > self._shared.max_in_flight:
            await asyncio.sleep(0)
        while self._stage is not Stage.CLOSED and self.outbox.waiting_bytes > self._shared.max_unsent_bytes:
            self._drained.clear()
            await self._drained.wait()

    async def take(self) -> list[bytes]:
        """Wait for messages to be sent and take them all; an empty list means that none will follow."""
        batch = await self.outbox.get()
        self._drained.set()
        return batch

    def give_up(self, last_words: bytes) -> None:
        """Send what is queued and this, then nothing: the client is too slow, and asked to be disconnected then."""
        self._put(last_words)
        self.outbox.close()
        self.close_code = TOO_SLOW_CODE
        self._given_up.set()

    async def given_up(self) -> None:
        """Wait until `give_up` was called, if ever."""
        await self._given_up.wait()

    async def end_input(self, timeout_s: float) -> None:
        """The client sends nothing more: finish what it asked for, then let the outbox run dry.

        Requests that are not done in time are cancelled; their answers say so.
        """
        if self._stage is not Stage.ENDING:
            await self._finish(timeout_s)

    async def _finish(self, timeout_s: float, farewell: Callable[[], bytes | None] = lambda: None) -> None:
        self._stage = next_stage(self._stage, Move.END_INPUT)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        await self._cancel_tasks()
        last = farewell()
        if last is not None:
            self._put(last)
        self.outbox.close()

    async def wind_up(self, farewell: Callable[[], bytes | None], *, timeout_s: float, close_code: int) -> None:
        """The server ends the connection: requests that came get their answers, then the client its last message.

        Requests that come meanwhile are refused. What the client was sent can still be taken.

        Args:
            farewell: Makes the last message, when everything else is said; None: there is none.
            close_code: What a WebSocket is closed with.
        """
        if self._stage in (Stage.ENDING, Stage.CLOSED):
            return
        self.close_code = close_code
        await self._finish(timeout_s, farewell)

    async def wait_closed(self, timeout_s: float) -> None:
        """Wait until the transport has ended the connection, but no longer than that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._gone.wait()

    async def close(self) -> None:
        """End the connection: subscriptions, running requests, outbox. May be called again."""
        if self._stage is not Stage.CLOSED:
            self._stage = next_stage(self._stage, Move.CLOSE)
            self._shared.connections.discard(self)
            self._shared.hub.drop(self)
            if self._greeted:
                age = round(time.monotonic() - self._began, 3)
                event(_log, "connection closed", connection=self.id, duration_s=age)
        await self._cancel_tasks()
        self.outbox.close()
        self._drained.set()
        self._gone.set()

    def _initialize(self, request: Request) -> None:
        try:
            if self._stage is not Stage.NEW:
                raise AlreadyInitialized
            self.outbox.jsonrpc = request.jsonrpc
            params = validate(InitializeParams, request.params)
        except RequestError as error:
            self._put(refuse(request, error))
            return
        capabilities = params.capabilities or ClientCapabilities()
        self.client_name, self.client_version = params.client_info.name, params.client_info.version
        self.experimental = capabilities.experimental_api
        self.opted_out = frozenset(capabilities.opt_out_notification_methods or ())
        self.slow_client = capabilities.slow_client or "coalesce"
        self.turn_completed_first = capabilities.turn_completed_first
        self._stage = next_stage(self._stage, Move.INITIALIZE)
        self._greeted = True
        self._put(encode(result_message(request.id, self._greeting())))
        self._shared.hub.register(self)
        self._shared.hub.greet(self)
        metrics.CONNECTIONS_OPENED.add()
        event(_log, "connection opened", connection=self.id, client=shorten(self.client_name))

    def _greeting(self) -> Mapping[str, Any]:
        result = InitializeResult(
            user_agent=user_agent(self.client_name, self.client_version),
            codex_home=str(self._shared.home),
            platform_family="windows" if sys.platform == "win32" else "unix",
            platform_os={"darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform),
        )
        return result.model_dump(by_alias=True, mode="json")

    def _start(self, request: Request) -> None:
        """Begin a request, or refuse it at once: outside of handshake and end, and when too many are running."""
        try:
            if self._stage is Stage.NEW:
                raise NotInitialized
            if self._stage is Stage.ENDING:
                raise ShuttingDown
            self._meter.admit()
            if len(self._tasks) >= self._shared.max_in_flight:
                raise Overloaded
        except RequestError as error:
            self._put(refuse(request, error))
        else:
            task = asyncio.get_running_loop().create_task(
                self._serve(request), name=f"connection {self.id} {request.method}"
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, request: Request) -> None:
        """Serve one request; the answer, then what was to follow it."""
        followers: list[Callable[[], None]] = []
        context = RequestContext(self, self._shared.services, followers.append)
        try:
            with bound(connection=self.id, request=_short_id(request), **_about(request)):
                self._put(await self._shared.dispatcher.answer(request, context))
        except asyncio.CancelledError:
            cancelled = RequestError("request was cancelled", data={"reason": "cancelled"})
            self._put(refuse(request, cancelled))
            raise
        finally:
            for follow in followers:
                _run_follower(follow)

    def _put(self, body: bytes) -> None:
        self.outbox.put(body)

    async def _cancel_tasks(self) -> None:
        while tasks := self._tasks - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._tasks -= tasks


def user_agent(client_name: str, client_version: str) -> str:
    """`NAME/0.171.0 (SYSTEM; MACHINE) unspool/VERSION (NAME; CLIENTVERSION)`.

    Clients take what stands between the first slash and the next blank for the version (`wire` §3), so a slash in the
    name gives way.
    """
    name = client_name.replace("/", "_")
    system = f"{platform.system()} {platform.release()}; {platform.machine()}"
    return f"{name}/{CODEX_VERSION} ({system}) unspool/{__version__} ({name}; {client_version})"


def _about(request: Request) -> Mapping[str, str]:
    """What log lines and traces say of a request: its method, and the thread and turn that it names."""
    params = request.params if isinstance(request.params, Mapping) else {}
    named = {"thread": params.get("threadId"), "turn": params.get("turnId")}
    known = {name: shorten(value) for name, value in named.items() if isinstance(value, str)}
    return {"method": shorten(request.method), **known}


def _short_id(request: Request) -> int | str:
    return shorten(request.id) if isinstance(request.id, str) else request.id


def _run_follower(follow: Callable[[], None]) -> None:
    """A follower's failure must not keep the others from running; the answer is out already."""
    try:
        follow()
    except Exception:
        _log.exception("a call after an answer failed")
