"""`unspool serve`: a WebSocket on this machine, for people who want to try things; it demands the home's token."""

import click

from unspool_server.cli.options import (
    ConfigFlags,
    Failure,
    Listen,
    TlsFiles,
    config_options,
    run_daemon,
    server_options,
    tls_options,
)

DEFAULT_PORT = 4500


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0: a free one.")
@click.option("--no-auth", is_flag=True, help="Let everyone on this machine in without a token.")
@click.option("--show-token", is_flag=True, help="Print the token, not only where it is kept.")
@tls_options
@config_options
def serve(port: int, no_auth: bool, show_token: bool, tls: TlsFiles | None, flags: ConfigFlags) -> None:
    """Serve a WebSocket on 127.0.0.1 and say how to reach it.

    Clients need the token that is kept in the home, in the file server-token; those of this machine find it there.
    """
    if no_auth and show_token:
        raise Failure("Error: there is no token with --no-auth")
    options = server_options(
        flags,
        listen=Listen("ws", "127.0.0.1", port),
        banner=True,
        home_token=not no_auth,
        show_token=show_token,
        tls=tls,
    )
    raise SystemExit(run_daemon(options))
