"""Every error the client raises on purpose.

ClientError
├── RpcError(code, message, data)         the server refused; `reason` is `data.reason`
│   ├── InvalidParams · UnknownMethod · ThreadNotFound · NotMaterialized · ThreadBusy(turn_id)
│   ├── TurnsOutOfRange · CursorInvalid · Unsupported · Overloaded
├── ConnectionLost(maybe_executed)        the connection ended before the answer came
│   └── ConnectFailed(retryable)          no connection could be made
├── RequestTimeout                        no answer in time; the server may still carry the request out
├── EventsLost                            events were missed that this server cannot replay
└── ClientClosed                          the client was closed, or not entered yet
"""

from collections.abc import Mapping
from typing import Any

from unspool_protocol.errors import ErrorCode


class ClientError(Exception):
    """Root of all errors of this package."""


class RpcError(ClientError):
    """The server answered with an error; nothing was changed.

    Attributes:
        code: A JSON-RPC code; nearly always -32600 (`wire` §2).
        data: Machine-readable facts, `{}` where the server sent none.
        reason: `data.reason`, empty for servers that send none.
    """

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, dict(data or {})
        reason = self.data.get("reason")
        self.reason = reason if isinstance(reason, str) else ""


class InvalidParams(RpcError):
    """A parameter is missing, of the wrong type or out of range; `data.field` names it."""


class UnknownMethod(RpcError):
    """The server has no such method."""


class ThreadNotFound(RpcError):
    """The thread does not exist, is not loaded, or may not be seen by this caller."""


class NotMaterialized(RpcError):
    """The thread has no record yet, so there is nothing to list, fork or revert."""


class ThreadBusy(RpcError):
    """A turn is running and this operation wants an idle thread."""

    @property
    def turn_id(self) -> str | None:
        """The running turn."""
        turn_id = self.data.get("turnId")
        return turn_id if isinstance(turn_id, str) else None


class TurnsOutOfRange(RpcError):
    """More turns than the thread has, or no whole number >= 1."""


class CursorInvalid(RpcError):
    """The cursor is no place in this thread's past: another thread's, or of events that were lost with the daemon."""


class Unsupported(RpcError):
    """A known method that this thread cannot serve in its mode or state."""


class Overloaded(RpcError):
    """More requests in flight than the server takes; nothing was executed, try again later."""


class ConnectionLost(ClientError):
    """The connection ended.

    Attributes:
        maybe_executed: The request may have reached the server, which may carry it out. False: it was never sent.
    """

    def __init__(self, message: str, *, maybe_executed: bool = False) -> None:
        super().__init__(message)
        self.maybe_executed = maybe_executed


class ConnectFailed(ConnectionLost):
    """No connection could be made; `retryable` is False where the server refused this client (401, 403, …)."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class RequestTimeout(ClientError, TimeoutError):
    """No answer came in time. The server may still carry the request out; a late answer is dropped."""


class EventsLost(ClientError):
    """The reader was too slow and the server gave no cursors to fetch the missed events by."""


class ClientClosed(ClientError):
    """The client was closed, or is used before `async with` entered it."""


_BY_REASON: Mapping[str, type[RpcError]] = {
    "invalidParams": InvalidParams,
    "unknownMethod": UnknownMethod,
    "threadNotFound": ThreadNotFound,
    "notMaterialized": NotMaterialized,
    "activeTurn": ThreadBusy,
    "turnsOutOfRange": TurnsOutOfRange,
    "cursorInvalid": CursorInvalid,
    "unsupported": Unsupported,
    "overloaded": Overloaded,
}


def rpc_error(error: Any) -> RpcError:
    """Make the narrowest error of an answer's `error` member, whatever shape it has."""
    shape = error if isinstance(error, Mapping) else {}
    code, message, facts = shape.get("code"), shape.get("message"), shape.get("data")
    data = facts if isinstance(facts, Mapping) else {}
    reason = data.get("reason")
    kind = _BY_REASON.get(reason, RpcError) if isinstance(reason, str) else RpcError
    if code == ErrorCode.OVERLOADED:
        kind = Overloaded
    return kind(
        code if isinstance(code, int) else int(ErrorCode.INTERNAL), message if isinstance(message, str) else "", data
    )
