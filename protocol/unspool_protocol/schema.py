"""JSON Schema of everything on the wire and in the log, for other languages (`unspool schema --out DIR`).

One file per group of models, `methods.json`, the index from names to them, and the same as OpenRPC and AsyncAPI.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from unspool_protocol import envelope
from unspool_protocol.asyncapi import asyncapi_document
from unspool_protocol.methods import EXPERIMENTAL_FIELDS, METHODS
from unspool_protocol.notifications import NOTIFICATIONS
from unspool_protocol.openrpc import openrpc_document
from unspool_protocol.records import EVENTS, RECORDS
from unspool_protocol.requests import SERVER_REQUESTS
from unspool_protocol.shapes import definitions_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect that pydantic writes."""


def _groups() -> dict[str, list[type[BaseModel]]]:
    methods: list[type[BaseModel]] = []
    for method in METHODS.values():
        methods += [model for model in (method.params, method.result) if model is not None]
    requests: list[type[BaseModel]] = []
    for request in SERVER_REQUESTS.values():
        requests += [request.params, request.response]
    return {
        "envelope": [envelope.Request, envelope.Notification, envelope.Answer, envelope.ErrorObject],
        "method-models": methods,
        "notifications": [kind.params for kind in NOTIFICATIONS.values()],
        "server-requests": requests,
        "records": [*RECORDS.values(), *EVENTS.values()],
    }


def _schema_of(title: str, models: Iterable[type[BaseModel]]) -> dict[str, Any]:
    return {"$schema": DIALECT, **definitions_of(models, title=title)}


def _ref(group: str, model: type[BaseModel] | None) -> str | None:
    return None if model is None else f"{group}.json#/$defs/{model.__name__}"


def method_index() -> dict[str, Any]:
    """Methods, notifications and server requests by name, each with references to its shapes."""
    return {
        "methods": {
            method.name: {
                "params": _ref("method-models", method.params),
                "result": _ref("method-models", method.result),
                "experimental": method.experimental,
                "experimentalFields": sorted(EXPERIMENTAL_FIELDS.get(method.name, ())),
                "addition": method.ours,
                "description": method.doc,
            }
            for method in METHODS.values()
        },
        "notifications": {
            kind.name: {
                "params": _ref("notifications", kind.params),
                "recorded": kind.recorded,
                "broadcast": kind.broadcast,
            }
            for kind in NOTIFICATIONS.values()
        },
        "serverRequests": {
            request.name: {
                "params": _ref("server-requests", request.params),
                "response": _ref("server-requests", request.response),
            }
            for request in SERVER_REQUESTS.values()
        },
    }


def write_schemas(out: Path, version: str) -> list[Path]:
    """Write all schema files into a folder, which is made if need be.

    Args:
        version: Of the product, for documents that name one.

    Returns:
        The files written, in the order of their names; equal input gives equal bytes.

    Raises:
        OSError: The folder or a file cannot be written.
    """
    documents: dict[str, Mapping[str, Any]] = {
        "methods": method_index(),
        "openrpc": openrpc_document(version),
        "asyncapi": asyncapi_document(version),
    }
    for group, models in _groups().items():
        documents[group] = _schema_of(f"Unspool {group}", models)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name in sorted(documents):
        path = out / f"{name}.json"
        path.write_text(json.dumps(documents[name], indent=2, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
        written.append(path)
    return written
