"""The OpenRPC and AsyncAPI documents are valid by their formats' own schemas and leave nothing out."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator
from unspool_protocol.asyncapi import asyncapi_document
from unspool_protocol.methods import METHODS
from unspool_protocol.notifications import NOTIFICATIONS
from unspool_protocol.openrpc import openrpc_document
from unspool_protocol.reference_words import REASONS
from unspool_protocol.requests import SERVER_REQUESTS

DIALECT, DRAFT_7 = "https://meta.json-schema.tools", "http://json-schema.org/draft-07/schema#"
METASCHEMAS = Path(__file__).parents[1] / "fixtures" / "metaschemas"
OPENRPC, ASYNCAPI = openrpc_document("1.2.3"), asyncapi_document("1.2.3")


def complaints(name: str, document: Mapping[str, Any]) -> list[str]:
    """What the format's own schema says against a document."""
    text = (METASCHEMAS / name).read_text("utf-8")
    # The format refers to a dialect of its own for schemas inside, which is draft 7 and cannot be fetched here.
    text = text.replace(f"{DIALECT}/#/definitions/JSONSchemaObject/properties/$ref", f"{DRAFT_7}/properties/$ref")
    schema = json.loads(text.replace(DIALECT, DRAFT_7))
    shown = json.loads(json.dumps(document))
    errors = Draft7Validator(schema).iter_errors(shown)
    return [f"{list(error.absolute_path)}: {error.message[:300]}" for error in errors]


def references(node: Any) -> Iterator[str]:
    """Every `$ref` inside."""
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for inner in node.values():
            yield from references(inner)
    elif isinstance(node, list | tuple):
        for inner in node:
            yield from references(inner)


def found(document: Mapping[str, Any], reference: str) -> Any:
    """What a reference leads to. Raises KeyError."""
    node: Any = document
    for step in reference.removeprefix("#/").split("/"):
        node = node[step]
    return node


def test_the_openrpc_document_is_valid() -> None:
    assert complaints("openrpc.json", OPENRPC) == []


def test_the_asyncapi_document_is_valid() -> None:
    assert complaints("asyncapi.json", ASYNCAPI) == []


def test_a_document_with_a_mistake_is_told() -> None:
    broken = {**OPENRPC, "methods": [{**OPENRPC["methods"][0], "params": "none"}]}
    assert complaints("openrpc.json", broken)
    assert complaints("asyncapi.json", {**ASYNCAPI, "channels": []})


def test_every_reference_leads_somewhere() -> None:
    for document in (OPENRPC, ASYNCAPI):
        for reference in set(references(document)):
            assert found(document, reference) is not None


def test_every_method_is_described_with_its_members_and_refusals() -> None:
    described = {method["name"]: method for method in OPENRPC["methods"]}
    assert list(described) == list(METHODS)
    start = described["turn/start"]
    assert [one["name"] for one in start["params"] if one["required"]] == ["threadId", "input"]
    assert {one["name"] for one in start["params"]} >= {"model", "cwd", "outputSchema"}
    refused = {reference.rpartition("/")[2] for reference in references(described["thread/fork"]["errors"])}
    assert {"noRollout", "turnNotFound", "invalidParams", "overloaded"} <= refused
    assert set(OPENRPC["components"]["errors"]) == set(REASONS)
    added = {
        name for name, method in described.items() if {"$ref": "#/components/tags/addition"} in method.get("tags", [])
    }
    assert added == {name for name, method in METHODS.items() if method.ours}


def test_every_notification_and_server_request_is_described() -> None:
    messages = ASYNCAPI["components"]["messages"].values()
    named = {message["name"]: message for message in messages}
    assert set(NOTIFICATIONS) | set(SERVER_REQUESTS) <= set(named)
    for name, kind in NOTIFICATIONS.items():
        assert named[name]["payload"]["properties"]["method"] == {"const": name}
        tags = {tag["name"] for tag in named[name]["tags"]}
        assert ("recorded" in tags, "broadcast" in tags) == (kind.recorded, kind.broadcast)
    assert len(ASYNCAPI["operations"]) == 1 + len(SERVER_REQUESTS)
