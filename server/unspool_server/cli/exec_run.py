"""Runs one turn for `exec`: opens the thread, starts the turn, prints its events, gives the exit status."""

import asyncio
import contextlib
import json
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import click
from unspool_client import Client, Event, EventStream, RpcError, ThreadHandle

from unspool_server.cli.connect import connected
from unspool_server.cli.exec import ExecRequest
from unspool_server.cli.exec_json import NOTICES, JsonLines
from unspool_server.cli.exec_text import TextLines
from unspool_server.cli.options import Failure, Remote, ServerOptions
from unspool_server.config_file import parse_override

CLIENT_NAME = "unspool_exec"
TERMINATED = 128 + signal.SIGTERM
"""The exit status after SIGTERM, as shells write it; the turn was ended in order before."""

_LAST_EVENTS = frozenset({"thread/closed", "thread/archived", "thread/deleted"})


@dataclass(slots=True)
class Output:
    """Where lines go: JSON to stdout; or text to stderr and the last message alone to stdout.

    Args:
        color: None lets the terminal decide.
    """

    as_json: bool = False
    color: bool | None = None
    lines: JsonLines = field(default_factory=JsonLines)
    text: TextLines = field(default_factory=TextLines)

    def start(self, setup: Mapping[str, Any], prompt: str | None) -> None:
        """Tell which thread it is."""
        self._json(self.lines.start(setup))
        if not self.as_json:
            self._text(self.text.start(setup, prompt))

    def take(self, event: Event) -> None:
        """Tell of one event."""
        self._json(self.lines.take(event))
        if not self.as_json:
            self._text(self.text.take(event))

    def end(self, last_message: Path | None) -> None:
        """Give the last message. Raises Failure when the file cannot be written."""
        message = self.lines.last_message
        # On a terminal the transcript has shown it already.
        if not self.as_json and message and not (sys.stdout.isatty() and sys.stderr.isatty()):
            click.echo(message)
        if last_message is None:
            return
        try:
            last_message.write_text(message or "", encoding="utf-8")
        except OSError as error:
            raise Failure(f"Failed to write last message file {last_message}: {error.strerror}") from error
        if message is None and not self.as_json:
            click.echo(f"Warning: no last agent message; wrote empty content to {last_message}", err=True)

    def _json(self, lines: list[dict[str, Any]]) -> None:
        for line in lines if self.as_json else ():
            click.echo(json.dumps(line, ensure_ascii=False, separators=(",", ":")))

    def _text(self, lines: list[str]) -> None:
        for line in lines:
            click.echo(line, err=True, color=self.color)


def run(
    options: ServerOptions,
    request: ExecRequest,
    output: Output,
    *,
    remote: Remote | None,
    last_message: Path | None,
) -> int:
    """Connect, run, print.

    Returns:
        The exit status: 0; 1 when the turn failed or was interrupted; `TERMINATED` after SIGTERM.
    """

    async def whole() -> int:
        async with connected(options, remote=remote, name=CLIENT_NAME) as client:
            return await run_turn(client, request, output)

    status = asyncio.run(whole())
    output.end(last_message)
    return status


async def run_turn(client: Client, request: ExecRequest, output: Output) -> int:
    """Open the thread and run the turn over a client.

    Raises:
        RpcError, ConnectionLost: The server refused or went away.
        Failure: No such thread.
    """
    with _early_notices(client) as early:
        thread = await _open(client, request)
        output.start(thread.setup, request.prompt)
        for event in early:
            output.take(event)
    if request.prompt is None:
        return 0
    after = None if request.mode == "start" else "now"
    async with thread.events(after) as stream:
        turn = await thread.start_turn(_input(request), **_turn_fields(request))
        async with _Signals(thread, turn.id) as signals:
            await _follow(stream, turn.id, output)
    if signals.terminated:
        return TERMINATED
    return 1 if output.lines.failed else 0


@contextmanager
def _early_notices(client: Client) -> Iterator[list[Event]]:
    """Collect warnings that belong to no thread; they come while it is being opened."""
    early: list[Event] = []
    collecting = True

    def listen(event: Event) -> None:
        if collecting and event.thread_id is None and event.method in NOTICES:
            early.append(event)

    client.on_notification(listen)
    yield early
    collecting = False


async def _open(client: Client, request: ExecRequest) -> ThreadHandle:
    fields: dict[str, Any] = {"model": request.model, "cwd": request.cwd, "sandbox": request.sandbox}
    if request.more_folders and request.cwd is not None:
        fields["runtime_workspace_roots"] = [request.cwd, *request.more_folders]
    if request.overrides:
        fields["config"] = {key: parse_override(text) for key, text in request.overrides}
    fields = {name: value for name, value in fields.items() if value is not None}
    # Nobody is there to be asked.
    fields["approval_policy"] = "never"
    if request.mode == "resume":
        return await client.resume_thread(await _find(client, request), **fields)
    fields |= {"ephemeral": True} if request.ephemeral else {}
    fields |= {"thread_source": request.thread_source} if request.thread_source is not None else {}
    if request.mode == "fork":
        return await client.fork_thread(await _find(client, request), **fields)
    return await client.start_thread(**fields)


async def _find(client: Client, request: ExecRequest) -> str:
    """The id of the thread that was asked for: an id as it is, a name looked up, or the newest one."""
    wanted = request.thread
    if wanted is not None:
        with contextlib.suppress(ValueError):
            return str(uuid.UUID(wanted))
    folder = {"cwd": request.cwd} if wanted is None and request.cwd is not None and not request.all_folders else {}
    threads = client.list_threads(
        sort_key="updated_at", sort_direction="desc", limit=1 if wanted is None else 50, **folder
    )
    async for thread in threads:
        if wanted is None or thread.name == wanted:
            return thread.id
    raise Failure("Error: no recorded thread to resume" if wanted is None else f"Error: no thread named {wanted}")


def _input(request: ExecRequest) -> list[dict[str, Any]]:
    images = [{"type": "localImage", "path": str(image)} for image in request.images]
    return [*images, {"type": "text", "text": request.prompt, "text_elements": []}]


def _turn_fields(request: ExecRequest) -> dict[str, Any]:
    return {"output_schema": request.output_schema} if request.output_schema is not None else {}


async def _follow(stream: EventStream, turn_id: str, output: Output) -> None:
    """Print events up to the end of the turn."""
    async for event in stream:
        if event.turn_id in (None, turn_id):
            output.take(event)
        if event.turn_id == turn_id and event.method == "turn/completed":
            return
        if event.method in _LAST_EVENTS:
            break
    raise Failure("Error: the thread was closed before its turn ended")


class _Signals:
    """SIGINT and SIGTERM interrupt the turn, whose end then comes as an event; a second one ends the program.

    Attributes:
        terminated: SIGTERM was among them.
    """

    def __init__(self, thread: ThreadHandle, turn_id: str) -> None:
        self.terminated = False
        self._thread, self._turn_id = thread, turn_id
        self._asked: set[asyncio.Task[None]] = set()
        self._handled: list[signal.Signals] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        # No signals in another thread than the main one, or on another system.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._on_signal, number)
                self._handled.append(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._let_go()
        for task in self._asked:
            await asyncio.wait({task})

    def _let_go(self) -> None:
        while self._handled:
            asyncio.get_running_loop().remove_signal_handler(self._handled.pop())

    def _on_signal(self, number: signal.Signals) -> None:
        self._let_go()
        self.terminated = number is signal.SIGTERM
        self._asked.add(asyncio.create_task(self._ask(), name="interrupt"))

    async def _ask(self) -> None:
        # A turn that has just ended has nothing to interrupt.
        with contextlib.suppress(RpcError):
            await self._thread.interrupt(self._turn_id)
