"""What `unspool replay` takes for a speed, and how it prints a message."""

from typing import Any, cast

import click
import pytest
from unspool_client import Event
from unspool_protocol.cursors import EventCursor
from unspool_server.cli.replay import message_of, parse_speed

ROLLOUT = "01a22c24-777d-7242-a8d7-2cdfcb8871f7"


def cursor(ordinal: int) -> str:
    return EventCursor(ROLLOUT, ordinal, 0).encode()


def event(ordinal: int, at_ms: int | None) -> Event:
    return Event("item/completed", {"n": ordinal}, cursor(ordinal), replayed=True, emitted_at_ms=at_ms)


@pytest.mark.parametrize(("text", "speed"), [("max", "max"), ("real", "real"), ("2.5", 2.5)])
def test_speeds(text: str, speed: str | float) -> None:
    assert parse_speed(cast(Any, None), cast(Any, None), text) == speed


@pytest.mark.parametrize("text", ["fast", "0", "-1", "inf", "nan"])
def test_what_is_no_speed_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_speed(cast(Any, None), cast(Any, None), text)


def test_a_message_keeps_its_place_and_time() -> None:
    assert message_of(event(1, 5)) == {
        "method": "item/completed",
        "params": {"n": 1},
        "cursor": cursor(1),
        "emittedAtMs": 5,
    }
    assert message_of(Event("x", {})) == {"method": "x", "params": {}}
