"""A replay's pace and its end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import click
import pytest
from unspool_client import Event, EventStream
from unspool_protocol.cursors import EventCursor
from unspool_server.cli.replay import LONGEST_PAUSE_S, message_of, parse_speed, play

ROLLOUT = "01a22c24-777d-7242-a8d7-2cdfcb8871f7"


def cursor(ordinal: int) -> str:
    return EventCursor(ROLLOUT, ordinal, 0).encode()


def event(ordinal: int, at_ms: int | None) -> Event:
    return Event("item/completed", {"n": ordinal}, cursor(ordinal), replayed=True, emitted_at_ms=at_ms)


async def feed(*events: Event) -> AsyncIterator[Event]:
    for given in events:
        yield given
    await asyncio.Event().wait()


async def played(events: list[Event], **options: Any) -> tuple[list[Event], list[float]]:
    shown: list[Event] = []
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    source = feed(*events)
    async with asyncio.timeout(5):
        await play(cast(EventStream, source), shown.append, **{"quiet_s": 0.05, "end": None, **options}, sleep=sleep)
    await source.aclose()  # type: ignore[attr-defined]
    return shown, pauses


async def test_pauses_are_those_of_the_records_divided_by_the_speed() -> None:
    events = [event(1, 1000), event(2, 3000), event(3, None), event(4, 3500), event(5, 3400)]

    shown, pauses = await played(events, speed=2.0)

    assert shown == events
    assert pauses == [1.0, 0.25, 0.0]


async def test_at_full_speed_nothing_waits() -> None:
    shown, pauses = await played([event(1, 0), event(2, 9000)], speed=0.0)

    assert (len(shown), pauses) == (2, [])


async def test_long_pauses_are_cut() -> None:
    assert (await played([event(1, 0), event(2, 86_400_000)], speed=1.0))[1] == [LONGEST_PAUSE_S]


async def test_the_event_at_the_end_of_the_log_is_the_last_one() -> None:
    shown, _ = await played([event(1, 0), event(2, 0), event(3, 0)], speed=0.0, end=cursor(2), quiet_s=60)

    assert [given.params["n"] for given in shown] == [1, 2]


async def test_live_events_are_no_part_of_a_replay_unless_followed() -> None:
    live = replace(event(2, 0), replayed=False)

    assert (await played([event(1, 0), live], speed=0.0, quiet_s=60))[0] == [event(1, 0)]
    source = feed(event(1, 0), live)
    shown: list[Event] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await play(cast(EventStream, source), shown.append, speed=0.0, end=None, quiet_s=None)
    assert shown == [event(1, 0), live]


@pytest.mark.parametrize(("text", "speed"), [("max", 0.0), ("real", 1.0), ("2.5", 2.5)])
def test_speeds(text: str, speed: float) -> None:
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
