"""One connection's life: requests out and their answers in, in any order; notifications and server requests passed on.

Owns neither reconnecting nor handlers. One task reads, and it never waits for anything but the channel, so an answer
is never stuck behind events that nobody takes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unspool_client.channels import Channel
from unspool_client.codec import decode, encode
from unspool_client.errors import ConnectionLost, rpc_error

_log = logging.getLogger("unspool_client")

OnResult = Callable[[dict[str, Any]], None]
"""Called by the reader between the answer and the next message, so that nothing slips in between."""

OnMessage = Callable[["Connection", dict[str, Any]], None]
"""Takes a notification or a server request. Must not raise and must not block."""


@dataclass(slots=True)
class _Pending:
    answer: "asyncio.Future[dict[str, Any]]"
    on_result: OnResult | None


class Connection:
    """Requests and answers over one channel.

    Args:
        jsonrpc: Send the `jsonrpc` member; both dialects are read (`wire` §2).
    """

    def __init__(
        self, channel: Channel, *, on_notification: OnMessage, on_request: OnMessage, jsonrpc: bool = False
    ) -> None:
        self._channel = channel
        self._on_notification, self._on_request = on_notification, on_request
        self._jsonrpc = jsonrpc
        self._next_id = 1
        self._pending: dict[int, _Pending] = {}
        self._ended = asyncio.Event()
        self._reason = "the connection was closed"
        self._reader = asyncio.create_task(self._read(), name="unspool-client-reader")

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._ended.is_set()

    @property
    def reason(self) -> str:
        """Why it ended."""
        return self._reason

    async def wait_lost(self) -> None:
        """Wait until the connection ends, for whatever reason."""
        await self._ended.wait()

    async def call(
        self, method: str, params: Mapping[str, Any] | None, *, on_result: OnResult | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for its answer; bound the wait with `asyncio.timeout`.

        Raises:
            RpcError: The server refused.
            ConnectionLost: The connection ended first; `maybe_executed` tells whether the request was sent.
        """
        if self.is_lost:
            raise ConnectionLost(self._reason)
        number, self._next_id = self._next_id, self._next_id + 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[number] = _Pending(answer, on_result)
        try:
            await self._send({"id": number, "method": method, "params": params})
            return await answer
        except ConnectionLost as error:
            raise ConnectionLost(f"{method}: {error}", maybe_executed=True) from error
        finally:
            self._pending.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen: a failed send and a lost connection may both report

    async def notify(self, method: str) -> None:
        """Send a notification without params; the protocol has no others from clients."""
        await self._send({"method": method})

    async def answer(self, request_id: int | str, answer: Mapping[str, Any]) -> None:
        """Answer a server request with `{"result": …}` or `{"error": …}`."""
        await self._send({"id": request_id, **answer})

    async def close(self) -> None:
        """End the connection in order; what was not answered fails with `ConnectionLost`."""
        await self._channel.close()
        self._reader.cancel()
        await asyncio.wait({self._reader})

    async def _send(self, message: Mapping[str, Any]) -> None:
        raw = encode({"jsonrpc": "2.0", **message} if self._jsonrpc else message)
        try:
            await self._channel.send(raw)
        except ConnectionLost:
            await self._channel.close()  # a channel that takes nothing any more is of no use: let the reader end, too
            raise

    async def _read(self) -> None:
        try:
            while (raw := await self._channel.receive()) is not None:
                self._dispatch(raw)
            # Closing waits for a child's exit status and the end of its stderr, which explain the loss.
            await self._channel.close()
            self._reason = self._channel.lost_because()
        except Exception as error:
            _log.exception("reading from the server failed")
            self._reason = f"reading failed: {error}"
            await self._channel.close()
        finally:
            self._ended.set()
            for pending in self._pending.values():
                if not pending.answer.done():
                    pending.answer.set_exception(ConnectionLost(self._reason, maybe_executed=True))

    def _dispatch(self, raw: bytes) -> None:
        message = decode(raw)
        if message is None:
            _log.warning("ignoring output of the server that is no message: %r", raw[:200])
        elif isinstance(message.get("method"), str):
            (self._on_request if "id" in message else self._on_notification)(self, message)
        elif "id" in message:
            self._take_answer(message)

    def _take_answer(self, message: dict[str, Any]) -> None:
        number = message["id"]
        pending = self._pending.get(number) if isinstance(number, int) else None
        if pending is None or pending.answer.done():
            if number is None:
                _log.warning("the server could not read a message: %s", message.get("error"))
            return
        if "error" in message:
            pending.answer.set_exception(rpc_error(message["error"]))
            return
        result = message.get("result")
        shape: dict[str, Any] = result if isinstance(result, dict) else {"value": result}
        try:
            if pending.on_result is not None:
                pending.on_result(shape)
        except Exception as error:
            # A result of another shape is the caller's to hear of; the connection itself is sound.
            pending.answer.set_exception(error)
        else:
            pending.answer.set_result(shape)
