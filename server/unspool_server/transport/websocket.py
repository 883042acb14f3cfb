"""WebSocket over TCP (`wire` §1): uvicorn speaks the protocol, `gate.py` decides who comes in.

`Listener` runs uvicorn inside this process on a socket that it is given; `unix.py` gives it another kind.
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.server import ServerState

from unspool_server.config_daemon import WebSocketOptions
from unspool_server.connection import Connection, Shared
from unspool_server.errors import RequestError, UnspoolError
from unspool_server.telemetry.exposition import exposition
from unspool_server.transport.frames import FrameConfig
from unspool_server.transport.framing import MAX_MESSAGE_BYTES
from unspool_server.transport.gate import LIVE, PRINCIPAL, READY, Gate, Rules
from unspool_server.transport.liveness import watch_by_kernel
from unspool_server.transport.pump import Incoming, pump

_FALSE_ALARM = "ASGI callable returned without completing handshake."
"""uvicorn says so, as an error, of every upgrade that was refused with a proper answer."""


def _is_alarm(record: logging.LogRecord) -> bool:
    return record.msg != _FALSE_ALARM


logging.getLogger("uvicorn.error").addFilter(_is_alarm)

_SHUTDOWN_S = 5
_CLOSE_S = 2
_WHY = {1012: "the server is shutting down", 1013: "too slow; go on from your cursors"}
"""Close codes of our own endings, for people who read their clients' logs. 1000 needs no words."""

_BINARY_REFUSED = "Invalid request: binary frames are not supported"


class ListenRefused(UnspoolError):
    """An address that the server will not listen on."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate (with its chain) and key, PEM files."""

    certificate: Path
    key: Path


def application(shared: Shared, rules: Rules) -> ASGIApp:
    """The ASGI application: any path upgrades, two paths tell that the server lives, one tells figures."""

    async def converse(websocket: WebSocket) -> None:
        if shared.lifecycle.draining:
            await websocket.send_denial_response(_draining())
            return
        await websocket.accept()
        await _serve(Connection(shared, websocket.scope[PRINCIPAL]), websocket)

    async def ready(request: Request) -> Response:
        return _draining() if shared.lifecycle.draining else Response()

    async def tell_figures(request: Request) -> Response:
        if request.scope[PRINCIPAL].tenant:
            return PlainTextResponse("figures are for the machine's owner, not for a tenant", status_code=403)
        body, content_type = exposition(shared.figures(), request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    routes = [
        Route(LIVE, _healthy, methods=["GET"]),
        Route(READY, ready, methods=["GET"]),
        Route("/metrics", tell_figures, methods=["GET"]),
        Route("/{path:path}", _not_an_upgrade, methods=["GET"]),
        WebSocketRoute("/{path:path}", converse),
    ]
    return Gate(Starlette(routes=routes), rules, shared.gatekeeper)


class Listener:
    """A running server on one socket. An async context manager; `close` ends every connection and awaits it."""

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        *,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        options: WebSocketOptions | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.address: Any = listening.getsockname()
        self._socket = listening
        config = FrameConfig(
            app,
            options or WebSocketOptions(),
            ws_max_size=max_message_bytes,
            lifespan="off",
            log_config=None,
            log_level=logging.INFO,  # below that headers are logged, and with them tokens
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            ssl_certfile=tls.certificate if tls is not None else None,
            ssl_keyfile=tls.key if tls is not None else None,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Accept connections from now on. Raises what the server failed with, if it could not start."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="websocket listener")
        up = asyncio.create_task(self._server.up.wait(), name="websocket listener start")
        await asyncio.wait({self._task, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self._task.done():
            self._socket.close()
            await self._task

    async def close(self) -> None:
        """Stop listening and end all connections."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._socket.close()

    @property
    def server_state(self) -> ServerState:
        """uvicorn's connections."""
        return self._server.server_state

    async def wait_closed(self) -> None:
        """Wait until the server has ended, for whatever reason."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def listen_tcp(
    shared: Shared,
    host: str,
    port: int,
    *,
    rules: Rules | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    options: WebSocketOptions | None = None,
    tls: Tls | None = None,
) -> Listener:
    """Bind an IP address; port 0 takes a free one, which `Listener.address` then tells. Not started yet.

    Args:
        rules: Who may come in; by default whoever is on this machine and no web page.

    Raises:
        ListenRefused: `host` is a name, or an address that others can reach while nobody is asked for a token; or the
            certificate cannot be used.
        OSError: The address is taken or not ours.
    """
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        raise ListenRefused(f"{host!r} is no IP address") from None
    rules = rules or Rules()
    if not ip.is_loopback and rules.verifier is None:
        raise ListenRefused(
            f"refusing to start non-loopback websocket listener {host}:{port} without auth; configure "
            "`--ws-auth capability-token` or `--ws-auth signed-bearer-token`"
        )
    if tls is not None:
        _check_tls(tls)
    family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit both: deltas leave at once, and peers that vanished are noticed.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch_by_kernel(listening)
        listening.bind((host, port))
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return Listener(
        application(shared, rules), listening, max_message_bytes=max_message_bytes, options=options, tls=tls
    )


def _check_tls(tls: Tls) -> None:
    """Refuse files that cannot be used before anything listens. The message holds nothing of what is in them."""
    for path in (tls.certificate, tls.key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise ListenRefused(f"cannot read {path}: {error.strerror}") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise ListenRefused(f"{tls.certificate} and {tls.key} are no certificate with its key") from error


class _Server(uvicorn.Server):
    """uvicorn as a part of a program that has its own signal handlers; tells when it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


async def _healthy(request: Request) -> Response:
    return Response()


def _draining() -> Response:
    return PlainTextResponse("the server is shutting down", status_code=503, headers={"retry-after": "1"})


async def _not_an_upgrade(request: Request) -> Response:
    return PlainTextResponse("Connection header did not include 'upgrade'", status_code=400)


async def _serve(connection: Connection, websocket: WebSocket) -> None:
    """One connection; each message is one text frame, in the order of the outbox."""

    async def read() -> Iterable[Incoming] | None:
        event = await websocket.receive()
        if event["type"] == "websocket.disconnect":
            return None
        text = event.get("text")
        if text is None:
            return (RequestError(_BINARY_REFUSED, data={"reason": "binaryFrame"}),)
        return (text,)

    async def write(batch: Sequence[bytes]) -> None:
        for body in batch:
            try:
                await websocket.send_text(body.decode())
            except (WebSocketDisconnect, RuntimeError) as error:
                raise ConnectionResetError("the client is gone") from error

    await pump(connection, read, write)
    # Our side may have ended it (a client too slow for its own policy). Whoever does not read gets no close frame.
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await websocket.close(connection.close_code, _WHY.get(connection.close_code))
