"""Cursors survive encoding, keep their order, and foreign text is refused."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unspool_protocol.cursors import EventCursor

ROLLOUT = "01a22ba2-51a5-78a3-b96a-49d53c171f6f"
NUMBERS = st.integers(min_value=0, max_value=2**63)


@given(st.uuids(), NUMBERS, NUMBERS)
def test_decoding_gives_back_what_was_encoded(rollout: object, ordinal: int, counter: int) -> None:
    cursor = EventCursor(str(rollout), ordinal, counter)
    assert EventCursor.decode(cursor.encode()) == cursor


@given(NUMBERS, NUMBERS)
def test_encoded_cursors_are_safe_in_urls_and_unpadded(ordinal: int, counter: int) -> None:
    text = EventCursor(ROLLOUT, ordinal, counter).encode()
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_order_is_by_ordinal_then_counter() -> None:
    places = [(2, 0), (1, 10), (10, 0), (1, 2)]
    cursors = sorted((EventCursor(ROLLOUT, o, c) for o, c in places), key=lambda cursor: cursor.key)
    assert [cursor.key for cursor in cursors] == [(1, 2), (1, 10), (2, 0), (10, 0)]


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "garbage!",
        "é",
        "2026-11-30T08:47:15.339Z",
        _encoded("2:r:1:2"),
        _encoded("1:r:1"),
        _encoded("1::1:2"),
        _encoded("1:r:-1:2"),
        _encoded("1:r:1:x"),
        _encoded("1:r:1:2:3"),
        base64.urlsafe_b64encode(b"\xff\xfe\xfd").decode(),
    ],
)
def test_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an event cursor"):
        EventCursor.decode(text)
