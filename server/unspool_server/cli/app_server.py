"""`unspool app-server`: the daemon with the flags of the reference, so that its clients can start it (`wire` §7)."""

from pathlib import Path
from typing import Any, cast

import click

from unspool_server.cli.options import (
    ConfigFlags,
    Failure,
    Listen,
    WebSocketAuth,
    config_options,
    parse_listen,
    run_daemon,
    server_options,
)

AUTH_MODES = ("capability-token", "signed-bearer-token")
FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option(
    "--listen",
    metavar="URL",
    callback=parse_listen,
    default="stdio://",
    show_default=True,
    help="Where clients connect.",
)
@click.option("--stdio", is_flag=True, help="The same as --listen stdio://.")
@config_options
@click.option("--ws-auth", "mode", type=click.Choice(AUTH_MODES), help="How WebSocket clients prove who they are.")
@click.option("--ws-token-file", "token_file", type=FILE, help="Absolute path of the file with the token.")
@click.option("--ws-token-sha256", "token_sha256", metavar="HEX", help="SHA-256 of the token.")
@click.option("--ws-shared-secret-file", "shared_secret_file", type=FILE, help="Absolute path of the JWT secret.")
@click.option("--ws-issuer", "issuer", help="Expected issuer of JWTs.")
@click.option("--ws-audience", "audience", help="Expected audience of JWTs.")
@click.option("--ws-max-clock-skew-seconds", "max_clock_skew_s", type=click.IntRange(min=0), help="Clock tolerance.")
@click.option("--analytics-default-enabled", is_flag=True, hidden=True)
@click.option("--enable", "--disable", "_features", multiple=True, hidden=True)
def app_server(
    listen: Listen,
    stdio: bool,
    flags: ConfigFlags,
    analytics_default_enabled: bool,
    _features: tuple[str, ...],
    **auth: Any,
) -> None:
    """Serve clients over stdio, a WebSocket or a unix socket."""
    options = server_options(flags, listen=Listen("stdio") if stdio else listen, auth=websocket_auth(**auth))
    raise SystemExit(run_daemon(options))


def websocket_auth(
    *,
    mode: str | None,
    token_file: Path | None,
    token_sha256: str | None,
    shared_secret_file: Path | None,
    issuer: str | None,
    audience: str | None,
    max_clock_skew_s: int | None,
) -> WebSocketAuth | None:
    """Check that the flags fit together (`wire` §1: otherwise it does not start, exit 1)."""
    given = [token_file, token_sha256, shared_secret_file, issuer, audience, max_clock_skew_s]
    if mode is None:
        if any(value is not None for value in given):
            raise Failure("Error: --ws-* flags need --ws-auth")
        return None
    if mode == "capability-token":
        if (token_file is None) == (token_sha256 is None):
            raise Failure("Error: --ws-auth capability-token needs --ws-token-file or --ws-token-sha256")
        if any(value is not None for value in given[2:]):
            raise Failure("Error: JWT flags do not go with --ws-auth capability-token")
    else:
        if shared_secret_file is None:
            raise Failure("Error: --ws-auth signed-bearer-token needs --ws-shared-secret-file")
        if token_file is not None or token_sha256 is not None:
            raise Failure("Error: token flags do not go with --ws-auth signed-bearer-token")
    for path in (token_file, shared_secret_file):
        if path is not None and not path.is_absolute():
            raise Failure(f"Error: {path} is no absolute path")
    return WebSocketAuth(
        cast(Any, mode), token_file, token_sha256, shared_secret_file, issuer, audience, max_clock_skew_s
    )
