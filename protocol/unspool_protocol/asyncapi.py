"""Notifications and server requests as an AsyncAPI document, written out of the models.

Methods are in `openrpc`. Seen from the server: it sends notifications, and requests that a client answers.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from unspool_protocol.notifications import NOTIFICATIONS, NotificationKind
from unspool_protocol.openrpc import SCHEMAS, TITLE
from unspool_protocol.reference_types import summary
from unspool_protocol.requests import SERVER_REQUESTS, ServerRequest
from unspool_protocol.shapes import definitions_of

ASYNCAPI_VERSION = "3.0.0"
_CHANNEL = {"$ref": "#/channels/connection"}
_NOTE = "Recorded events come again, with the same cursor, whenever a thread is replayed; ephemeral ones do not."


@functools.cache
def asyncapi_document(version: str) -> Mapping[str, Any]:
    """The document.

    Args:
        version: Of the product.
    """
    messages = {_id(kind.name): _notification(kind) for kind in NOTIFICATIONS.values()}
    for request in SERVER_REQUESTS.values():
        messages |= {_id(request.name): _request(request), f"{_id(request.name)}.answer": _answer(request)}
    return {
        "asyncapi": ASYNCAPI_VERSION,
        "info": {"title": f"{TITLE} events", "version": version, "description": _NOTE},
        "defaultContentType": "application/json",
        "servers": {"local": {"host": "127.0.0.1:4500", "protocol": "ws"}},
        "channels": {
            "connection": {
                "address": "/",
                "description": "One JSON object a text frame; over stdio one object a line.",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
            }
        },
        "operations": dict(_operations()),
        "components": {"messages": messages, "schemas": definitions_of(_models(), ref_template=SCHEMAS)["$defs"]},
    }


def _models() -> Iterator[type[BaseModel]]:
    for kind in NOTIFICATIONS.values():
        yield kind.params
    for request in SERVER_REQUESTS.values():
        yield from (request.params, request.response)


def _operations() -> Iterator[tuple[str, dict[str, Any]]]:
    notifications = [_of_channel(_id(kind.name)) for kind in NOTIFICATIONS.values()]
    yield "notify", {"action": "send", "channel": _CHANNEL, "messages": notifications}
    for request in SERVER_REQUESTS.values():
        name = _id(request.name)
        reply = {"channel": _CHANNEL, "messages": [_of_channel(f"{name}.answer")]}
        yield name, {"action": "send", "channel": _CHANNEL, "messages": [_of_channel(name)], "reply": reply}


def _of_channel(name: str) -> dict[str, str]:
    return {"$ref": f"#/channels/connection/messages/{name}"}


def _id(method: str) -> str:
    """A method's name as a key of the document, which takes no slashes."""
    return re.sub(r"[^\w.-]", ".", method)


def _notification(kind: NotificationKind) -> dict[str, Any]:
    members = {
        "emittedAtMs": {"type": "integer"},
        **({"cursor": {"type": "string"}, "replayed": {"const": True}} if not kind.broadcast or kind.recorded else {}),
    }
    tags = ["recorded" if kind.recorded else "ephemeral", *(["broadcast"] if kind.broadcast else [])]
    return {
        "name": kind.name,
        "summary": summary(kind.params),
        "tags": [{"name": tag} for tag in tags],
        "payload": _envelope(kind.name, kind.params, members),
    }


def _request(request: ServerRequest) -> dict[str, Any]:
    payload = _envelope(request.name, request.params, {"id": {"type": "integer"}}, required=("id",))
    return {"name": request.name, "summary": summary(request.params), "payload": payload}


def _answer(request: ServerRequest) -> dict[str, Any]:
    result = {"$ref": SCHEMAS.format(model=request.response.__name__)}
    payload = {"type": "object", "properties": {"id": {"type": "integer"}, "result": result}, "required": ["id"]}
    return {"name": f"{request.name} answer", "summary": summary(request.response), "payload": payload}


def _envelope(
    method: str, params: type[BaseModel], members: Mapping[str, Any], *, required: tuple[str, ...] = ()
) -> dict[str, Any]:
    shape = {"$ref": SCHEMAS.format(model=params.__name__)}
    return {
        "type": "object",
        "properties": {"method": {"const": method}, "params": shape, **members},
        "required": ["method", "params", *required],
    }
