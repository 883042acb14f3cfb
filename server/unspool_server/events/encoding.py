"""Notifications as ready bytes: each event is encoded once, whoever and however many read it (DESIGN §6).

Owns no order and no connection; the splices below change the envelope of finished bytes without decoding them.
"""

import time
from collections.abc import Mapping
from typing import Any

from unspool_protocol.base import WireModel
from unspool_protocol.cursors import EventCursor

from unspool_server.envelope import encode

_JSONRPC = b'{"jsonrpc":"2.0",'
_REPLAYED = b',"replayed":true}'


def now_ms() -> int:
    """Milliseconds since the epoch, the unit of `emittedAtMs` (wire §2)."""
    return time.time_ns() // 1_000_000


class Encoder:
    """Encodes messages and counts how often, so that tests can prove that an event is encoded once."""

    def __init__(self) -> None:
        self.count = 0

    def encode(
        self,
        method: str,
        params: WireModel | Mapping[str, Any],
        *,
        cursor: EventCursor | None,
        emitted_at_ms: int,
    ) -> bytes:
        """One notification: `{"method":…,"params":…,"emittedAtMs":…,"cursor":"…"}`, the last if there is one."""
        self.count += 1
        message: dict[str, Any] = {"method": method, "params": plain(params), "emittedAtMs": emitted_at_ms}
        if cursor is not None:
            message["cursor"] = cursor.encode()
        return encode(message)

    def request(self, request_id: int, method: str, params: Mapping[str, Any]) -> bytes:
        """One server request: `{"id":…,"method":…,"params":…}` (wire §6)."""
        self.count += 1
        return encode({"id": request_id, "method": method, "params": plain(params)})


def plain(params: WireModel | Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON form of parameters, with the names of the wire."""
    if isinstance(params, WireModel):
        dumped: dict[str, Any] = params.model_dump(by_alias=True, mode="json")
        return dumped
    return params


def with_jsonrpc(body: bytes) -> bytes:
    """The same message with the `jsonrpc` member in front, for clients that send it themselves."""
    return _JSONRPC + body[1:]


def without_cursor(body: bytes, cursor: EventCursor) -> bytes:
    """The same message for those who do not follow the thread: a cursor would be no place that they have reached."""
    return body.removesuffix(b',"cursor":"' + cursor.encode().encode() + b'"}') + b"}"


def as_replayed(body: bytes) -> bytes:
    """The same message, marked as one that tells of the past."""
    return body[:-1] + _REPLAYED
