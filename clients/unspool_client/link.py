"""The connection's life: handshake, loss, and the way back.

A single task, the keeper, waits for the loss of a connection and makes the next one: handshake first, then the owner's
`resume`, and only then does `ready` give it out. Knows neither threads nor methods beside `initialize`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypedDict

from unspool_client.backoff import Backoff
from unspool_client.channels import ChannelFactory
from unspool_client.connection import Connection, OnMessage
from unspool_client.errors import ClientClosed, ClientError, ConnectFailed, ConnectionLost, RequestTimeout, RpcError

_log = logging.getLogger("unspool_client")


class ClientOptions(TypedDict, total=False):
    """Settings of every kind of client.

    name, version, title: Who the client is (`clientInfo`).
    timeout_s: How long a request may take, waiting for a reconnect included; 60 where not given. None: for ever.
    reconnect: How to reconnect; None: never. Sockets and custom channels reconnect by default, child processes do not.
    jsonrpc: Send the `jsonrpc` member.
    experimental: Ask for experimental methods and fields; on by default.
    opt_out: Names of notifications the server shall not send.
    answer_unhandled: Refuse server requests without a handler (see `RequestDesk`); on by default.
    buffer_events: How many events wait for a slow reader before it lags.
    """

    name: str
    version: str
    title: str | None
    timeout_s: float | None
    reconnect: Backoff | None
    jsonrpc: bool
    experimental: bool
    opt_out: Sequence[str]
    answer_unhandled: bool
    buffer_events: int


class LinkOwner:
    """What happens around the connections of a link; see `Link`.

    Attributes:
        resume: Bring a new connection to where the old one was, after the handshake. Raise `ConnectionLost` or
            `RequestTimeout` to have it dropped and another one made.
        lost: A connection is gone.
        failed: There will be no other one.
    """

    def __init__(
        self,
        *,
        on_notification: OnMessage,
        on_request: OnMessage,
        resume: Callable[[Connection], Awaitable[None]],
        lost: Callable[[], None],
        failed: Callable[[ClientError], None],
    ) -> None:
        self.on_notification, self.on_request = on_notification, on_request
        self.resume, self.lost, self.failed = resume, lost, failed


class Link:
    """One connection at a time to the same server, opened once and closed once."""

    def __init__(self, open_channel: ChannelFactory, options: ClientOptions, owner: LinkOwner) -> None:
        self._open_channel = open_channel
        self._options = options
        self._owner = owner
        self._backoff = options.get("reconnect", Backoff())
        self._connection: Connection | None = None
        self._failure: ClientError | None = ClientClosed("the client was not entered")
        self._changed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.timeout_s = options.get("timeout_s", 60.0)
        self.server: Mapping[str, Any] = {}

    @property
    def reconnects(self) -> bool:
        """Whether a lost connection is replaced."""
        return self._backoff is not None

    async def open(self) -> None:
        """Make the first connection.

        Raises:
            ConnectionLost, RpcError, RequestTimeout: It could not be made; no second attempt is.
        """
        if self._keeper is not None:
            raise ClientClosed("a client is entered once")
        self._connection = await self._connect()
        self._failure = None
        self._keeper = asyncio.create_task(self._keep(), name="unspool-client-keeper")

    async def close(self) -> None:
        """End the connection (and the child process) in order; waiting calls fail."""
        self._fail(ClientClosed("the client was closed"))
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self._connection is not None:
            await self._connection.close()

    async def ready(self) -> Connection:
        """The connection that is up, or the next one.

        Raises:
            ClientError: There is none and will be none.
        """
        while True:
            if self._failure is not None:
                raise self._failure
            if self._connection is not None and not self._connection.is_lost:
                return self._connection
            self._changed.clear()
            await self._changed.wait()

    def _fail(self, failure: ClientError) -> None:
        if self._failure is None:
            self._failure = failure
        self._changed.set()
        self._owner.failed(failure)

    async def _keep(self) -> None:
        while True:
            connection = self._connection
            assert connection is not None
            await connection.wait_lost()
            self._owner.lost()
            await connection.close()
            _log.info("connection lost: %s", connection.reason)
            if self._backoff is None:
                self._fail(ConnectionLost(connection.reason))
                return
            try:
                self._connection = await self._reconnect(self._backoff, connection.reason)
            except ClientError as error:
                self._fail(error)
                return
            except Exception as error:
                # A channel factory of the caller may raise anything; nobody else would ever hear of it.
                _log.exception("reconnecting failed")
                self._fail(ConnectionLost(f"reconnecting failed: {error}"))
                return
            self._changed.set()

    async def _reconnect(self, backoff: Backoff, reason: str) -> Connection:
        last: Exception = ConnectionLost(reason)
        for pause_s in backoff.pauses():
            await asyncio.sleep(pause_s)
            try:
                connection = await self._connect()
            except ConnectFailed as error:
                if not error.retryable:
                    raise
                last = error
                continue
            except (ConnectionLost, RpcError, RequestTimeout) as error:
                last = error
                continue
            try:
                await self._owner.resume(connection)
                return connection
            except (ConnectionLost, RequestTimeout) as error:
                last = error
                self._owner.lost()
            except BaseException:
                await connection.close()
                raise
            await connection.close()
        raise ConnectionLost(f"{reason}; reconnecting failed: {last}") from last

    async def _connect(self) -> Connection:
        """Open a channel and shake hands on it (`wire` §3)."""
        try:
            channel = await self._open_channel()
        except OSError as error:
            raise ConnectFailed(f"cannot connect: {error}") from error
        connection = Connection(
            channel,
            on_notification=self._owner.on_notification,
            on_request=self._owner.on_request,
            jsonrpc=self._options.get("jsonrpc", False),
        )
        try:
            async with asyncio.timeout(self.timeout_s):
                self.server = await connection.call("initialize", self._introduction())
                await connection.notify("initialized")
        except TimeoutError as error:
            await connection.close()
            raise RequestTimeout("initialize: no answer in time") from error
        except BaseException:
            await connection.close()
            raise
        return connection

    def _introduction(self) -> dict[str, Any]:
        options = self._options
        info = {"name": options.get("name", "unspool_client"), "version": options.get("version", "0.1.0")}
        title = options.get("title")
        capabilities: dict[str, Any] = {"experimentalApi": options.get("experimental", True)}
        if opt_out := options.get("opt_out"):
            capabilities["optOutNotificationMethods"] = list(opt_out)
        return {"clientInfo": info if title is None else {**info, "title": title}, "capabilities": capabilities}
