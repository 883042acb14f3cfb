"""`mcpServerStatus/list` and `config/mcpServer/reload`: what the tool servers are and offer."""

from unspool_protocol.mcp_methods import (
    McpServerReloadResult,
    McpServerStatus,
    McpServerStatusListParams,
    McpServerStatusListResult,
)
from unspool_protocol.startup import AnyParams

from unspool_server.config import McpServerConfig
from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.services import services
from unspool_server.handlers.startup import page_start
from unspool_server.mcp.connection import McpConnection
from unspool_server.mcp.transport import http_origin


async def mcp_server_status_list(ctx: RequestContext, params: McpServerStatusListParams) -> McpServerStatusListResult:
    """The configured servers; those that do not run are started to be asked."""
    found = services(ctx)
    session = found.sessions.require(params.thread_id) if params.thread_id is not None else None
    env = found.env if session is None else session.env
    tables = env.config.mcp_servers
    names = sorted(name for name in tables if params.server_name in (None, name))
    start = page_start(params.cursor)
    size = len(names) if params.limit is None else max(1, params.limit)
    page = names[start : start + size]
    async with env.mcp.looked_at({name: tables[name] for name in page}) as connections:
        by_name = {connection.name: connection for connection in connections}
        data = [_status(name, tables[name], by_name.get(name), of_thread=session is not None) for name in page]
    more = start + size < len(names)
    return McpServerStatusListResult(data=tuple(data), next_cursor=str(start + size) if more else None)


async def mcp_server_reload(ctx: RequestContext, _params: AnyParams) -> McpServerReloadResult:
    """End every server; the next turn of each thread starts its own again, failed ones too."""
    await services(ctx).env.mcp.reload()
    return McpServerReloadResult()


def _status(name: str, table: McpServerConfig, connection: McpConnection | None, *, of_thread: bool) -> McpServerStatus:
    offer = connection.offer if connection is not None and connection.state == "ready" else None
    state = connection.state if connection is not None and of_thread else None
    return McpServerStatus(
        name=name,
        runtime_status="connected" if state == "ready" else state,
        http_origin=http_origin(table),
        server_info=offer.info if offer is not None else None,
        server_capabilities=offer.capabilities if offer is not None else None,
        tools={str(tool["name"]): tool for tool in offer.tools} if offer is not None else {},
        tools_error=connection.error if connection is not None else None,
        auth_status="bearerToken" if table.bearer_token_env_var is not None else "unsupported",
    )
