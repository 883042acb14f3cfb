"""Requests to answers: the method table, the experimental gate, and the only place that knows jsonrpcserver.

jsonrpcserver and the handlers are imported with the first request, never for the handshake (DESIGN §8). It owns
neither order nor time: one call serves one request, and the connection decides how many run at once.
"""

import logging
import time
import uuid
import warnings
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from unspool_protocol.base import WireModel
from unspool_protocol.errors import ErrorCode

from unspool_server.access.disguise import Disguise
from unspool_server.envelope import Request, encode, error_message, result_message
from unspool_server.errors import (
    DependentThreads,
    LogConflict,
    LogCorrupt,
    LogExists,
    LogMissing,
    ModelError,
    PeerError,
    RequestError,
    ShuttingDown,
    StoreClosed,
    StoreError,
    UnknownMethod,
    WriteFailed,
    WriterHeld,
)
from unspool_server.handlers.context import Handler, NoParams, RequestContext
from unspool_server.handlers.door import Door
from unspool_server.params import shorten, validate
from unspool_server.telemetry import metrics, traces
from unspool_server.telemetry.logs import event

MAX_TOLD_CHARACTERS = 4096
"""Of any text in an error. Errors repeat what a client sent, and it may have sent a megabyte."""

_log = logging.getLogger("unspool.rpc")


@dataclass(frozen=True, slots=True)
class WireError:
    """An error as clients see it."""

    code: int
    message: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gate:
    """What needs `capabilities.experimentalApi`: whole methods, and fields of methods when they are given."""

    methods: Collection[str] = frozenset()
    fields: Mapping[str, Collection[str]] = field(default_factory=dict)

    def check(self, request: Request) -> None:
        """Let a stable request pass. Raises RequestError for an experimental one."""
        if request.method in self.methods:
            raise _experimental(request.method, "")
        if not isinstance(request.params, Mapping):
            return
        for name in self.fields.get(request.method, ()):
            if request.params.get(name) is not None:
                raise _experimental(f"{request.method}.{name}", name)


@dataclass(frozen=True, slots=True)
class _Call:
    """What the wrapper of an endpoint gets as its context from jsonrpcserver."""

    request: Request
    context: RequestContext
    disguise: Disguise = field(default_factory=Disguise)


Dispatch = Callable[[_Call], Awaitable[Mapping[str, Any]]]


class Dispatcher:
    """Serves requests of all connections of a process.

    Args:
        load: Builds the method table; called once, with the first request.
        gate: Tells what is experimental; called once as well.
        door: Keeps callers from threads that are not theirs; None where there is only one owner of everything.
        ending: Whether the threads are being closed because the process ends.
    """

    def __init__(
        self,
        load: Callable[[], Mapping[str, Handler]],
        gate: Callable[[], Gate] | None = None,
        door: Door | None = None,
        ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._load, self._load_gate, self._door, self._ending = load, gate or protocol_gate, door, ending
        self._handlers: Mapping[str, Handler] = {}
        self._gate = Gate()
        self._library: Dispatch | None = None

    async def answer(self, request: Request, context: RequestContext) -> bytes:
        """Serve one request. Every outcome is an encoded answer, except cancellation."""
        began, outcome = time.monotonic(), "cancelled"
        call = _Call(request, context)
        try:
            with traces.span(f"request {shorten(request.method)}"):
                answer = await self._answered(call)
            outcome = _outcome(answer)
            return call.disguise.take_off(encode(answer))
        finally:
            method = request.method if request.method in self._handlers else "unknown"
            metrics.REQUESTS.add(method, outcome)
            metrics.REQUEST_SECONDS.observe(time.monotonic() - began, method)

    async def _answered(self, call: _Call) -> Mapping[str, Any]:
        try:
            library = self._library or self._prepare()
            self._admit(call.request, call.context)
            return await library(call)
        except Exception as error:
            return _refusal(call.request, error)

    def _prepare(self) -> Dispatch:
        self._handlers, self._gate = self._load(), self._load_gate()
        self._library = _bind_library(self._handlers, self._door, self._ending)
        return self._library

    def _admit(self, request: Request, context: RequestContext) -> None:
        if request.method not in self._handlers:
            names = ", ".join(f"`{name}`" for name in sorted({"initialize", *self._handlers}))
            shown = shorten(request.method)
            message = f"Invalid request: unknown variant `{shown}`, expected one of {names}"
            raise UnknownMethod(message, data={"method": shown})
        _check_scope(request, context)
        if not context.peer.experimental:
            self._gate.check(request)


def _check_scope(request: Request, context: RequestContext) -> None:
    """Raises Forbidden. Whoever may do everything is not asked, so that methods of no table can be served in tests."""
    if context.peer.principal.unbound:
        return
    from unspool_server.access.scopes import check_scope

    check_scope(context.peer.principal, request.method, request.params)


def refuse(request: Request, error: BaseException) -> bytes:
    """The encoded error answer to a request."""
    return encode(_refusal(request, error))


def _refusal(request: Request, error: BaseException) -> Mapping[str, Any]:
    wire = map_error(error)
    return error_message(request.id, wire.code, wire.message, wire.data)


def _outcome(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    if error is None:
        return "ok"
    return "failed" if error["code"] == ErrorCode.INTERNAL else "refused"


def map_error(error: BaseException) -> WireError:
    """Turn an exception into what the client sees; the only place where that is decided (STYLE §6).

    Exceptions that are not ours reach the client as a fixed message and an id; text and traceback go to the log.
    """
    wire = _map(error)
    metrics.REFUSALS.add(str(wire.data.get("reason")))
    return WireError(wire.code, _told(wire.message), {key: _told(value) for key, value in wire.data.items()})


def _told(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TOLD_CHARACTERS:
        return value[:MAX_TOLD_CHARACTERS] + "…"
    return value


def _map(error: BaseException) -> WireError:
    match error:
        case RequestError():
            return WireError(error.code, error.message, error.data)
        case StoreError():
            return _map_store_error(error)
        case ModelError():
            data = {"reason": "model", "codexErrorInfo": error.info}
            return WireError(ErrorCode.INTERNAL, error.message, data)
        case PeerError():
            return WireError(ErrorCode.INVALID_REQUEST, str(error), {"reason": "invalidRequest"})
    error_id = uuid.uuid4().hex
    event(_log, "request failed", level=logging.ERROR, exc_info=error, error_id=error_id)
    return WireError(ErrorCode.INTERNAL, "Internal error", {"reason": "internal", "errorId": error_id})


def protocol_gate() -> Gate:
    """The protocol's own table of experimental methods and fields."""
    from unspool_protocol.methods import EXPERIMENTAL_FIELDS, METHODS

    return Gate(frozenset(name for name, method in METHODS.items() if method.experimental), EXPERIMENTAL_FIELDS)


def _map_store_error(error: StoreError) -> WireError:
    """Refusals that the caller can act on are -32600; what the disk did is -32603. No path in either."""
    match error:
        case LogMissing(archived=True):
            text = (
                f"session {error.thread_id} is archived. Run `codex unarchive {error.thread_id}` to unarchive it first."
            )
            return WireError(ErrorCode.INVALID_REQUEST, text, {"reason": "archived", "threadId": error.thread_id})
        case LogMissing():
            data: dict[str, Any] = {"reason": "noRollout", "threadId": error.thread_id}
            return WireError(ErrorCode.INVALID_REQUEST, str(error), data)
        case WriterHeld():
            return WireError(ErrorCode.INVALID_REQUEST, str(error), {"reason": "held", "holder": error.holder})
        case DependentThreads():
            data = {"reason": "dependentThreads", "threadIds": list(error.thread_ids)}
            return WireError(ErrorCode.INVALID_REQUEST, str(error), data)
        case LogConflict():
            data = {"reason": "conflict", "expected": error.expected, "actual": error.actual}
            return WireError(ErrorCode.INVALID_REQUEST, str(error), data)
        case LogExists():
            return WireError(ErrorCode.INVALID_REQUEST, str(error), {"reason": "exists", "threadId": error.thread_id})
        case WriteFailed():
            cause = error.__cause__
            why = f": {cause.strerror}" if isinstance(cause, OSError) and cause.strerror else ""
            data = {"reason": "writeFailed", "retryable": error.retryable}
            return WireError(ErrorCode.INTERNAL, f"the log could not be written{why}", data)
        case LogCorrupt():
            data = {"reason": "corrupt", "rolloutId": error.rollout_id, "line": error.line}
            return WireError(ErrorCode.INTERNAL, str(error), data)
    return WireError(ErrorCode.INTERNAL, "the log is closed", {"reason": "storeClosed"})


def _experimental(what: str, name: str) -> RequestError:
    data = {"reason": "experimentalApi", "field": name}
    return RequestError(f"{what} requires experimentalApi capability", data=data)


def _bind_library(handlers: Mapping[str, Handler], door: Door | None, ending: Callable[[], bool]) -> Dispatch:
    """Import jsonrpcserver and give back a function that sends one request through it."""
    with warnings.catch_warnings():
        # 5.0.9 reads its schema with an importlib function that newer interpreters call deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        from jsonrpcserver import async_dispatch_to_serializable

    methods = {name: _endpoint(handler, door, ending) for name, handler in handlers.items()}

    async def dispatch(call: _Call) -> Mapping[str, Any]:
        request = call.request
        params = request.params if isinstance(request.params, Mapping) else {}
        envelope: Any = {"jsonrpc": "2.0", "method": request.method, "params": params, "id": request.id}
        response: Any = await async_dispatch_to_serializable(
            envelope,
            methods=methods,
            context=call,
            deserializer=_identity,
            validator=_checked_before,
        )
        if "error" in response:
            error = response["error"]
            return error_message(request.id, error["code"], error["message"], error.get("data"))
        return result_message(request.id, response["result"])

    return dispatch


def _endpoint(handler: Handler, door: Door | None, ending: Callable[[], bool]) -> Callable[..., Awaitable[Any]]:
    """Wrap a handler for the library: parameters in, `Success` or `Error` out, no exception but cancellation."""
    from jsonrpcserver import Error, Success

    async def endpoint(call: _Call, /, **params: Any) -> Any:
        try:
            given = NoParams() if handler.params is None else validate(handler.params, _params(call, params))
            if door is not None:
                given = await door.admit(call.context.peer.principal, given, call.disguise)
            result = await handler.call(call.context, given)
            if isinstance(result, WireModel):
                return Success(result.model_dump(by_alias=True, mode="json"))
            return Success(result)
        except Exception as error:
            # A log that is closed because the process ends is nobody's fault, and the next process has it open.
            wire = map_error(ShuttingDown() if isinstance(error, StoreClosed) and ending() else error)
            return Error(wire.code, wire.message, dict(wire.data))

    return endpoint


def _params(call: _Call, params: Mapping[str, Any]) -> Any:
    """What the client sent; the library passes on objects only, and makes an empty one of everything else."""
    return params if isinstance(call.request.params, Mapping) else call.request.params


def _identity(message: Any) -> Any:
    return message


def _checked_before(message: Any) -> Any:
    """The envelope was classified by `envelope.parse`; nothing is left to check."""
    return message
