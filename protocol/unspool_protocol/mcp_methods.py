"""MCP servers on the wire: `mcpServerStatus/list` and `config/mcpServer/reload`."""

from collections.abc import Mapping
from typing import Any, Literal

from unspool_protocol.base import Limit, WireModel


class McpServerStatusListParams(WireModel):
    """`mcpServerStatus/list`; cursors are numbers as text.

    Attributes:
        thread_id: Take the servers of this loaded thread, whose `config` may have changed them.
        server_name: Tell of this one only.
        detail: How much the client wants to know; both get the same here, since there are no resources.
    """

    cursor: str | None = None
    limit: Limit | None = None
    detail: Literal["full", "toolsAndAuthOnly"] | None = None
    thread_id: str | None = None
    server_name: str | None = None


class McpServerStatus(WireModel):
    """A configured MCP server and what it offers.

    Attributes:
        runtime_status: How the thread's connection is; None without a thread.
        http_origin: Scheme, host and port of a server on the network; never its path or secrets.
        tools: As the server describes them, by their own names.
        tools_error: Why there is no list of tools.
    """

    name: str
    environment_id: str | None = None
    runtime_status: Literal["starting", "connected", "failed"] | None = None
    plugin_id: str | None = None
    http_origin: str | None = None
    server_info: Mapping[str, Any] | None = None
    server_capabilities: Mapping[str, Any] | None = None
    tool_list_meta: Any = None
    tools: Mapping[str, Any]
    tools_error: str | None = None
    resources: tuple[Any, ...] = ()
    resource_templates: tuple[Any, ...] = ()
    auth_status: Literal["unknown", "unsupported", "notLoggedIn", "bearerToken", "oAuth"] = "unsupported"


class McpServerStatusListResult(WireModel):
    """A page of servers, by name."""

    data: tuple[McpServerStatus, ...] = ()
    next_cursor: str | None = None


class McpServerReloadResult(WireModel):
    """Empty."""
