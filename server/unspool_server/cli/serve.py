"""`unspool serve`: a WebSocket on this machine, for people who want to try things."""

import click

from unspool_server.cli.options import ConfigFlags, Listen, config_options, run_daemon, server_options

DEFAULT_PORT = 4500


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0: a free one.")
@config_options
def serve(port: int, flags: ConfigFlags) -> None:
    """Serve a WebSocket on 127.0.0.1 and say how to reach it."""
    raise SystemExit(run_daemon(server_options(flags, listen=Listen("ws", "127.0.0.1", port), banner=True)))
