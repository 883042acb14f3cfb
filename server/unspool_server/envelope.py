"""Message bytes to typed envelopes and back (`wire` §2). Pure; knows no method and no connection."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import BaseModel
from unspool_protocol.errors import ErrorCode

MessageId = str | int
"""What may identify a request: text, or a signed 64-bit integer."""

_ID_RANGE = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Request:
    """A message that is owed exactly one answer. `params` is as received; None also stands for an absent member."""

    id: MessageId
    method: str
    params: Any
    jsonrpc: bool


@dataclass(frozen=True, slots=True)
class Notification:
    """A message that is never answered."""

    method: str
    params: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A client's answer to a request of ours; `message` has `result` or `error`. `id` is None when it is unusable."""

    id: MessageId | None
    message: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Malformed:
    """No message at all; gets an error with `id` where that could be read, else with a null id."""

    id: MessageId | None
    code: ErrorCode
    message: str
    reason: str


Envelope = Request | Notification | Answer | Malformed


class NotJson(ValueError):
    """Bytes that are no JSON text."""


def parse(raw: bytes | str) -> Envelope:
    """Read one message. Never raises: what cannot be read becomes `Malformed`."""
    lossy = False
    try:
        message = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            message, lossy = _loads_with_surrogates(raw), True
        except NotJson as error:
            return Malformed(None, ErrorCode.PARSE_ERROR, f"Parse error: {error}", "parseError")
    return _classify(message, lossy)


def encode(message: Mapping[str, Any]) -> bytes:
    """Encode a message body, without the `jsonrpc` member.

    Text of old logs may hold lone surrogates, and numbers may exceed 64 bits; those go through the standard library.

    Raises:
        TypeError, ValueError: A value that JSON cannot hold.
    """
    try:
        return orjson.dumps(message, default=_plain)
    except TypeError:
        return json.dumps(message, separators=(",", ":"), allow_nan=False, default=_plain).encode()


def result_message(request_id: MessageId, result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request that was served."""
    return {"id": request_id, "result": result}


def error_message(
    request_id: MessageId | None, code: int, message: str, data: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The answer to a request that was refused; the id is null where none could be read."""
    error: dict[str, Any] = {"code": int(code), "message": message}
    if data is not None:
        error["data"] = data
    return {"id": request_id, "error": error}


def _plain(value: Any) -> Any:
    """The JSON form of message parts inside a result."""
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _classify(message: Any, lossy: bool) -> Envelope:
    if isinstance(message, list):
        return _invalid(None, "batches are not supported", "batch")
    if not isinstance(message, dict):
        return _invalid(None, "expected an object", "notAnObject")
    request_id = _readable_id(message.get("id"))
    method = message.get("method")
    if "method" not in message and ("result" in message or "error" in message):
        # Never answered, not even when malformed: two peers would send each other errors for ever.
        return Answer(request_id, _without_surrogates(message) if lossy else message)
    if lossy:
        return _invalid(request_id, "a string holds a lone surrogate", "invalidUnicode")
    if "id" in message and request_id is None:
        return _invalid(None, "id must be a string or a 64-bit integer", "invalidId")
    if "method" not in message:
        return _invalid(request_id, "missing field `method`", "missingMethod")
    if not isinstance(method, str):
        return _invalid(request_id, "method must be a string", "invalidMethod")
    if request_id is None:
        return Notification(method, message.get("params"))
    return Request(request_id, method, message.get("params"), "jsonrpc" in message)


def _invalid(request_id: MessageId | None, text: str, reason: str) -> Malformed:
    return Malformed(request_id, ErrorCode.INVALID_REQUEST, f"Invalid request: {text}", reason)


def _readable_id(value: Any) -> MessageId | None:
    if isinstance(value, str):
        return value if _is_unicode(value) else None
    if isinstance(value, int) and not isinstance(value, bool) and value in _ID_RANGE:
        return value
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _loads_with_surrogates(raw: bytes | str) -> Any:
    """Read JSON that orjson refuses; what the standard library accepts beyond it are lone surrogates only."""
    try:
        text = raw if isinstance(raw, str) else raw.decode()
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except NotJson:
        raise
    except RecursionError:
        raise NotJson("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at character {error.pos}") from None
    except UnicodeDecodeError as error:
        raise NotJson(f"invalid UTF-8 at byte {error.start}") from None
    except ValueError:
        raise NotJson("a number is out of range") from None


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NotJson("a number is out of range")
    return value


def _refuse_constant(name: str) -> Any:
    raise NotJson(f"{name} is no JSON value")


def _without_surrogates(value: Any) -> Any:
    """The same JSON value with U+FFFD for every lone surrogate, so that the answer is not lost to its asker."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value
