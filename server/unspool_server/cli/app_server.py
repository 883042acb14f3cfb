"""`unspool app-server`: the daemon with the flags of the reference, so that its clients can start it (`wire` §7)."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click

from unspool_server.cli.options import (
    ConfigFlags,
    Failure,
    Listen,
    TlsFiles,
    WebSocketAuth,
    config_options,
    parse_listen,
    run_daemon,
    server_options,
    tls_options,
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
@tls_options
@click.option("--analytics-default-enabled", is_flag=True, hidden=True)
@click.option("--enable", "--disable", "_features", multiple=True, hidden=True)
def app_server(
    listen: Listen,
    stdio: bool,
    flags: ConfigFlags,
    tls: TlsFiles | None,
    analytics_default_enabled: bool,
    _features: tuple[str, ...],
    **auth: Any,
) -> None:
    """Serve clients over stdio, a WebSocket or a unix socket."""
    options = server_options(flags, listen=Listen("stdio") if stdio else listen, auth=websocket_auth(**auth), tls=tls)
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
    """Check that the flags fit together (`wire` §1: otherwise it does not start, exit 1). Texts are the reference's."""
    given = [token_file, token_sha256, shared_secret_file, issuer, audience, max_clock_skew_s]
    if mode is None:
        if any(value is not None for value in given):
            raise Failure(
                "Error: websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`"
            )
        return None
    if mode == "capability-token":
        _check_capability(token_file, token_sha256, given[2:])
    else:
        if token_file is not None or token_sha256 is not None:
            raise Failure(
                "Error: `--ws-token-file` and `--ws-token-sha256` require `--ws-auth capability-token`, "
                "not `signed-bearer-token`"
            )
        if shared_secret_file is None:
            raise Failure("Error: `--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set")
    return WebSocketAuth(
        cast(Any, mode), _absolute(token_file), token_sha256, _absolute(shared_secret_file), issuer, audience,
        max_clock_skew_s,
    )  # fmt: skip


def _check_capability(token_file: Path | None, token_sha256: str | None, of_other_mode: Sequence[object]) -> None:
    if any(value is not None for value in of_other_mode):
        raise Failure(
            "Error: `--ws-shared-secret-file`, `--ws-issuer`, `--ws-audience`, and `--ws-max-clock-skew-seconds` "
            "require `--ws-auth signed-bearer-token`"
        )
    if token_file is not None and token_sha256 is not None:
        raise Failure("Error: `--ws-token-file` and `--ws-token-sha256` are mutually exclusive")
    if token_file is None and token_sha256 is None:
        raise Failure(
            "Error: `--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set"
        )
    if token_sha256 is not None and re.fullmatch(r"[0-9a-fA-F]{64}", token_sha256) is None:
        raise Failure("Error: --ws-token-sha256 must be a 64-character hex SHA-256 digest")


def _absolute(path: Path | None) -> Path | None:
    return path.absolute() if path is not None else None
