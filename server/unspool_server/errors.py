"""Every error the server raises on purpose.

    UnspoolError
    ├── RequestError(code, message, data)      the client's fault; safe to show
    │   ├── InvalidParams · NotInitialized · AlreadyInitialized · UnknownMethod · KeyReused
    │   ├── ThreadNotFound · NotMaterialised · ThreadBusy · TurnsOutOfRange · Unsupported
    │   ├── Overloaded · RateLimited(wait_ms) · LimitReached(limit, most) · Forbidden(scope) · OwnersOnly · PathRefused
    ├── StoreError                             disk or another writer
    │   ├── LogConflict(expected, actual) · LogCorrupt(path, line) · LogMissing · WriterHeld(holder)
    │   ├── WriteFailed(retryable) · StoreClosed · DependentThreads(thread_ids)
    ├── ConfigError (config.py)                 a setting that cannot be used
    ├── PeerError / LocalProtocolError         a bad frame / an illegal move of ours
    └── ModelError(message, info)              the model service
        ├── ProviderUnavailable · ProviderRejected · StreamCut · ContextLengthExceeded

Codes come from `unspool_protocol.errors`; `rpc.py` alone maps exceptions to wire errors.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unspool_protocol.errors import ErrorCode


class UnspoolError(Exception):
    """Root of all errors of this package."""


class RequestError(UnspoolError):
    """A request that cannot be served as asked. Nothing was changed; message and data are safe to show.

    Args:
        message: What clients see; the reference's text where clients parse it (`wire` §2, §6).
        data: Machine-readable facts, always with a `reason`.
    """

    code: ErrorCode = ErrorCode.INVALID_REQUEST
    reason: str = "invalidRequest"

    def __init__(self, message: str, *, data: Mapping[str, Any] | None = None, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data: dict[str, Any] = {"reason": self.reason, **(data or {})}
        if code is not None:
            self.code = code


class InvalidParams(RequestError):
    """A parameter is missing, has the wrong type or a value out of range; `data.field` names it."""

    reason = "invalidParams"


class NotInitialized(RequestError):
    """A request came before `initialize`."""

    reason = "notInitialized"

    def __init__(self) -> None:
        super().__init__("Not initialized")


class AlreadyInitialized(RequestError):
    """`initialize` came twice on one connection."""

    reason = "alreadyInitialized"

    def __init__(self) -> None:
        super().__init__("Already initialized")


class UnknownMethod(RequestError):
    """No such method; the reference answers -32600 with a list of variants (`wire` §2)."""

    reason = "unknownMethod"


class KeyReused(RequestError):
    """An idempotency key came with other parameters than before; nothing was changed."""

    reason = "idempotencyKeyReused"

    def __init__(self, method: str, key: str) -> None:
        super().__init__("this idempotencyKey was used for another request", data={"method": method, "key": key})


class ThreadNotFound(RequestError):
    """The thread does not exist, is not loaded, or is not visible to this caller; only texts tell them apart."""

    reason = "threadNotFound"


class NotMaterialised(RequestError):
    """The thread has no record yet, so it has nothing to list, fork or revert."""

    reason = "notMaterialized"


class ThreadBusy(RequestError):
    """A turn is running and this operation wants an idle thread; `data.turnId` names the turn."""

    reason = "activeTurn"

    def __init__(self, message: str, turn_id: str) -> None:
        super().__init__(message, data={"turnId": turn_id})
        self.turn_id = turn_id


class TurnsOutOfRange(RequestError):
    """A number of turns that is no integer >= 1 or more than the thread has; nothing was changed."""

    reason = "turnsOutOfRange"


class Unsupported(RequestError):
    """A known method that this thread cannot serve in its mode or state."""

    reason = "unsupported"


class Overloaded(RequestError):
    """More requests in flight than the queue holds; the client may retry later."""

    code = ErrorCode.OVERLOADED
    reason = "overloaded"

    def __init__(self) -> None:
        super().__init__("Server overloaded; retry later.", data={"codexErrorInfo": "server_overloaded"})


class RateLimited(RequestError):
    """More requests in a time than this connection or its token may send; nothing was done."""

    code = ErrorCode.OVERLOADED
    reason = "rateLimited"

    def __init__(self, wait_ms: int) -> None:
        super().__init__(
            "Rate limit exceeded; retry later.", data={"retryAfterMs": wait_ms, "codexErrorInfo": "server_overloaded"}
        )
        self.wait_ms = wait_ms


class LimitReached(RequestError):
    """The server holds as many of something as it may; nothing was done. `data.limit` is the key in `[limits]`."""

    code = ErrorCode.OVERLOADED
    reason = "limitReached"

    def __init__(self, limit: str, most: int) -> None:
        super().__init__(f"Limit reached: {limit} = {most}", data={"limit": limit, "max": most})


class Forbidden(RequestError):
    """The caller's token does not have the scope that this takes; `data.scope` names it."""

    reason = "forbidden"

    def __init__(self, what: str, scope: str) -> None:
        super().__init__(f"{what} requires the scope `{scope}`", data={"scope": scope})


class OwnersOnly(RequestError):
    """What concerns the server as a whole, asked for with a token of a named tenant."""

    reason = "forbidden"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is for the machine's owner, not for a tenant", data={"field": "tenant"})


class PathRefused(RequestError):
    """A path that this caller may not name; whether anything is there is not told."""

    reason = "pathRefused"

    def __init__(self, field: str) -> None:
        super().__init__(f"`{field}` is outside of what this server allows", data={"field": field})


class ShuttingDown(RequestError):
    """The server is about to end and begins nothing new; the next one will serve it."""

    reason = "shuttingDown"

    def __init__(self) -> None:
        super().__init__("the server is shutting down", data={"retryable": True})


class StoreError(UnspoolError):
    """The log could not be read or written. The message holds no path of this machine; attributes may."""


class LogConflict(StoreError):
    """An append expected another end of the log, or its writer has been replaced; nothing was written."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"log ends at ordinal {actual}, expected {expected}")
        self.expected, self.actual = expected, actual


class LogCorrupt(StoreError):
    """A log that cannot be opened: `missing` says what it lacks (a header, a known history mode, a base)."""

    def __init__(self, message: str, *, rollout_id: str = "", line: int | None = None) -> None:
        super().__init__(message)
        self.rollout_id, self.line = rollout_id, line


class LogMissing(StoreError):
    """No log with this id."""

    def __init__(self, thread_id: str, *, archived: bool = False) -> None:
        super().__init__(f"no rollout found for thread id {thread_id}")
        self.thread_id, self.archived = thread_id, archived


class LogExists(StoreError):
    """A log with this id exists already; it was not touched."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"thread {thread_id} exists already")
        self.thread_id = thread_id


class WriterHeld(StoreError):
    """Another process holds the thread's writer lock (02 §7); `holder` tells which one where it is known."""

    def __init__(self, thread_id: str, holder: str | None = None) -> None:
        super().__init__(f"thread {thread_id} already has an active writer")
        self.thread_id, self.holder = thread_id, holder


class WriteFailed(StoreError):
    """The operating system refused the write; `retryable` says whether a later barrier may succeed."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class StoreClosed(StoreError):
    """The log handle was closed, or fenced off by a newer writer of the same thread."""


class DependentThreads(StoreError):
    """A log that other threads still reference cannot be deleted; `thread_ids` names them."""

    def __init__(self, thread_id: str, thread_ids: Sequence[str]) -> None:
        super().__init__(f"cannot delete thread {thread_id}: forked history still references it")
        self.thread_id, self.thread_ids = thread_id, tuple(thread_ids)


class PeerError(UnspoolError):
    """A frame that is no message, or an answer to no request."""


class LocalProtocolError(UnspoolError):
    """We tried an illegal move; a bug of ours, never of the peer."""


class ModelError(UnspoolError):
    """The model service failed. `info` is the protocol's `codexErrorInfo`.

    Attributes:
        detail: The service's own words where the message does not hold them; for decisions, never shown.
        retry_after_s: Seconds after which the service wants to be asked again; None where it said nothing.
    """

    info: str | Mapping[str, Any] = "other"

    def __init__(
        self,
        message: str,
        *,
        info: str | Mapping[str, Any] | None = None,
        detail: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail or message
        self.retry_after_s = retry_after_s
        if info is not None:
            self.info = info


class ProviderUnavailable(ModelError):
    """No answer, or an answer that a retry may mend; it was tried as often as configured."""

    info = "serverOverloaded"


class ProviderRejected(ModelError):
    """The service refused the request as it stands, or its answer would be no better a second time."""

    info = "badRequest"


class StreamCut(ModelError):
    """The stream ended before the response was completed; whoever asked may ask again."""

    info: str | Mapping[str, Any] = {"responseStreamDisconnected": {"httpStatusCode": None}}


class ContextLengthExceeded(ModelError):
    """The request does not fit the model's window."""

    info = "contextWindowExceeded"
