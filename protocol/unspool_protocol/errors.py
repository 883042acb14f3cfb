"""The one table of wire error codes.

Nearly every refusal of the reference is -32600 (`wire` §2); clients parse the text, ours also read `data.reason`.
"""

from enum import IntEnum


class ErrorCode(IntEnum):
    """JSON-RPC error codes that this server sends."""

    PARSE_ERROR = -32700
    """The message is no JSON. The reference drops it without an answer; here every message gets one."""
    INVALID_REQUEST = -32600
    """Refused as it stands: malformed envelope, unknown method, bad parameters, wrong state."""
    INVALID_PARAMS = -32602
    """Input over the size limit (07 §9); otherwise bad parameters are -32600, as in the reference."""
    UNSUPPORTED = -32601
    """A known method that is not supported in this state (`wire` §6: lists of a thread that never ran)."""
    INTERNAL = -32603
    """Our fault, or the disk's; `data.errorId` leads to the log entry."""
    OVERLOADED = -32001
    """More requests in flight than the queue holds."""
