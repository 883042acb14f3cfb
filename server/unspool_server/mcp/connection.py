"""One tool server: started when it is first needed, watched, started again after it died, called by anybody.

A task of its own owns the connection from its first byte to its last, because the library's scopes must be left by the
task that entered them; others only wait for what it says and send requests. Nothing here knows threads.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from unspool_server.config import McpServerConfig
from unspool_server.mcp.failures import is_closed, leaf, reason_of
from unspool_server.mcp.offer import McpFailure, Offer, ServerState
from unspool_server.mcp.transport import transport

if TYPE_CHECKING:
    import anyio
    from mcp.client.session import ClientSession, IncomingMessage, MessageHandlerFnT

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 30.0
"""A server that could not be started is tried again by a later turn, not sooner: each try may cost its whole wait."""

MAX_PAGES = 100
"""Pages of a tool list that are read; a server that goes on has lost count."""

_LOST_CODES = frozenset((-32000, -32600, -32603))
"""Answers after which a server on the network is greeted anew: its session is gone, or nobody is there."""

OnProgress = Callable[[str], None]


@dataclass(slots=True)
class _Live:
    """A connection that works. `changed` is set to list the tools anew, `gone` when its streams have ended."""

    session: "ClientSession"
    changed: asyncio.Event
    gone: asyncio.Event


class McpConnection:
    """A configured server. `offer` is what it last said of itself, and stays when it dies, so that tools stay put."""

    def __init__(
        self, name: str, config: McpServerConfig, cwd: str, told: Callable[["McpConnection"], None] = lambda _: None
    ) -> None:
        self.name, self.config = name, config
        self.state: ServerState | None = None
        self.error: str | None = None
        self.offer: Offer | None = None
        self._cwd, self._told = cwd, told
        self._live: _Live | None = None
        self._task: asyncio.Task[None] | None = None
        self._scope: anyio.CancelScope | None = None
        self._settled = asyncio.Event()
        self._failed_at: float | None = None
        self._closed = False

    async def ready(self) -> bool:
        """Start the server if it does not run, and wait until it is known whether it can be used."""
        if self._live is not None and not self._live.gone.is_set():
            return True
        if self._task is not None and self._settled.is_set():
            await asyncio.shield(self._task)  # what died is cleared away before its successor starts
        if self._task is None or self._task.done():
            if self._closed or self._is_resting():
                return False
            self._settled = asyncio.Event()
            self._tell("starting")
            self._task = asyncio.create_task(self._run(), name=f"mcp-{self.name}")
        await self._settled.wait()
        return self._live is not None

    async def call(
        self, tool: str, arguments: Any, *, meta: Mapping[str, Any] | None = None, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Call a tool; a cancelled call is cancelled at the server as well.

        Returns:
            The result as the server gave it: `content`, perhaps `structuredContent`, `isError`, `_meta`.

        Raises:
            McpFailure: No connection, no answer in time, or an error instead of a result.
        """
        from mcp.shared.exceptions import MCPError
        from pydantic import ValidationError

        if not await self.ready() or self._live is None:
            raise McpFailure(self.error or "the server is not running")
        live = self._live
        try:
            request = _call_request(tool, arguments, meta)
            return await _answer(live.session, request, self.config.tool_timeout_sec, on_progress)
        except MCPError as error:
            if is_closed(error):
                live.gone.set()
                raise McpFailure("the server ended before it answered") from error
            if error.code == _timeout_code():
                wait_ms = round(self.config.tool_timeout_sec * 1000)
                raise McpFailure(f"timed out awaiting tools/call after {wait_ms}ms") from error
            if self.config.url is not None and error.code in _LOST_CODES:
                live.gone.set()
            raise McpFailure(reason_of(error)) from error
        except (OSError, ValidationError, RuntimeError, ValueError) as error:
            raise McpFailure(reason_of(error)) from error

    async def close(self) -> None:
        """End the connection and the server's process; it cannot be used again."""
        self._closed = True
        if self._scope is not None:
            self._scope.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _is_resting(self) -> bool:
        return self._failed_at is not None and time.monotonic() - self._failed_at < RETRY_PAUSE_S

    def _tell(self, state: ServerState, error: str | None = None) -> None:
        self.state, self.error = state, error
        self._told(self)

    async def _run(self) -> None:
        settled = self._settled
        # The library takes a second to load, which nobody else shall wait for.
        await asyncio.to_thread(import_module, "unspool_server.mcp.library")
        import anyio

        try:
            with anyio.CancelScope() as self._scope:
                if self._closed:
                    return
                async with self._connected() as live:
                    self._live, self._failed_at = live, None
                    self._tell("ready")
                    settled.set()
                    await self._watch(live)
        except Exception as error:
            # Whatever a server or the library does wrong costs this server, nothing else.
            self._fail(error)
        finally:
            self._scope = self._live = None
            settled.set()

    def _fail(self, error: BaseException) -> None:
        if self._live is not None:
            logger.warning("the connection to MCP server %s broke: %s", self.name, type(leaf(error)).__name__)
            return
        if self._failed_at is None or self.state != "failed":
            self._failed_at = time.monotonic()
            self._tell("failed", self._start_error(error))

    def _start_error(self, error: BaseException) -> str:
        if isinstance(leaf(error), TimeoutError):
            return (
                f"MCP client for `{self.name}` timed out after {self.config.startup_timeout_s:g} seconds. "
                f"Add or adjust `startup_timeout_sec` in your config.toml: [mcp_servers.{self.name}]"
            )
        return f"MCP client for `{self.name}` failed to start: MCP startup failed: {reason_of(error)}"

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[_Live, None]:
        import anyio
        from mcp.client.session import ClientSession

        changed, gone = asyncio.Event(), asyncio.Event()
        async with transport(self.config, self._cwd) as (read, write):
            session = ClientSession(
                dispatcher=_watched(read, write, gone),
                client_info=_ourselves(),
                message_handler=_heard(self.name, changed),
            )
            async with session:
                try:
                    with anyio.fail_after(self.config.startup_timeout_s):
                        await session.initialize()
                        self.offer = await _offer(session)
                except Exception as error:
                    ended = McpFailure("connection closed: the server ended before it was ready")
                    # Told before the process is cleared away, which may take its time.
                    self._fail(ended if is_closed(error) else error)
                    self._settled.set()
                    raise
                yield _Live(session, changed, gone)

    async def _watch(self, live: _Live) -> None:
        """Until the server is gone; when it says that its tools have changed they are listed anew."""
        waits = [asyncio.create_task(live.gone.wait()), asyncio.create_task(live.changed.wait())]
        try:
            while not live.gone.is_set():
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if live.changed.is_set() and not live.gone.is_set():
                    live.changed.clear()
                    waits[1] = asyncio.create_task(live.changed.wait())
                    await self._list_again(live)
        finally:
            for wait in waits:
                wait.cancel()

    async def _list_again(self, live: _Live) -> None:
        import anyio

        try:
            with anyio.fail_after(self.config.startup_timeout_s):
                self.offer = await _offer(live.session)
        except Exception as error:
            # The old list stays in force: a server that cannot list its tools may still run them.
            logger.warning("MCP server %s did not list its tools again: %s", self.name, reason_of(error))


def _call_request(tool: str, arguments: Any, meta: Mapping[str, Any] | None) -> Any:
    import mcp_types as types

    parameters: dict[str, Any] = {"name": tool, "arguments": arguments, "_meta": dict(meta) if meta else None}
    return types.CallToolRequest(params=types.CallToolRequestParams.model_validate(parameters))


async def _answer(
    session: "ClientSession", request: Any, timeout_s: float, on_progress: OnProgress | None
) -> dict[str, Any]:
    import mcp_types as types

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        if on_progress is not None and message:
            on_progress(message)

    result = await session.send_request(
        request, types.CallToolResult, request_read_timeout_seconds=timeout_s, progress_callback=tell
    )
    return _plain(result)


async def _offer(session: "ClientSession") -> Offer:
    import mcp_types as types

    tools: list[dict[str, Any]] = []
    capabilities = session.server_capabilities
    cursor: str | None = None
    if capabilities is not None and capabilities.tools is not None:
        for _ in range(MAX_PAGES):
            page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
            tools += [_plain(tool) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
    return Offer(
        info=_plain(session.server_info) if session.server_info is not None else {},
        capabilities=_plain(capabilities) if capabilities is not None else {},
        instructions=session.instructions,
        tools=tools,
    )


def _plain(model: Any) -> dict[str, Any]:
    shape: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True, exclude_unset=True)
    return shape


def _watched(read: Any, write: Any, gone: asyncio.Event) -> Any:
    """The library's dispatcher, which also says when its streams have ended."""
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

    class Watched(JSONRPCDispatcher[Any]):
        async def run(self, *args: Any, **kwargs: Any) -> None:
            try:
                await super().run(*args, **kwargs)
            finally:
                gone.set()

    return Watched(read, write)


def _heard(name: str, changed: asyncio.Event) -> "MessageHandlerFnT":
    import mcp_types as types

    odd = 0

    async def hear(message: "IncomingMessage") -> None:
        nonlocal odd
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()
        elif isinstance(message, Exception):
            odd += 1
            if odd == 1:
                logger.warning("MCP server %s prints lines that are no messages; they are passed over", name)

    return hear


def _ourselves() -> Any:
    import mcp_types as types

    return types.Implementation(name="unspool", title="Unspool", version="0.1.0")


def _timeout_code() -> int:
    import mcp_types as types

    return types.REQUEST_TIMEOUT
