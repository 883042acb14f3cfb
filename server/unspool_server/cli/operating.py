"""`unspool health`, `doctor` and `stop`: ask a running server itself, or look at a home; no state file is believed."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from unspool_server.cli.options import ConfigFlags, Failure, Remote, config_options, remote_options, server_options

DEFAULT_URL = "http://127.0.0.1:4500"
_HEALTH_S = 2.0
_CERTAIN_S = 10.0
"""How much longer than its drain may take a server is waited for."""


@click.command()
@click.argument("url", default=DEFAULT_URL)
@click.option("--ready", is_flag=True, help="Ask /readyz: not while it drains.")
def health(url: str, ready: bool) -> None:
    """Ask a WebSocket listener whether it lives. URL is http[s]:// or ws[s]://. Exit status: 0 yes, 1 no."""
    import http.client
    import ssl

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or not host.isprintable() or " " in host or parts.scheme not in ("http", "https", "ws", "wss"):
        raise click.UsageError(f"{url!r} is no http:// or ws:// address")
    path = "/readyz" if ready else "/healthz"
    if parts.scheme in ("https", "wss"):
        # Nothing is sent or believed but the status, so a certificate of the operator's own making is good enough.
        context = ssl._create_unverified_context()
        asked: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=_HEALTH_S, context=context)
    else:
        asked = http.client.HTTPConnection(host, port, timeout=_HEALTH_S)
    try:
        asked.request("GET", path)
        status = asked.getresponse().status
    except http.client.HTTPException as error:  # what it says may be anything
        raise Failure(f"no answer from {url} that is HTTP") from error
    except (OSError, UnicodeError) as error:
        raise Failure(f"no answer from {url}: {error}") from error
    finally:
        asked.close()
    if status != 200:
        raise Failure(f"{url}{path} answers {status}")
    click.echo("ready" if ready else "healthy")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_options
@remote_options
def doctor(flags: ConfigFlags, remote: Remote | None, as_json: bool) -> None:
    """Tell how a running server does; without one, look at the home: settings, disk, logs, who holds them.

    Without --remote the server at the home's own socket is asked, if there is one. Exit status: 0 all is well, 1 not.
    """
    options = server_options(flags)
    from unspool_server.cli import connect
    from unspool_server.cli.home_checks import home_report
    from unspool_server.config_file import resolve_home

    remote = remote or _own_socket(resolve_home(options.home))
    if remote is None:
        report = home_report(options)
        _print(report, as_json)
        raise SystemExit(1 if report["faults"] else 0)
    _print(connect.run(options, remote, lambda client: client.call("server/diagnostics", {})), as_json)


@click.command()
@config_options
@remote_options
def stop(flags: ConfigFlags, remote: Remote | None) -> None:
    """End a running server in order and wait until it has said goodbye.

    Without --remote that is the server at the home's own socket.
    """
    import asyncio

    from unspool_client import Client, ConnectionLost

    from unspool_server.cli import connect
    from unspool_server.config_file import resolve_home

    options = server_options(flags)
    remote = remote or _own_socket(resolve_home(options.home))
    if remote is None:
        raise Failure("Error: no server at the home's socket; say where it is with --remote")

    async def ask(client: Client) -> int:
        said = asyncio.Event()
        client.on_notification(lambda event: said.set() if event.method == "connection/closing" else None)
        told = await client.call("server/shutdown")
        try:
            async with asyncio.timeout(told["drainTimeoutMs"] / 1000 + _CERTAIN_S):
                await said.wait()
        except TimeoutError:
            raise ConnectionLost(f"process {told['pid']} was asked to end and has not said goodbye") from None
        return int(told["pid"])

    click.echo(f"process {connect.run(options, remote, ask)} has ended its work")


def _own_socket(home: Path) -> Remote | None:
    """The server at the usual place in the home; a socket that nobody serves is none."""
    import socket

    path = home / "app-server.sock"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(str(path))
    except OSError:
        return None
    return Remote(f"unix://{path}")


def _print(report: Any, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False, indent=2))
        return
    for name, value in report.items():
        if isinstance(value, dict):
            click.echo(f"{name}:")
            for key, inner in value.items():
                click.echo(f"  {key}: {json.dumps(inner, ensure_ascii=False)}")
        elif isinstance(value, list):
            click.echo(f"{name}:" if value else f"{name}: none")
            for inner in value:
                click.echo(f"  {inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)}")
        else:
            click.echo(f"{name}: {value}")
