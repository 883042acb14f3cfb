"""The client: one daemon, any number of threads, over a connection that mends itself.

Owns calls and the feeds of threads. After a reconnect every thread is resumed after the last event that was taken,
before calls go on. The connection's own life is in `link`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from unspool_protocol.base import WireModel
from unspool_protocol.methods import METHODS
from unspool_protocol.requests import COMMAND_APPROVAL
from unspool_protocol.startup import Model
from unspool_protocol.threads import Thread

from unspool_client.approvals import Decide, approval_handler
from unspool_client.channels import Channel, ChannelFactory
from unspool_client.connection import Connection, OnResult
from unspool_client.desk import RequestDesk, RequestHandler
from unspool_client.errors import (
    ClientClosed,
    ClientError,
    ConnectionLost,
    Overloaded,
    RequestTimeout,
    RpcError,
)
from unspool_client.event import Event
from unspool_client.feed import BUFFER_EVENTS, EventStream, Feed
from unspool_client.link import ClientOptions, Link, LinkOwner
from unspool_client.shapes import key, method_of, params_of, wire_shape
from unspool_client.sockets import open_socket
from unspool_client.stdio import StderrSink, open_stdio
from unspool_client.thread import ThreadHandle
from unspool_client.tokens import find_token

_log = logging.getLogger("unspool_client")
_Result = TypeVar("_Result", bound=WireModel)

REPEATABLE = frozenset(
    {
        "thread/resume",
        "thread/subscribe",
        "thread/unsubscribe",
        "thread/read",
        "thread/list",
        "thread/loaded/list",
        "thread/turns/list",
        "thread/items/list",
        "thread/goal/get",
        "thread/backgroundTerminals/list",
        "model/list",
        "account/read",
        "config/read",
        "configRequirements/read",
        "getAuthStatus",
    }
)
"""Methods that change nothing, or nothing more the second time: sent again after a reconnect. Others might have been
carried out, so they fail with `ConnectionLost(maybe_executed=True)`, unless they have an `idempotency_key`."""

_RESUBSCRIBE_TRIES = 5


def _may_repeat(method: str, params: Mapping[str, Any] | None) -> bool:
    """Whether a call may be sent again although it was perhaps carried out: it changes nothing, or it has a key."""
    return method in REPEATABLE or (params or {}).get("idempotencyKey") is not None


class Client:
    """A client of one daemon; enter it with `async with`.

    Make one with `Client.stdio`, `Client.connect` or `Client.over`.
    """

    def __init__(self, open_channel: ChannelFactory, **options: Unpack[ClientOptions]) -> None:
        self._options = options
        self._desk = RequestDesk(answer_unhandled=options.get("answer_unhandled", True))
        self._feeds: dict[str, Feed] = {}
        self._listeners: list[Callable[[Event], None]] = []
        owner = LinkOwner(
            on_notification=self._take_notification,
            on_request=self._desk.take,
            resume=self._resume,
            lost=self._lost,
            failed=self._failed,
        )
        self._link = Link(open_channel, options, owner)

    @property
    def server(self) -> Mapping[str, Any]:
        """What the server answered to `initialize`."""
        return self._link.server

    @classmethod
    def stdio(
        cls,
        command: Sequence[str] | None = None,
        *,
        home: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stderr: StderrSink | None = None,
        grace_s: float = 5.0,
        **options: Unpack[ClientOptions],
    ) -> Self:
        """A daemon of one's own as a child process, ended with the client (see `open_stdio`)."""
        options.setdefault("reconnect", None)
        return cls(lambda: open_stdio(command, home=home, env=env, cwd=cwd, stderr=stderr, grace_s=grace_s), **options)

    @classmethod
    def connect(
        cls,
        url: str,
        token: str | None = None,
        *,
        token_file: str | Path | None = None,
        home: str | Path | None = None,
        **options: Unpack[ClientOptions],
    ) -> Self:
        """A running daemon at `ws://…`, `wss://…` or `unix:///path`.

        Args:
            token: Without it `token_file` is read, else `UNSPOOL_TOKEN`, else, for a daemon on this machine, the token
                that it keeps in its home; anew for each connection.
            home: The daemon's home, where it is not the usual one.
        """

        def found() -> str | None:
            return token if token is not None else find_token(url, token_file=token_file, home=home)

        async def open_channel() -> Channel:
            return await open_socket(url, token=found())

        return cls(open_channel, **options)

    @classmethod
    def over(cls, open_channel: ChannelFactory, **options: Unpack[ClientOptions]) -> Self:
        """A daemon behind channels of the caller's making, for example one in the same process."""
        return cls(open_channel, **options)

    async def __aenter__(self) -> Self:
        await self._link.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection (and the child process) in order. Event streams end, waiting calls fail."""
        await self._link.close()
        await self._desk.close()

    # Calls

    async def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        on_result: OnResult | None = None,
    ) -> dict[str, Any]:
        """Send a request by name with raw params, give the raw result.

        Args:
            timeout_s: Instead of the client's own timeout.
            on_result: Called with the result before any later message is looked at.

        Raises:
            RpcError: The server refused.
            ConnectionLost: See `REPEATABLE`.
            RequestTimeout: No answer in time.
        """
        row = METHODS.get(method)
        if params is None and (row is None or row.params is not None):
            params = {}  # null is refused except by methods without params (`wire` §2)
        try:
            async with asyncio.timeout(self._link.timeout_s if timeout_s is None else timeout_s):
                while True:
                    connection = await self._link.ready()
                    try:
                        return await connection.call(method, params, on_result=on_result)
                    except ConnectionLost as error:
                        if not self._link.reconnects or (error.maybe_executed and not _may_repeat(method, params)):
                            raise
                        await connection.wait_lost()
        except TimeoutError as error:
            raise RequestTimeout(f"{method}: no answer in time") from error

    async def request(self, params: WireModel, result: type[_Result], *, timeout_s: float | None = None) -> _Result:
        """Send a request by its params model: `await client.request(ThreadReadParams(thread_id=…), ThreadReadResult)`.

        Raises:
            TypeError: No method has these models.
            pydantic.ValidationError: The server's result has another shape.
        """
        method = method_of(type(params), result)
        return result.model_validate(await self.call(method, wire_shape(params), timeout_s=timeout_s))

    def on_request(self, method: str, handler: RequestHandler) -> None:
        """Answer the server's requests of this name, for example `item/tool/call`."""
        self._desk.handle(method, handler)

    def on_command_approval(self, decide: Decide) -> None:
        """Decide whether commands may run. Without this they are refused, unless `answer_unhandled` is off."""
        self._desk.handle(COMMAND_APPROVAL, approval_handler(decide))

    def on_notification(self, listener: Callable[[Event], None]) -> None:
        """See every notification as it comes in, of any thread or none, repeats after a reconnect included."""
        self._listeners.append(listener)

    # Threads

    async def start_thread(self, **params: Any) -> ThreadHandle:
        """Start a thread; arguments are the fields of `ThreadStartParams`."""
        return await self._enter_thread("thread/start", params_of("thread/start", params), backlog=True)

    async def resume_thread(self, thread_id: str, **params: Any) -> ThreadHandle:
        """Open a thread and follow it; arguments are the fields of `ThreadResumeParams`.

        Turns are left out of the answer (`thread.turns()` pages through them) unless `exclude_turns=False` is given.
        """
        given = {"exclude_turns": True, **params, "thread_id": thread_id}
        return await self._enter_thread("thread/resume", params_of("thread/resume", given))

    async def subscribe(
        self,
        thread_id: str,
        after: str | None = "now",
        *,
        item_kinds: Sequence[str] | None = None,
        speed: str | float | None = None,
    ) -> EventStream:
        """Watch a thread without loading it or keeping it loaded; reading goes on across reconnects and unloads.

        Args:
            after: A cursor; None for the thread's beginning; `"now"` for what comes from this call on.
            item_kinds: Of the past, only `item/…` events about these types of items.
            speed: How the past comes: `max` (the default), `real`, a factor, or `step` (then `step_replay` lets it go
                on). An event `thread/replay/completed` follows the last of it, and whenever a gap was filled.

        Raises:
            ValueError: Options for a thread that this client follows already: others read its events as well.
        """
        options = {name: given for name, given in (("itemKinds", item_kinds), ("speed", speed)) if given is not None}
        known = self._feeds.get(thread_id)
        if known is not None and known.open:
            if options:
                raise ValueError("this client follows the thread already; its past comes to all readers alike")
            return known.stream(after)
        feed = Feed(thread_id, self._catch_up, limit=self._options.get("buffer_events", BUFFER_EVENTS))
        feed.method, feed.options = "thread/subscribe", options
        opened: list[EventStream] = []

        def enter(result: Mapping[str, Any]) -> None:
            self._feeds[thread_id] = feed
            feed.attach(result["cursor"] if after == "now" else after)
            opened.append(feed.follower(feed.place))

        params = {"threadId": thread_id} if after == "now" else feed.request(after)
        await self.call("thread/subscribe", params, on_result=enter)
        return opened[0]

    async def step_replay(self, thread_id: str, count: int = 1) -> int:
        """Let a replay with `speed="step"` go on by so many events; gives 0 when it is over."""
        result = await self.call("thread/replay/next", {"threadId": thread_id, "count": count})
        return int(result["granted"])

    async def unsubscribe(self, thread_id: str) -> str:
        """Stop following a thread; its event streams end. Gives what the subscription was."""
        status = str((await self.call("thread/unsubscribe", {"threadId": thread_id}))["status"])
        feed = self._feeds.get(thread_id)
        if feed is not None:
            feed.end()
        return status

    async def fork_thread(self, thread_id: str, **params: Any) -> ThreadHandle:
        """Start a thread from another's past; arguments are the fields of `ThreadForkParams`."""
        given = {"exclude_turns": True, **params, "thread_id": thread_id}
        return await self._enter_thread("thread/fork", params_of("thread/fork", given))

    async def read_thread(self, thread_id: str, *, include_turns: bool = False) -> Thread:
        """Read a thread without opening or following it."""
        result = await self.call("thread/read", {"threadId": thread_id, "includeTurns": include_turns})
        return Thread.model_validate(result["thread"])

    async def list_threads(self, **filters: Any) -> AsyncIterator[Thread]:
        """All threads that pass the filters (fields of `ThreadListParams`), fetched page by page."""
        async for entry in self.pages("thread/list", params_of("thread/list", filters)):
            yield Thread.model_validate(entry)

    async def archive(self, thread_id: str, *, idempotency_key: str | None = None) -> None:
        """Put a thread into the archive."""
        await self.call("thread/archive", {"threadId": thread_id, **key(idempotency_key)})

    async def unarchive(self, thread_id: str, *, idempotency_key: str | None = None) -> Thread:
        """Take a thread out of the archive."""
        params = {"threadId": thread_id, **key(idempotency_key)}
        return Thread.model_validate((await self.call("thread/unarchive", params))["thread"])

    async def delete(self, thread_id: str, *, idempotency_key: str | None = None) -> None:
        """Remove a thread's files."""
        await self.call("thread/delete", {"threadId": thread_id, **key(idempotency_key)})

    async def models(self, *, include_hidden: bool = False) -> list[Model]:
        """The models that turns can run on."""
        entries = self.pages("model/list", {"includeHidden": include_hidden})
        return [Model.model_validate(entry) async for entry in entries]

    async def pages(self, method: str, params: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        """The entries of all pages of a listing method."""
        cursor = params.get("cursor")
        while True:
            page = await self.call(method, params if cursor is None else {**params, "cursor": cursor})
            for entry in page["data"]:
                yield entry
            following = page.get("nextCursor")
            if following is None or following == cursor:
                return
            cursor = following

    async def _enter_thread(self, method: str, params: Mapping[str, Any], *, backlog: bool = False) -> ThreadHandle:
        entered: list[Feed] = []

        def enter(result: Mapping[str, Any]) -> None:
            thread_id = result["thread"]["id"]
            known = self._feeds.get(thread_id)
            if known is not None:
                known.method = "thread/resume"
            feed = known or Feed(
                thread_id, self._catch_up, backlog=backlog, limit=self._options.get("buffer_events", BUFFER_EVENTS)
            )
            self._feeds[thread_id] = feed
            # A thread that is followed already keeps its place; only a replay of events moves the subscription.
            if not feed.attached or _replays_events(params):
                feed.attach(_place(result, params))
            entered.append(feed)

        result = await self.call(method, params, on_result=enter)
        return ThreadHandle(self, entered[0], result)

    async def _catch_up(self, feed: Feed, stream: EventStream) -> None:
        """Make the server send everything behind a lagging reader's place (see `feed`)."""
        async with feed.lock:
            if not stream.lagging:
                return
            if feed.covers(stream.place):
                stream.follow()
                return
            after = stream.place

            def attach(_: Mapping[str, Any]) -> None:
                feed.attach(after)
                stream.follow()

            await self.call(feed.method, feed.request(after), on_result=attach)

    # The connection's life

    async def _resume(self, connection: Connection) -> None:
        for feed in [feed for feed in self._feeds.values() if feed.open]:
            await self._resubscribe(connection, feed)

    def _lost(self) -> None:
        for feed in self._feeds.values():
            feed.detach()

    def _failed(self, failure: ClientError) -> None:
        for feed in self._feeds.values():
            feed.end(None if isinstance(failure, ClientClosed) else failure)

    async def _resubscribe(self, connection: Connection, feed: Feed) -> None:
        after = feed.place

        def attach(result: Mapping[str, Any]) -> None:
            # Without a place there is nothing to replay after; a backlog began with the thread.
            place = after if after is not None or feed.from_the_start else _place(result, {})
            feed.attach(place, again=True)

        params = feed.request(after)
        if after is None and not feed.from_the_start:
            del params["replay"]
        for attempt in range(_RESUBSCRIBE_TRIES):
            try:
                async with asyncio.timeout(self._link.timeout_s):
                    await connection.call(feed.method, params, on_result=attach)
                return
            except Overloaded as error:
                if attempt + 1 == _RESUBSCRIBE_TRIES:
                    raise ConnectionLost(f"{feed.method}: {error}") from error
                await asyncio.sleep(0.05 * 2**attempt)
            except TimeoutError as error:
                raise RequestTimeout(f"{feed.method}: no answer in time") from error
            except RpcError as error:
                # The server cannot give this thread back (deleted, archived, never recorded): its readers are told.
                feed.end(error)
                return

    def _take_notification(self, _: Connection, message: dict[str, Any]) -> None:
        event = Event.of(message)
        if event.method == "serverRequest/resolved" and not event.replayed:
            self._desk.resolved(event.params.get("requestId"))
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                # The boundary of foreign code: the reader must go on.
                _log.exception("a listener failed on %s", event.method)
        feed = self._feeds.get(event.thread_id) if event.thread_id is not None else None
        if feed is not None and feed.open:
            feed.take(event)


def _place(result: Mapping[str, Any], params: Mapping[str, Any]) -> str | None:
    """Where a thread's events go on after start, resume or fork."""
    place = params["replay"].get("after") if _replays_events(params) else result.get("cursor")
    return place if isinstance(place, str) else None


def _replays_events(params: Mapping[str, Any]) -> bool:
    replay = params.get("replay")
    return isinstance(replay, Mapping) and replay.get("mode") != "snapshot"
