"""`unspool verify` and `unspool repair`: look at stored logs without a daemon; `repair` writes new files only."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from unspool_server.cli.options import ConfigFlags, config_options

if TYPE_CHECKING:
    from unspool_protocol.findings import Finding, RepairResult, ThreadVerifyResult

T = TypeVar("T")
_USAGE, _FOUND = 2, 1


@click.command()
@click.argument("target", required=False, metavar="[PATH|ID]")
@click.option("--all", "everything", is_flag=True, help="Every thread of the home.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_options
def verify(target: str | None, everything: bool, as_json: bool, flags: ConfigFlags) -> None:
    """Check logs for damage. Exit status: 0 nothing is lost, 1 something is, 2 wrong usage."""
    if everything == (target is not None):
        raise click.UsageError("give one PATH or ID, or --all")
    from unspool_server.cli import log_checks
    from unspool_server.config_file import resolve_home

    home = resolve_home(flags.home)
    if everything:
        results, strays = _run(lambda: log_checks.verify_all(home))
        if as_json:
            shown = {"threads": [_plain(one) for one in results], "stray": [_plain(one) for one in strays]}
            click.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        else:
            for one in results:
                _tell(one)
            for stray in strays:
                click.echo(_line(stray))
    else:
        assert target is not None
        results = [_run(lambda: log_checks.verify_target(target, home))]
        if as_json:
            click.echo(json.dumps(_plain(results[0]), ensure_ascii=False, indent=2))
        else:
            _tell(results[0])
    sys.exit(_FOUND if any(one.summary.errors for one in results) else 0)


@click.command()
@click.argument("target", metavar="PATH|ID")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the clean file here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_options
def repair(target: str, out: Path | None, as_json: bool, flags: ConfigFlags) -> None:
    """Write a clean copy of a damaged log beside it, and say what could not be kept. The old file stays as it is.

    For a thread of the home the copy becomes its present; for a file elsewhere it is NAME.repaired.jsonl.
    """
    from unspool_server.cli import log_checks
    from unspool_server.config_file import resolve_home

    result = _run(lambda: log_checks.repair_target(target, resolve_home(flags.home), out))
    if as_json:
        click.echo(json.dumps(_plain(result), ensure_ascii=False, indent=2))
    else:
        _tell_repair(result)


def _run(work: Callable[[], Awaitable[T]]) -> T:
    """Run something to its end; what it refuses is told in one line. Exit status 2: the target cannot be looked at."""
    from unspool_server.errors import UnspoolError

    async def body() -> T:
        return await work()

    try:
        return asyncio.run(body())
    except (UnspoolError, OSError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(_USAGE)


def _plain(model: Any) -> Any:
    return model.model_dump(by_alias=True, mode="json")


def _tell(result: "ThreadVerifyResult") -> None:
    summary = result.summary
    click.echo(
        f"{result.thread_id or 'file'}: {result.verdict.value} "
        f"({summary.rollouts} file(s), {summary.records} records, {summary.errors} errors, "
        f"{summary.warnings} warnings)"
    )
    for one in result.findings:
        click.echo(_line(one))
    if summary.truncated:
        click.echo("  … and more; --json tells how many of each")


def _line(one: "Finding") -> str:
    place = one.rollout_id if one.line is None else f"{one.rollout_id} line {one.line}"
    number = "" if one.ordinal is None else f" (record {one.ordinal})"
    lost = f" Lost: {one.lost}" if one.lost else ""
    return f"  {one.severity.value:7} {one.code:20} {place}{number}: {one.what}{lost} {one.still_works}"


def _tell_repair(result: "RepairResult") -> None:
    if result.target is None:
        click.echo(f"{result.source}: nothing to repair")
    else:
        click.echo(f"wrote {result.target}; {result.source} stays as it is")
        click.echo(
            f"  {result.copied} lines copied, {result.recovered} records recovered, {result.renumbered} renumbered, "
            f"{result.resealed} check values renewed, header {result.header}, {result.dropped_count} lines left out"
        )
    for one in result.dropped:
        click.echo(_line(one))
    for one in result.remaining:
        click.echo(f"  not mended:{_line(one)[1:]}")
