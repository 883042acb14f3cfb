"""`unspool threads`: stored threads as a table, and the operations on them. Every command also prints JSON."""

import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspool_server.cli.options import (
    ConfigFlags,
    Remote,
    ServerOptions,
    config_options,
    remote_options,
    server_options,
)
from unspool_server.cli.points import POINT, place_text

if TYPE_CHECKING:
    from unspool_client import Client

Body = Callable[["Client"], Awaitable[Any]]
Result = Mapping[str, Any]


@click.group()
def threads() -> None:
    """List, show and change stored threads."""


@dataclass(frozen=True, slots=True)
class Target:
    """Whose threads, and how to tell what was done."""

    options: ServerOptions
    remote: Remote | None
    as_json: bool

    def run(self, body: Body) -> Any:
        """Do something with a client. Raises Failure for what the server refuses."""
        from unspool_server.cli import connect

        return connect.run(self.options, self.remote, body)

    def call(self, method: str, **params: Any) -> Result:
        """Call one method; parameters that are None are left out."""
        given = {name: value for name, value in params.items() if value is not None}

        async def body(client: "Client") -> Result:
            return await client.call(method, given)

        result: Result = self.run(body)
        return result

    def tell(self, result: Any, line: str) -> None:
        """Print the answer as JSON, or one line for people."""
        click.echo(json.dumps(result, ensure_ascii=False, indent=2) if self.as_json else line)


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command here, handed over together as `target`."""

    @functools.wraps(command)
    def collected(*, flags: ConfigFlags, remote: Remote | None, as_json: bool, **rest: Any) -> Any:
        return command(target=Target(server_options(flags), remote, as_json), **rest)

    shown = click.option("--json", "as_json", is_flag=True, help="Print the server's answer as JSON.")(collected)
    return config_options(remote_options(shown))


@threads.command("list")
@click.option("--archived", is_flag=True, help="Archived threads instead.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--cwd", type=click.Path(path_type=Path), help="Threads of this folder only.")
@click.option("--search", metavar="TEXT", help="Threads that hold this text.")
@_common
def list_command(*, archived: bool, limit: int, cwd: Path | None, search: str | None, target: Target) -> None:
    """List threads, the newest first."""
    page = target.call(
        "thread/list",
        limit=limit,
        archived=archived,
        sortKey="updated_at",
        sortDirection="desc",
        cwd=str(cwd.absolute()) if cwd is not None else None,
        searchTerm=search,
    )
    if target.as_json:
        target.tell(page["data"], "")
        return
    from unspool_server.cli.thread_tables import print_threads

    print_threads(page["data"])


@threads.command()
@click.argument("thread_id")
@_common
def show(*, thread_id: str, target: Target) -> None:
    """Show a thread with its turns."""
    thread = target.call("thread/read", threadId=thread_id, includeTurns=True)["thread"]
    if target.as_json:
        target.tell(thread, "")
        return
    from unspool_server.cli.thread_tables import print_thread

    print_thread(thread)


@threads.command()
@click.argument("thread_id")
@click.option("--branch", "rollout_id", metavar="ROLLOUT", help="A branch of the thread instead of its present.")
@click.option("--raw", is_flag=True, help="Also show the lines themselves.")
@_common
def audit(*, thread_id: str, rollout_id: str | None, raw: bool, target: Target) -> None:
    """Show every line of a thread's log and what became of it."""

    async def body(client: "Client") -> Result:
        given: dict[str, Any] = {"threadId": thread_id, "limit": 1000, "includeRaw": raw}
        page = await client.call("thread/audit", given | ({"rolloutId": rollout_id} if rollout_id else {}))
        entries = list(page["data"])
        while page["nextCursor"] is not None:
            page = await client.call("thread/audit", {**given, "cursor": page["nextCursor"]})
            entries += page["data"]
        return {"rolloutId": page["rolloutId"], "data": entries}

    found = target.run(body)
    if target.as_json:
        target.tell(found["data"], "")
        return
    from unspool_server.cli.audit_table import print_audit

    print_audit(found["rolloutId"], found["data"])


@threads.command()
@click.argument("thread_id")
@click.option("--last-turn", "last_turn_id", metavar="TURN", help="The last turn that the fork has.")
@click.option("--before", "before_turn_id", metavar="TURN", help="The first turn that it has not.")
@_common
def fork(*, thread_id: str, last_turn_id: str | None, before_turn_id: str | None, target: Target) -> None:
    """Make a new thread from a thread's past."""
    thread = target.call(
        "thread/fork", threadId=thread_id, excludeTurns=True, lastTurnId=last_turn_id, beforeTurnId=before_turn_id
    )["thread"]
    target.tell(thread, f"forked {thread_id} as {thread['id']}")


@threads.command()
@click.argument("thread_id")
@click.option("-n", "--turns", type=click.IntRange(min=1), default=1, show_default=True, help="How many turns to drop.")
@click.option("--undo", is_flag=True, help="Bring back what the newest rollback dropped.")
@_common
def rollback(*, thread_id: str, turns: int, undo: bool, target: Target) -> None:
    """Drop the newest turns of a thread; nothing is lost."""
    method = "thread/rollback/undo" if undo else "thread/rollback"
    params = {"threadId": thread_id, **({} if undo else {"numTurns": turns})}

    async def body(client: "Client") -> Result:
        await client.resume_thread(thread_id)
        return await client.call(method, params)

    dropped = "the newest turn" if turns == 1 else f"the newest {turns} turns"
    line = f"undid the newest rollback of {thread_id}" if undo else f"dropped {dropped} of {thread_id}"
    target.tell(target.run(body)["thread"], line)


@threads.command()
@click.argument("thread_id")
@click.option("--summary", metavar="TEXT", help="Use this summary instead of asking the model.")
@click.option("--keep-last", type=click.IntRange(min=0), default=0, show_default=True, help="Newest items to keep.")
@_common
def compact(*, thread_id: str, summary: str | None, keep_last: int, target: Target) -> None:
    """Put a summary in place of a thread's older history."""
    if keep_last and summary is None:
        raise click.UsageError("--keep-last goes with --summary")

    async def body(client: "Client") -> Result:
        from unspool_server.cli.compacting import compact_by_model

        thread = await client.resume_thread(thread_id)
        if summary is None:
            return await compact_by_model(thread)
        params = {"threadId": thread_id, "summary": summary, "keepLast": keep_last}
        changed: Result = (await client.call("thread/compact", params))["thread"]
        return changed

    target.tell(target.run(body), f"compacted {thread_id}")


@threads.command()
@click.argument("thread_id")
@_common
def archive(*, thread_id: str, target: Target) -> None:
    """Put a thread into the archive."""
    target.tell(target.call("thread/archive", threadId=thread_id), f"archived {thread_id}")


@threads.command()
@click.argument("thread_id")
@_common
def unarchive(*, thread_id: str, target: Target) -> None:
    """Take a thread out of the archive."""
    target.tell(target.call("thread/unarchive", threadId=thread_id), f"unarchived {thread_id}")


@threads.command()
@click.argument("thread_id")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--dependents",
    type=click.Choice(["refuse", "cascade", "materialize"]),
    default="refuse",
    show_default=True,
    help="Threads that were forked from it: keep it for them, delete them too, or copy what they share.",
)
@_common
def delete(*, thread_id: str, yes: bool, dependents: str, target: Target) -> None:
    """Remove a thread's files."""
    if not yes:
        too = " and of all threads that were forked from it" if dependents == "cascade" else ""
        click.confirm(f"Remove the files of {thread_id}{too}?", abort=True, err=True)
    answer = target.call("thread/delete", threadId=thread_id, dependents=dependents)
    gone, kept = answer.get("deletedThreadIds") or [thread_id], answer.get("materializedThreadIds") or []
    target.tell(answer, "\n".join([f"deleted {one}" for one in gone] + [f"copied {one}" for one in kept]))


@threads.command()
@click.argument("thread_id")
@click.option("--at", type=POINT, required=True, help="The point to go back to, of any branch (see `threads audit`).")
@_common
def restore(*, thread_id: str, at: dict[str, Any], target: Target) -> None:
    """Make an earlier point of a thread its present again; nothing is lost."""

    async def body(client: "Client") -> Result:
        await client.resume_thread(thread_id)
        return await client.call("thread/restore", {"threadId": thread_id, "at": at})

    target.tell(target.run(body)["thread"], f"restored {thread_id} to {place_text(at)}")


@threads.command()
@click.argument("thread_id")
@click.option("--at", type=POINT, help="A point of any branch; the present end without it.")
@_common
def context(*, thread_id: str, at: dict[str, Any] | None, target: Target) -> None:
    """Show exactly what the model sees of a thread."""
    found = target.call("thread/context", threadId=thread_id, at=at)
    if target.as_json:
        target.tell(found, "")
        return
    from unspool_server.cli.point_tables import print_context

    print_context(found)


@threads.command()
@click.argument("thread_id")
@click.argument("start", metavar="FROM", type=POINT)
@click.argument("end", metavar="[TO]", type=POINT, required=False)
@click.option("--other", "other_thread_id", metavar="THREAD", help="TO is a point of this related thread.")
@_common
def diff(
    *, thread_id: str, start: dict[str, Any], end: dict[str, Any] | None, other_thread_id: str | None, target: Target
) -> None:
    """Show what differs between two points of a thread; TO is the present end if it is not given."""
    params = {"threadId": thread_id, "from": start, "to": end, "otherThreadId": other_thread_id}
    found = target.call("thread/diff", **params)
    if target.as_json:
        target.tell(found, "")
        return
    from unspool_server.cli.point_tables import print_diff

    print_diff(found)
