"""Envelopes: one encoding per event, spliced members."""

import json

from unspool_protocol.base import WireModel
from unspool_protocol.cursors import EventCursor
from unspool_server.events.encoding import Encoder, as_replayed, with_jsonrpc


class Params(WireModel):
    thread_id: str


CURSOR = EventCursor("r", 3, 1)


def test_an_event_carries_its_cursor_beside_its_parameters() -> None:
    body = Encoder().encode("turn/started", Params(thread_id="t"), cursor=CURSOR, emitted_at_ms=7)
    assert json.loads(body) == {
        "method": "turn/started",
        "params": {"threadId": "t"},
        "emittedAtMs": 7,
        "cursor": CURSOR.encode(),
    }


def test_an_event_outside_any_stream_has_no_cursor() -> None:
    body = Encoder().encode("account/updated", {}, cursor=None, emitted_at_ms=7)
    assert json.loads(body) == {"method": "account/updated", "params": {}, "emittedAtMs": 7}


def test_members_are_spliced_into_the_finished_message() -> None:
    body = Encoder().encode("m", {}, cursor=CURSOR, emitted_at_ms=7)
    spliced = with_jsonrpc(as_replayed(body))
    assert spliced.startswith(b'{"jsonrpc":"2.0",')
    assert json.loads(spliced) == {**json.loads(body), "jsonrpc": "2.0", "replayed": True}


def test_requests_are_encoded_with_their_id() -> None:
    assert json.loads(Encoder().request(0, "item/tool/call", {"a": 1})) == {
        "id": 0,
        "method": "item/tool/call",
        "params": {"a": 1},
    }
