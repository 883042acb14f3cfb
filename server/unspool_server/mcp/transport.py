"""How a tool server is reached: a process of ours on its standard streams, or an address (streamable HTTP).

Imports of the library stay inside functions: a daemon without tool servers never pays for them.
"""

import logging
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from io import UnsupportedOperation
from typing import Any, TextIO

from unspool_server.config import McpServerConfig
from unspool_server.mcp.offer import McpFailure

_INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Variables that a started server gets without being named; nothing else of our environment, which holds secrets."""


@asynccontextmanager
async def transport(config: McpServerConfig, cwd: str) -> AsyncGenerator[tuple[Any, Any], None]:
    """The streams to a server; leaving ends its process, or its session.

    Raises:
        OSError: The command cannot be started.
        McpFailure: A variable that the table names is not set.
    """
    if config.command is not None:
        async with _process(config, config.command, cwd) as streams:
            yield streams
    else:
        async with _address(config, str(config.url)) as streams:
            yield streams


@asynccontextmanager
async def _process(config: McpServerConfig, command: str, cwd: str) -> AsyncGenerator[tuple[Any, Any], None]:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    # A line that is no message is told to the session; the library would also log it with its text.
    logging.getLogger("mcp.client.stdio").setLevel(logging.CRITICAL)
    given = {name: os.environ[name] for name in (*_INHERITED, *config.env_vars) if name in os.environ}
    parameters = StdioServerParameters(
        command=command,
        args=list(config.args),
        env={**given, **config.env},
        cwd=config.cwd or cwd,
        encoding_error_handler="replace",
    )
    async with stdio_client(parameters, errlog=_error_stream()) as streams:
        yield streams


@asynccontextmanager
async def _address(config: McpServerConfig, url: str) -> AsyncGenerator[tuple[Any, Any], None]:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async with (
        create_mcp_http_client(headers=_headers(config)) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams[0], streams[1]


def _headers(config: McpServerConfig) -> dict[str, str]:
    headers = dict(config.http_headers)
    for header, variable in config.env_http_headers.items():
        with suppress(KeyError):  # a header whose variable is not set is left out, as in the reference
            headers[header] = os.environ[variable]
    if config.bearer_token_env_var is not None:
        token = os.environ.get(config.bearer_token_env_var)
        if not token:
            raise McpFailure(f"Environment variable {config.bearer_token_env_var} is empty or not set")
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _error_stream() -> TextIO:
    """Where a started server's errors go: to our own, if that is a real stream."""
    with suppress(OSError, UnsupportedOperation, AttributeError):
        sys.stderr.fileno()
        return sys.stderr
    return sys.__stderr__ or sys.stderr


def http_origin(config: McpServerConfig) -> str | None:
    """Scheme, host and port of a server on the network: what clients may know of its address."""
    if config.url is None:
        return None
    from urllib.parse import urlsplit

    parts = urlsplit(config.url)
    port = f":{parts.port}" if parts.port is not None else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"
