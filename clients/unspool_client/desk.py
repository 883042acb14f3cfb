"""Requests of the server to this client: tool calls and approvals (`wire` §6).

The server sends a pending request again, under the same id, to a connection that resumes the thread. A handler must not
run twice for it: while it runs the repeat is noted, and afterwards the same answer is given again.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from unspool_protocol.errors import ErrorCode

from unspool_client.codec import encode
from unspool_client.connection import Connection
from unspool_client.errors import ConnectionLost, RpcError

_log = logging.getLogger("unspool_client")

RequestHandler = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Gets the request's params, returns the result. Raise `RpcError` to answer with an error."""

_ANSWERS_KEPT = 256

_Key = tuple[int | str, bytes]


class RequestDesk:
    """Runs one task per server request and sends its answer on the connection that is current by then.

    Args:
        answer_unhandled: Refuse requests that nobody handles here with -32601. Switch it off for a client that only
            watches beside another one: the first answer wins, and a refusal is an answer.
    """

    def __init__(self, *, answer_unhandled: bool = True) -> None:
        self._handlers: dict[str, RequestHandler] = {}
        self._answer_unhandled = answer_unhandled
        self._running: dict[_Key, asyncio.Task[None]] = {}
        self._asked_on: dict[_Key, Connection] = {}
        self._answers: OrderedDict[_Key, Mapping[str, Any]] = OrderedDict()
        self._sending: set[asyncio.Task[None]] = set()

    def handle(self, method: str, handler: RequestHandler) -> None:
        """Register the handler of a method; the last one given counts."""
        self._handlers[method] = handler

    def take(self, connection: Connection, message: dict[str, Any]) -> None:
        """Start answering a request, or answer a repeated one again."""
        request_id = message["id"]
        params = message.get("params")
        shape: dict[str, Any] = params if isinstance(params, dict) else {}
        # Ids count from 0 in every run of the server, so the content belongs to the request's identity.
        key = (request_id, encode({"method": message["method"], "params": shape}))
        self._asked_on[key] = connection
        if key in self._running:
            return
        if key in self._answers:
            self._spawn_send(key, request_id)
            return
        handler = self._handlers.get(message["method"])
        if handler is None and not self._answer_unhandled:
            return
        task = asyncio.create_task(
            self._run(key, handler, message["method"], shape), name=f"unspool-client-{message['method']}"
        )
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))

    def resolved(self, request_id: object) -> None:
        """Somebody has answered, or the request was withdrawn: stop its handler."""
        for key, task in list(self._running.items()):
            if key[0] == request_id and key not in self._answers:
                task.cancel()
        for key in [key for key in self._asked_on if key[0] == request_id]:
            del self._asked_on[key]

    async def close(self) -> None:
        """Stop all handlers."""
        tasks = {*self._running.values(), *self._sending}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, key: _Key, handler: RequestHandler | None, method: str, params: dict[str, Any]) -> None:
        if handler is None:
            answer = _refusal(ErrorCode.UNSUPPORTED, f"this client does not handle {method}")
        else:
            answer = await _answer_of(handler, method, params)
        self._answers[key] = answer
        while len(self._answers) > _ANSWERS_KEPT:
            oldest, _ = self._answers.popitem(last=False)
            self._asked_on.pop(oldest, None)
        await self._send(key)

    def _spawn_send(self, key: _Key, request_id: int | str) -> None:
        task = asyncio.create_task(self._send(key), name=f"unspool-client-answer-{request_id}")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, key: _Key) -> None:
        connection, answer = self._asked_on.get(key), self._answers[key]
        if connection is None:
            return
        try:
            await connection.answer(key[0], answer)
        except ConnectionLost:
            _log.info("the connection was lost before an answer was sent; it is sent when the server asks again")


def _refusal(code: int, message: str, data: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    error: dict[str, Any] = {"code": int(code), "message": message}
    return {"error": error if not data else {**error, "data": dict(data)}}


async def _answer_of(handler: RequestHandler, method: str, params: dict[str, Any]) -> Mapping[str, Any]:
    try:
        answer = {"result": dict(await handler(params))}
        encode(answer)  # what is no JSON is the handler's fault as well
        return answer
    except RpcError as error:
        return _refusal(error.code, error.message, error.data)
    except Exception:
        # The boundary of foreign code: its fault must not end the connection, and its text is not for the wire.
        _log.exception("the handler of %s failed", method)
        return _refusal(ErrorCode.INTERNAL, f"the handler of {method} failed")
