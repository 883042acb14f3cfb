"""`unspool replay`: a thread's events again, as fast as possible or at the pace at which they happened.

The server keeps the pace; the thread is neither loaded nor kept loaded for it.
"""

import json
from typing import TYPE_CHECKING, Any

import click

from unspool_server.cli.options import ConfigFlags, Remote, config_options, remote_options, server_options

if TYPE_CHECKING:
    from unspool_client import Client, Event


def parse_speed(_ctx: click.Context, _param: click.Parameter, value: str) -> str | float:
    """Read `max`, `real` or a factor. Raises click.BadParameter."""
    if value in ("max", "real"):
        return value
    try:
        factor = float(value)
    except ValueError:
        factor = 0.0
    if not 0 < factor <= 1_000_000:
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
    help="The pace: none, as it was (pauses cut to 5 seconds), or so many times as fast.",
)
@click.option("--after", metavar="CURSOR", help="Only events after this one.")
@click.option("--item-kind", "item_kinds", metavar="TYPE", multiple=True, help="Of items only these types; repeatable.")
@click.option("--follow", is_flag=True, help="Go on with live events until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print each event's message as one line of JSON.")
@config_options
@remote_options
def replay(
    thread_id: str,
    *,
    speed: str | float,
    after: str | None,
    item_kinds: tuple[str, ...],
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
        async with await client.subscribe(thread_id, after, item_kinds=item_kinds or None, speed=speed) as stream:
            async for event in stream:
                if event.method != "thread/replay/completed":
                    show(event)
                elif not follow:
                    return

    connect.run(server_options(flags), remote, body)


def message_of(event: "Event") -> dict[str, Any]:
    """The event's message as it was on the wire."""
    message: dict[str, Any] = {"method": event.method, "params": event.params}
    if event.cursor is not None:
        message["cursor"] = event.cursor
    if event.emitted_at_ms is not None:
        message["emittedAtMs"] = event.emitted_at_ms
    return message
