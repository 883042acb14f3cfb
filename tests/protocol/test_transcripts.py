"""Every recorded message of the reference fits its model, and nothing is lost on the way through it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from unspool_protocol import envelope
from unspool_protocol.methods import METHODS
from unspool_protocol.notifications import NOTIFICATIONS
from unspool_protocol.requests import SERVER_REQUESTS

TRANSCRIPTS = sorted((Path(__file__).parents[1] / "fixtures" / "transcripts").glob("*.jsonl"))
UNMODELLED = {"supportsIndependentSpeedModes", "featuredPluginIds"}
"""Members of "out" answers that no client needs."""


@dataclass(frozen=True)
class Exchange:
    """One request with its answer, if there was one."""

    method: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any] | None


def messages(path: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Connection, direction and message of every entry that holds a JSON object."""
    for line in path.read_text("utf-8").splitlines():
        entry = json.loads(line)
        if isinstance(entry.get("msg"), dict):
            yield entry["conn"], entry["dir"], entry["msg"]


def exchanges(path: Path, asker: str) -> Iterator[Exchange]:
    """Requests from one side (`c2s`, `s2c`) with the answers of the other."""
    open_requests: dict[tuple[str, str], Mapping[str, Any]] = {}
    for conn, direction, message in messages(path):
        key = (conn, json.dumps(message.get("id")))
        if direction == asker and "method" in message and "id" in message:
            open_requests[key] = message
        elif direction != asker and "method" not in message and key in open_requests:
            request = open_requests.pop(key)
            yield Exchange(request["method"], request, message)
    for request in open_requests.values():
        yield Exchange(request["method"], request, None)


def lost(original: Any, dumped: Any, place: str = "") -> list[str]:
    """Places where the original says something that the dump does not."""
    if isinstance(original, dict) and isinstance(dumped, dict):
        found = []
        for name, value in original.items():
            if name in dumped:
                found += lost(value, dumped[name], f"{place}.{name}")
            elif name not in UNMODELLED:
                found.append(f"{place}.{name}")
        return found
    if isinstance(original, list) and isinstance(dumped, list) and len(original) == len(dumped):
        return [
            place_
            for i, (a, b) in enumerate(zip(original, dumped, strict=True))
            for place_ in lost(a, b, f"{place}[{i}]")
        ]
    return [] if original == dumped else [f"{place}: {original!r} != {dumped!r}"]


def through(model: type[BaseModel], value: Any) -> Any:
    """Parse by the rules of JSON, dump as it goes on the wire."""
    return model.model_validate_json(json.dumps(value)).model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_notifications_pass_their_models_without_loss(path: Path) -> None:
    for _, direction, message in messages(path):
        if direction == "s2c" and "method" in message and "id" not in message:
            kind = NOTIFICATIONS[message["method"]]
            assert lost(message["params"], through(kind.params, message["params"])) == [], message["method"]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_results_pass_their_models_without_loss(path: Path) -> None:
    for exchange in exchanges(path, "c2s"):
        method = METHODS.get(exchange.method)
        if method is None or exchange.answer is None or "result" not in exchange.answer:
            continue
        result = exchange.answer["result"]
        assert lost(result, through(method.result, result)) == [], exchange.method


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_server_requests_and_their_answers_pass_without_loss(path: Path) -> None:
    for exchange in exchanges(path, "s2c"):
        row = SERVER_REQUESTS[exchange.method]
        assert lost(exchange.request["params"], through(row.params, exchange.request["params"])) == []
        if exchange.answer is not None and "result" in exchange.answer:
            result = exchange.answer["result"]
            assert lost(result, through(row.response, result)) == []


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_parameters_are_refused_exactly_where_the_reference_refused_them(path: Path) -> None:
    for exchange in exchanges(path, "c2s"):
        method = METHODS.get(exchange.method)
        if method is None or method.params is None or method.ours or exchange.answer is None:
            continue
        text = exchange.answer.get("error", {}).get("message", "")
        malformed = text.startswith("Invalid request:")
        try:
            method.params.model_validate_json(json.dumps(exchange.request.get("params")), strict=True)
        except ValidationError:
            assert malformed, exchange.request
        else:
            assert not malformed, (exchange.request, text)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_envelopes_keep_ids_methods_and_errors(path: Path) -> None:
    for _, direction, message in messages(path):
        if "method" in message and "id" in message:
            if isinstance(message["id"], str | int) and not isinstance(message["id"], bool) and direction == "s2c":
                assert lost(message, through(envelope.Request, message)) == []
        elif "method" in message:
            dumped = through(envelope.Notification, message)
            assert lost({k: v for k, v in message.items() if k != "jsonrpc"}, dumped) == []
        elif "error" in message and "id" in message:
            assert lost(message["error"], through(envelope.Answer, message)["error"]) == []


def test_all_twenty_transcripts_are_here() -> None:
    assert len(TRANSCRIPTS) == 20
