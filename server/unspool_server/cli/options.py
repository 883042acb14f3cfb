"""Options that several commands share, and what they amount to. Imports nothing heavy."""

import functools
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import click


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a daemon listens (`wire` §1). `path` is None for a unix socket at its usual place in the home."""

    kind: Literal["stdio", "ws", "unix", "off"]
    host: str = ""
    port: int = 0
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class WebSocketAuth:
    """How WebSocket clients prove who they are (`wire` §1); checked for completeness when it is made."""

    mode: Literal["capability-token", "signed-bearer-token"]
    token_file: Path | None = None
    token_sha256: str | None = None
    shared_secret_file: Path | None = None
    issuer: str | None = None
    audience: str | None = None
    max_clock_skew_s: int | None = None


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate (with its chain) and key, PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a daemon is started with.

    Attributes:
        home_token: Demand the home's own token from WebSocket clients.
        show_token: Tell it in the banner.
        home: The flag as given; `config_file.resolve_home` decides.
        config_file: Instead of the home's `config.toml`.
        overrides: Dotted key -> text of a TOML value.
        banner: Tell on stderr how to reach the listener, for people.
    """

    listen: Listen = Listen("stdio")
    home: Path | None = None
    config_file: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    strict_config: bool = False
    auth: WebSocketAuth | None = None
    banner: bool = False
    home_token: bool = False
    show_token: bool = False
    tls: TlsFiles | None = None


@dataclass(frozen=True, slots=True)
class ConfigFlags:
    """The shared flags as given; `settings` are `key=value` texts, later ones win."""

    settings: tuple[str, ...] = ()
    home: Path | None = None
    config_file: Path | None = None
    strict_config: bool = False


class Failure(click.ClickException):
    """Ends the command with status 1 and one line on stderr."""

    def show(self, file: Any = None) -> None:
        """Print the message as it is, as the reference does."""
        click.echo(self.message, err=True, file=file)


def parse_listen(_ctx: click.Context, _param: click.Parameter, value: str) -> Listen:
    """Read `stdio://`, `ws://IP:PORT`, `unix://`, `unix://PATH` or `off`.

    Raises:
        click.BadParameter: Anything else, in the reference's words (status 2); `localhost` is no address (`wire` §1).
    """
    if value == "stdio://":
        return Listen("stdio")
    if value == "off":
        return Listen("off")
    if value.startswith("unix://"):
        path = value.removeprefix("unix://")
        return Listen("unix", path=Path(path) if path else None)
    if value.startswith("ws://"):
        found = _address(value)
        if found is not None:
            return found
        raise click.BadParameter(f"invalid websocket --listen URL `{value}`; expected `ws://IP:PORT`")
    expected = "`stdio://`, `unix://`, `unix://PATH`, `ws://IP:PORT`, or `off`"
    raise click.BadParameter(f"unsupported --listen URL `{value}`; expected {expected}")


def _address(url: str) -> Listen | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return None if port is None or parts.path not in ("", "/") or parts.query else Listen("ws", host, port)


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-c`, `--home`, `--config`, `--strict-config`, handed over together as `flags`."""

    @functools.wraps(command)
    def collected(
        *args: Any,
        set_values: tuple[str, ...],
        configs: tuple[str, ...],
        home: Path | None,
        strict_config: bool,
        log_format: str | None,
        **rest: Any,
    ) -> Any:
        # The reference spells `-c` also `--config KEY=VALUE`, and its SDK puts them before the command's name.
        inherited: tuple[str, ...] = click.get_current_context().find_root().obj or ()
        files = [value for value in configs if not _is_setting(value)]
        settings = (*inherited, *(value for value in configs if _is_setting(value)), *set_values)
        settings += () if log_format is None else (f"logging.format={log_format}",)
        flags = ConfigFlags(settings, home, Path(files[-1]) if files else None, strict_config)
        return command(*args, flags=flags, **rest)

    for option in (
        click.option(
            "--log-format", type=click.Choice(("console", "json")), help="How lines on stderr look; logging.format."
        ),
        click.option("--strict-config", is_flag=True, help="Refuse settings that mean nothing."),
        click.option(
            "--config",
            "configs",
            multiple=True,
            metavar="FILE|KEY=VALUE",
            help="Read this file instead of the home's config.toml; with a key, the same as -c.",
        ),
        click.option("--home", type=click.Path(path_type=Path, file_okay=False), help="Where threads are kept."),
        click.option("-c", "set_values", multiple=True, metavar="KEY=VALUE", help="Override a setting; a TOML value."),
    ):
        collected = option(collected)
    return collected


def _is_setting(value: str) -> bool:
    """Whether a `--config` value is `key=value` rather than a path."""
    return re.match(r"[A-Za-z0-9_.\-]+=", value) is not None and not value.startswith(".")


@dataclass(frozen=True, slots=True)
class Remote:
    """A running server to use, and where the token for it comes from; at most one of the two is given."""

    url: str
    token_env: str | None = None
    token_file: Path | None = None


def remote_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--remote` and its token, handed over together as `remote`; None without `--remote`."""

    @functools.wraps(command)
    def collected(*args: Any, remote: str | None, token_env: str | None, token_file: Path | None, **rest: Any) -> Any:
        if token_env is not None and token_file is not None:
            raise click.UsageError("--remote-auth-token-env and --token-file exclude each other")
        return command(*args, remote=Remote(remote, token_env, token_file) if remote else None, **rest)

    for option in (
        click.option("--token-file", type=click.Path(path_type=Path), help="File with the server's bearer token."),
        click.option(
            "--remote-auth-token-env",
            "token_env",
            metavar="ENV_VAR",
            help="Variable that holds the server's bearer token.",
        ),
        click.option("--remote", metavar="URL", help="Use a running server: ws[s]://HOST:PORT or unix://PATH."),
    ):
        collected = option(collected)
    return collected


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--tls-cert` and `--tls-key`, handed over together as `tls`."""

    @functools.wraps(command)
    def collected(*args: Any, tls_cert: Path | None, tls_key: Path | None, **rest: Any) -> Any:
        if (tls_cert is None) != (tls_key is None):
            raise Failure("Error: --tls-cert and --tls-key go together")
        tls = None if tls_cert is None or tls_key is None else TlsFiles(tls_cert.absolute(), tls_key.absolute())
        return command(*args, tls=tls, **rest)

    file = click.Path(path_type=Path, dir_okay=False)
    key = click.option("--tls-key", type=file, help="PEM file with the certificate's key.")
    return click.option("--tls-cert", type=file, help="PEM file with a certificate: clients use wss://.")(
        key(collected)
    )


def server_options(flags: ConfigFlags, *, listen: Listen = Listen("off"), **rest: Any) -> ServerOptions:
    """Put everything together; `rest` are further members of `ServerOptions`. Raises Failure for a `-c` without `=`."""
    settings = overrides(flags.settings)
    return ServerOptions(
        listen=listen,
        home=flags.home,
        config_file=flags.config_file,
        overrides=settings,
        strict_config=flags.strict_config,
        **rest,
    )


def overrides(settings: tuple[str, ...]) -> dict[str, str]:
    """Split `-c` flags. Raises Failure for one without `=`."""
    from unspool_server.config_base import ConfigError
    from unspool_server.config_file import parse_flags

    try:
        return parse_flags(settings)
    except ConfigError as error:
        raise Failure(f"Error parsing -c overrides: {error.message}") from error


def run_daemon(options: ServerOptions) -> int:
    """Run a daemon until it ends; gives its exit status.

    Raises:
        Failure: The configuration or the listener was refused.
    """
    from unspool_server.cli import daemon
    from unspool_server.config_base import ConfigError
    from unspool_server.errors import UnspoolError

    try:
        return int(daemon.run(options) or 0)
    except ConfigError as error:
        raise Failure(f"Error loading config.toml: {error.message}") from error
    except UnspoolError as error:
        raise Failure(f"Error: {error}") from error
