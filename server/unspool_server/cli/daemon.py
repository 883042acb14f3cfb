"""The composition root: configuration, stores, sessions, events and transports put together, started and ended.

The only place that knows all rooms. Heavy libraries are imported with the first request or listener, never before the
handshake (DESIGN §8).
"""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from unspool_protocol.cursors import EventCursor

from unspool_server import __version__
from unspool_server.access.gatekeeper import Gatekeeper
from unspool_server.access.paths import AllowedPaths
from unspool_server.cli.descriptors import allow_many_descriptors
from unspool_server.cli.options import ServerOptions
from unspool_server.config import Config
from unspool_server.config_base import ConfigError
from unspool_server.config_file import load_config, resolve_home
from unspool_server.connection import Connection, Shared
from unspool_server.events.hub import Hub
from unspool_server.events.replay import LogReplay
from unspool_server.events.subscription import LoggedEvent
from unspool_server.handlers.context import Handler
from unspool_server.handlers.door import Door
from unspool_server.history.client_view import ClientView
from unspool_server.history.summary import summarise
from unspool_server.lifecycle import Lifecycle
from unspool_server.mcp.servers import McpServers
from unspool_server.model.registry import Providers
from unspool_server.rpc import Dispatcher
from unspool_server.sessions.environment import Environment
from unspool_server.sessions.registry import Sessions
from unspool_server.sessions.repeats.home_calls import HomeCalls
from unspool_server.sessions.tools.mcp import show_startup
from unspool_server.store import LocalStore, MemoryStore, StoreCatalogue
from unspool_server.store.call_journal import LocalJournal
from unspool_server.telemetry import logs, metrics, traces
from unspool_server.telemetry.instruments import Sample

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

logger = logging.getLogger("unspool")


class _ReplayByThread:
    """Replays a thread's events from the store that holds its log."""

    def __init__(self, hub: Hub, sessions: Sessions) -> None:
        self._sessions = sessions
        env = sessions.env
        self._lasting = LogReplay(env.store, ClientView, encoder=hub.encoder)
        self._ephemeral = LogReplay(env.ephemeral, ClientView, encoder=hub.encoder)

    def _of(self, thread_id: str) -> LogReplay:
        session = self._sessions.get(thread_id)
        return self._ephemeral if session is not None and session.facts.ephemeral else self._lasting

    async def check_cursor(self, thread_id: str, cursor: EventCursor) -> None:
        """See `LogReplay.check_cursor`."""
        await self._of(thread_id).check_cursor(thread_id, cursor)

    def events_after(
        self,
        thread_id: str,
        after: EventCursor | None,
        *,
        whole_since: str | None = None,
        at_rest: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[LoggedEvent, None]:
        """See `LogReplay.events_after`."""
        return self._of(thread_id).events_after(thread_id, after, whole_since=whole_since, at_rest=at_rest)


def _table() -> Mapping[str, Handler]:
    from unspool_server.handlers.table import build

    return build()


@asynccontextmanager
async def daemon(config: Config, home: Path, *, lifecycle: Lifecycle | None = None) -> AsyncIterator[Shared]:
    """Everything that connections share, ready to serve; afterwards sessions end, then the stores close."""
    from unspool_server.handlers.services import Services

    store, ephemeral = LocalStore(home, durable=config.history.durability == "synced"), MemoryStore()
    catalogue = StoreCatalogue.local(store, summarise, home)
    hub = Hub(
        ring_events=config.history.retained_events,
        max_subscriptions=config.limits.subscriptions_per_connection,
        slow_limit_bytes=config.history.slow_client_bytes,
    )
    mcp = McpServers(str(Path.cwd()), partial(show_startup, hub))
    lifecycle, connections = lifecycle or Lifecycle(), set[Connection]()
    providers = Providers(config, home=home)
    env = Environment(config, home, store, ephemeral, catalogue, providers, hub, mcp, lifecycle=lifecycle)
    sessions = Sessions(env)
    calls = HomeCalls(sessions, LocalJournal(home, durable=config.history.durability == "synced"))
    hub.replay = _ReplayByThread(hub, sessions)
    hub.on_unsubscribed = sessions.watch_idle
    hub.tenant_of = sessions.tenant_known
    paths = AllowedPaths((home, *config.access.allowed_paths))

    def figures() -> Iterable[Sample]:
        yield Sample(metrics.BUILD, 1, (__version__,))
        yield Sample(metrics.STARTED_AT, lifecycle.started_at)
        yield Sample(metrics.DRAINING, lifecycle.draining)
        yield Sample(metrics.CONNECTIONS, len(connections))
        yield Sample(metrics.IN_FLIGHT, sum(one.in_flight for one in connections))
        for room in (sessions, hub, store, ephemeral):
            yield from room.figures()

    shared = Shared(
        Dispatcher(_table, door=Door(sessions, paths), ending=lambda: sessions.closing),
        hub,
        home,
        Services(sessions, hub, env, calls, AllowedPaths(config.access.allowed_paths), figures),
        lifecycle=lifecycle,
        figures=figures,
        connections=connections,
        max_in_flight=config.limits.requests_in_flight,
        max_unsent_bytes=config.limits.unsent_bytes,
        gatekeeper=Gatekeeper(config.limits),
    )
    try:
        yield shared
    finally:
        await sessions.close()
        await mcp.close()
        await hub.close()
        await catalogue.close()
        await env.providers.close()
        await store.close()
        await ephemeral.close()


@asynccontextmanager
async def local_daemon(options: ServerOptions) -> AsyncIterator[Shared]:
    """A daemon inside this process, for commands that need no running server."""
    config, home = configured(options)
    async with daemon(config, home) as shared:
        yield shared


def configured(options: ServerOptions) -> tuple[Config, Path]:
    """The configuration and home that the options amount to; warnings go to the log. Raises ConfigError."""
    home = resolve_home(options.home)
    config, warnings = load_config(
        home, file=options.config_file, overrides=options.overrides, strict=options.strict_config
    )
    logs.install(config.logging, quiet=options.listen.kind in ("stdio", "off"))
    for warning in warnings:
        logger.warning("%s", warning)
    return config, home


def run(options: ServerOptions) -> int:
    """Serve until the input ends or a signal asks to stop.

    Returns:
        The exit status: 0 after an orderly end; 1 when it could not start, or when records could not be written.
    """
    streams = None
    if options.listen.kind == "stdio":
        from unspool_server.transport.stdio import claim_standard_streams

        streams = claim_standard_streams()
    try:
        config, home = configured(options)
        traces.configure(config.tracing)
    except ConfigError as error:
        sys.stderr.write(f"Error loading config.toml: {error.message}\n")
        return EXIT_FAILED
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    allow_many_descriptors()
    with runner:
        return runner.run(_serve(options, config, home, streams))


async def _serve(options: ServerOptions, config: Config, home: Path, streams: tuple[int, int] | None) -> int:
    lifecycle = Lifecycle()
    _listen_to_signals(lifecycle)
    started = True
    async with daemon(config, home, lifecycle=lifecycle) as shared:
        match options.listen.kind:
            case "stdio":
                assert streams is not None
                await _serve_stdio(shared, streams, config)
            case "ws":
                started = await _serve_websocket(options, config, shared)
            case "unix":
                await _serve_unix(options, config, shared)
            case "off":
                await _until_stopped(shared)
        sessions = shared.services.sessions
        await sessions.close()
    await asyncio.to_thread(traces.shutdown)
    return EXIT_OK if started and not sessions.undrained else EXIT_FAILED


async def _until_stopped(shared: Shared) -> None:
    """Serve until somebody asks for the end, then bring everything to it while clients are still connected."""
    from unspool_server.cli.drain import drain

    await shared.lifecycle.stopping.wait()
    await drain(shared, shared.services)


def _listen_to_signals(lifecycle: Lifecycle) -> None:
    """The first SIGTERM, SIGINT or SIGHUP asks for an orderly end, the second one ends the process at once.

    A SIGHUP that whoever started the daemon has turned off (`nohup`) stays off.
    """
    loop, numbers = asyncio.get_running_loop(), [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    came = False

    def on_signal(number: signal.Signals) -> None:
        nonlocal came
        if came:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        came = True
        lifecycle.stop(number.name)

    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)


async def _serve_stdio(shared: Shared, streams: tuple[int, int], config: Config) -> None:
    from unspool_server.transport.stdio import serve_stdio

    limit = config.limits.message_bytes
    serving = asyncio.create_task(serve_stdio(shared, *streams, max_message_bytes=limit), name="stdio")
    stopping = asyncio.create_task(_until_stopped(shared), name="stop")
    shared.lifecycle.listeners.append("stdio://")
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in (serving, stopping):
        task.cancel()
    results = await asyncio.gather(serving, stopping, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]


async def _serve_websocket(options: ServerOptions, config: Config, shared: Shared) -> bool:
    """False when it could not start."""
    from unspool_server.access.secret_files import SecretRefused
    from unspool_server.cli.admission import rules_of
    from unspool_server.transport.websocket import ListenRefused, Tls, listen_tcp

    host, port, tls = options.listen.host, options.listen.port, options.tls
    try:
        listener = listen_tcp(
            shared,
            host,
            port,
            rules=rules_of(options, config.access, shared.home),
            max_message_bytes=config.limits.message_bytes,
            options=config.websocket,
            tls=Tls(tls.certificate, tls.key) if tls is not None else None,
        )
    except (ListenRefused, SecretRefused) as error:
        sys.stderr.write(f"Error: {error}\n")
        return False
    except ConfigError as error:
        sys.stderr.write(f"Error loading config.toml: {error.message}\n")
        return False
    except OSError as error:
        sys.stderr.write(f"Error: cannot listen on ws://{host}:{port}: {error.strerror or error}\n")
        return False
    async with listener:
        shared.lifecycle.listeners.append(_url(options, *listener.address[:2]))
        _banner(options, listener.address[0], listener.address[1], shared.home)
        await _until_stopped(shared)
    return True


def _url(options: ServerOptions, host: str, port: int) -> str:
    return f"ws{'s' if options.tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def _banner(options: ServerOptions, host: str, port: int, home: Path) -> None:
    """Addresses, and for people how to get in; the token itself only where it was asked for."""
    from unspool_server.access.secret_files import TOKEN_FILE, home_token

    where, secure = f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "s" if options.tls else ""
    head = "Unspool is ready. Connect a client to the address below; Ctrl-C ends it."
    lines = [
        head if options.banner else "unspool app-server",
        f"  listening on: ws{secure}://{where}",
        f"  readyz: http{secure}://{where}/readyz",
        f"  healthz: http{secure}://{where}/healthz",
    ]
    if options.home_token:
        lines.append(f"  token: {home_token(home) if options.show_token else f'in {home / TOKEN_FILE}'}")
        lines.append("  Clients send it as `Authorization: Bearer TOKEN`; unspool and its Python client find it there.")
    elif options.banner:
        lines.append("  Every program on this machine may connect (--no-auth).")
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()


async def _serve_unix(options: ServerOptions, config: Config, shared: Shared) -> None:
    from unspool_server.transport.unix import UnixListener

    path = options.listen.path or shared.home / "app-server.sock"
    limit = config.limits.message_bytes
    async with UnixListener(shared, path, max_message_bytes=limit, options=config.websocket):
        shared.lifecycle.listeners.append(f"unix://{path}")
        sys.stderr.write(f"unspool app-server\n  listening on: unix://{path}\n")
        sys.stderr.flush()
        await _until_stopped(shared)
