"""The methods as an OpenRPC document (`rpc.discover`), written out of the models: names, shapes and refusals.

Equal models give an equal document. Notifications and server requests are in `asyncapi`, since OpenRPC knows neither.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from unspool_protocol.errors import ErrorCode
from unspool_protocol.methods import EXPERIMENTAL_FIELDS, METHODS, Method
from unspool_protocol.reference_types import meanings, summary
from unspool_protocol.reference_words import REASONS, REFUSALS
from unspool_protocol.shapes import definitions_of

OPENRPC_VERSION = "1.3.2"
SCHEMAS = "#/components/schemas/{model}"
TITLE = "Unspool"
DESCRIPTION = (
    "JSON-RPC app-server daemon for agent threads. Parameters are given by name. Every error carries a stable "
    "`data.reason`. Members that a server does not know are ignored."
)

_EVERYWHERE = ("invalidParams", "notInitialized", "overloaded", "internal")
"""Refusals that any method may give."""


@functools.cache
def openrpc_document(version: str) -> Mapping[str, Any]:
    """The document.

    Args:
        version: Of the product.
    """
    definitions = definitions_of(_models(), ref_template=SCHEMAS)["$defs"]
    return {
        "openrpc": OPENRPC_VERSION,
        "info": {
            "title": TITLE,
            "version": version,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "methods": [_method(method, definitions) for method in METHODS.values()],
        "components": {
            "schemas": definitions,
            "errors": {reason: _error(reason, code, told) for reason, (code, told) in REASONS.items()},
            "tags": {
                "addition": {"name": "addition", "description": "Not in the protocol of the reference."},
                "experimental": {"name": "experimental", "description": "Needs `capabilities.experimentalApi`."},
            },
        },
    }


def _models() -> Iterator[type[BaseModel]]:
    for method in METHODS.values():
        yield from (model for model in (method.params, method.result) if model is not None)


def _method(method: Method, definitions: Mapping[str, Any]) -> dict[str, Any]:
    gated = EXPERIMENTAL_FIELDS.get(method.name, frozenset())
    tags = [name for name, holds in (("addition", method.ours), ("experimental", method.experimental)) if holds]
    described = {
        "name": method.name,
        "summary": method.doc.removeprefix("Addition: "),
        "paramStructure": "by-name",
        "params": list(_params(method, definitions, gated)),
        "result": {
            "name": "result",
            "description": summary(method.result),
            "schema": {"$ref": SCHEMAS.format(model=method.result.__name__)},
        },
        "errors": [{"$ref": f"#/components/errors/{reason}"} for reason in _refusals(method)],
    }
    return {**described, "tags": [{"$ref": f"#/components/tags/{tag}"} for tag in tags]} if tags else described


def _params(method: Method, definitions: Mapping[str, Any], gated: frozenset[str]) -> Iterator[dict[str, Any]]:
    """One descriptor a member, the required ones first, as the format wants it."""
    if method.params is None:
        return
    shape, told = definitions[method.params.__name__], meanings(method.params)
    required = shape.get("required", ())
    for name, member in sorted(shape.get("properties", {}).items(), key=lambda entry: entry[0] not in required):
        note = "Experimental. " if name in gated else ""
        descriptor: dict[str, Any] = {"name": name, "required": name in required, "schema": member}
        if text := note + told.get(name, ""):
            descriptor["description"] = text.strip()
        yield descriptor


def _refusals(method: Method) -> Iterator[str]:
    for reason in dict.fromkeys((*_EVERYWHERE, *REFUSALS.get(method.name, ()))):
        if reason in REASONS:
            yield reason


def _error(reason: str, code: ErrorCode, told: str) -> dict[str, Any]:
    return {"code": int(code), "message": told, "data": {"reason": reason}}
