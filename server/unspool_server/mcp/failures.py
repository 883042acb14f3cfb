"""Words for what went wrong with a tool server, without addresses, secrets or traces."""

import os

from unspool_server.mcp.offer import McpFailure

LONGEST = 8000
"""Characters of a server's own words that are shown and recorded."""


def leaf(error: BaseException) -> BaseException:
    """The first cause inside groups of exceptions, which task groups wrap around a single one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def is_closed(error: BaseException) -> bool:
    """Whether the streams of the connection have ended; servers use the same number for errors of their own."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and (error.code, error.message) == (CONNECTION_CLOSED, "Connection closed")


def reason_of(error: BaseException) -> str:
    """What a client may read about an exception of the connection."""
    from mcp.shared.exceptions import MCPError
    from pydantic import ValidationError

    match leaf(error):
        case McpFailure() as failure:
            return str(failure)
        case MCPError() as answer:
            more = len(answer.message) - LONGEST
            told = answer.message if more <= 0 else f"{answer.message[:LONGEST]}… ({more} characters more)"
            return f"Mcp error: {answer.code}: {told}"
        case TimeoutError():
            return "request timed out"
        case OSError(errno=int() as number):
            return f"{os.strerror(number)} (os error {number})"
        case ValidationError():
            return "the server sent an answer that the protocol does not allow"
        case other:
            return f"the connection broke ({type(other).__name__})"
