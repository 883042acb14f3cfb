"""`unspool replay`: a thread's events again, as fast as possible or at the pace at which they happened."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from unspool_server.cli.options import ConfigFlags, Remote, config_options, remote_options, server_options

if TYPE_CHECKING:
    from unspool_client import Client, Event, EventStream

Sleep = Callable[[float], Awaitable[None]]

QUIET_S = 1.0
"""After this silence a replay counts as over, where no event stands at the very end of the log."""

LONGEST_PAUSE_S = 30.0
"""Pauses between turns may have been hours; longer ones than this are cut to it."""


def parse_speed(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """Read `max`, `real` or a factor; gives a factor, 0 for `max`. Raises click.BadParameter."""
    if value in ("max", "real"):
        return 0.0 if value == "max" else 1.0
    try:
        factor = float(value)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise click.BadParameter(f"{value!r} is neither max, real nor a factor above 0")
    return factor


@click.command()
@click.argument("thread_id")
@click.option(
    "--speed",
    metavar="max|real|FACTOR",
    callback=parse_speed,
    default="max",
    show_default=True,
    help="The pace: none, as it was, or so many times as fast.",
)
@click.option("--after", metavar="CURSOR", help="Only events after this one.")
@click.option("--follow", is_flag=True, help="Go on with live events until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print each event's message as one line of JSON.")
@config_options
@remote_options
def replay(
    thread_id: str,
    *,
    speed: float,
    after: str | None,
    follow: bool,
    as_json: bool,
    flags: ConfigFlags,
    remote: Remote | None,
) -> None:
    """Show a thread's events again, in order, as clients saw them."""
    from unspool_server.cli import connect
    from unspool_server.cli.exec_text import TextLines

    text = TextLines(show_users=True)

    def show(event: "Event") -> None:
        lines = [json.dumps(message_of(event), ensure_ascii=False)] if as_json else text.take(event)
        for line in lines:
            click.echo(line)

    async def body(client: "Client") -> None:
        thread = await client.resume_thread(thread_id)
        end = None if follow else thread.setup.get("cursor")
        async with thread.events(after) as stream:
            await play(stream, show, speed=speed, end=end, quiet_s=None if follow else QUIET_S)

    connect.run(server_options(flags), remote, body)


async def play(
    stream: "EventStream",
    show: Callable[["Event"], None],
    *,
    speed: float,
    end: str | None,
    quiet_s: float | None,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Show events up to the end of what is recorded.

    Args:
        speed: Factor of the pace at which they happened; 0 means without pauses.
        end: The thread's place when the replay began; an event there or beyond is the last one.
        quiet_s: Also end at the first live event or after a silence of so many seconds; None goes on for ever.
    """
    from unspool_client.event import order

    before: int | None = None
    while True:
        try:
            async with asyncio.timeout(quiet_s):
                event = await anext(stream)
        except (TimeoutError, StopAsyncIteration):
            return
        if quiet_s is not None and event.cursor is not None and not event.replayed:
            return
        if speed and before is not None and event.emitted_at_ms is not None:
            pause_s = max(0, event.emitted_at_ms - before) / 1000 / speed
            await sleep(min(pause_s, LONGEST_PAUSE_S))
        before = event.emitted_at_ms if event.emitted_at_ms is not None else before
        show(event)
        if quiet_s is not None and end is not None and event.cursor is not None:
            place = order(event.cursor, end)
            if place is not None and place >= 0:
                return


def message_of(event: "Event") -> dict[str, Any]:
    """The event's message as it was on the wire."""
    message: dict[str, Any] = {"method": event.method, "params": event.params}
    if event.cursor is not None:
        message["cursor"] = event.cursor
    if event.emitted_at_ms is not None:
        message["emittedAtMs"] = event.emitted_at_ms
    return message
