"""Everything of the MCP library that a connection uses, in one import for a thread to load; never imported at start."""

import anyio
import mcp.client.session
import mcp.client.stdio
import mcp.client.streamable_http

__all__ = ["anyio", "mcp"]
