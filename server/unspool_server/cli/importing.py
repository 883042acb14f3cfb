"""`unspool import`: bring in threads of Codex, Claude Code and Pi, and say what could not be brought."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspool_server.cli.options import ConfigFlags, config_options

if TYPE_CHECKING:
    from unspool_server.importers.bringing import OnFile


@click.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--from",
    "form",
    type=click.Choice(("auto", "codex", "claude", "pi")),
    default="auto",
    show_default=True,
    help="Whose sessions these are.",
)
@click.option("--dry-run", is_flag=True, help="Write nothing; only say what would happen.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
@config_options
def import_command(paths: tuple[Path, ...], *, form: Any, dry_run: bool, as_json: bool, flags: ConfigFlags) -> None:
    """Bring in threads of Codex, Claude Code or Pi: files, sessions folders, or a program's whole home.

    Nothing that is there is changed, and importing twice changes nothing. Status: 0 when everything came over, 1 when
    the report names losses.
    """
    from unspool_server.config_file import resolve_home
    from unspool_server.importers import import_paths

    with _progress(shown=not as_json and sys.stderr.isatty()) as on_file:
        report = import_paths(paths, resolve_home(flags.home), form=form, dry_run=dry_run, on_file=on_file)
    if as_json:
        click.echo(json.dumps(report.as_json(), ensure_ascii=False, indent=2))
    else:
        for line in report.lines():
            click.echo(line)
    raise SystemExit(report.status)


@contextmanager
def _progress(*, shown: bool) -> Iterator["OnFile | None"]:
    """A line on the terminal that counts files while an import runs."""
    if not shown:
        yield None
        return
    from rich.console import Console

    done = 0
    with Console(stderr=True).status("reading files") as status:

        def on_file(file: Any) -> None:
            nonlocal done
            done += 1
            status.update(f"{done} files, now {Path(file.path).name}")

        yield on_file
