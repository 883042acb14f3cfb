"""The shell tool: `exec_command` runs a command, `write_stdin` goes on with one that is left running (07 §5).

Owns what the model may say and what it reads. Who is asked is in `approvals`, what runs in `terminals`.
"""

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, StrictBool, StrictStr, ValidationError
from unspool_protocol.items import CommandExecutionItem, ItemStatus

from unspool_server.processes.environment import EnvironmentPolicy, child_environment
from unspool_server.processes.runner import Command, CommandNotStarted
from unspool_server.sessions.settings import absolute_path, is_usable_cwd
from unspool_server.sessions.tools.approval_rules import REFUSED, Ruling, ruling
from unspool_server.sessions.tools.approvals import Decision, Question, ask_approval, is_remembered
from unspool_server.sessions.tools.contract import Tool, ToolResult
from unspool_server.sessions.tools.shell_actions import command_actions
from unspool_server.sessions.tools.shell_texts import (
    STDIN_CLOSED,
    exec_output,
    failed,
    not_started,
    shown_command,
)
from unspool_server.sessions.tools.terminals import MAX_TERMINALS, Terminal

if TYPE_CHECKING:
    from unspool_server.sessions.environment import Environment
    from unspool_server.sessions.session import Session
    from unspool_server.sessions.tools.calls import OpenCall
    from unspool_server.sessions.turns.turn import Turn

A = TypeVar("A", bound=BaseModel)

YIELD_MS = (250, 10_000, 30_000)
"""Least, usual and longest wait for a command before the model goes on, in milliseconds."""

POLL_MS = (5_000, 5_000, 300_000)
"""The same for looking after a running command without writing to it; `WRITE_MS` for writing to it."""

WRITE_MS = (250, 250, 30_000)

_REASONS = {
    Decision.DECLINE: "rejected by user",
    Decision.FAILED: "approval request failed",
    Decision.TIMED_OUT: "nobody answered the approval request in time",
}


class _Arguments(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    yield_time_ms: float | None = None
    max_output_tokens: float | None = None

    @property
    def output_tokens(self) -> int | None:
        """The limit as a whole number."""
        return None if self.max_output_tokens is None else int(self.max_output_tokens)


class ExecArguments(_Arguments):
    """Arguments of `exec_command`; unknown ones are passed over."""

    cmd: StrictStr
    workdir: StrictStr | None = None
    shell: StrictStr | None = None
    login: StrictBool | None = None
    tty: StrictBool | None = None
    justification: StrictStr | None = None


class WriteArguments(_Arguments):
    """Arguments of `write_stdin`."""

    session_id: int
    chars: StrictStr = ""


@dataclass(frozen=True, slots=True)
class ExecCommand:
    """Runs a command and waits for it, but not for ever."""

    name: str = "exec_command"
    namespace: str | None = None

    def declaration(self) -> dict[str, Any]:
        """As the reference's tool of this name, without what needs a sandbox."""
        return _function(
            self.name,
            "Runs a shell command and returns its output, or the id of a session when it is still running.",
            {
                "cmd": _described("string", "The shell command."),
                "workdir": _described("string", "Folder to run it in; by default the folder of the turn."),
                "shell": _described("string", "Shell to use; by default the user's."),
                "login": _described("boolean", "Whether the shell reads its login files; by default it does."),
                "tty": _described("boolean", "Give it a terminal, which also keeps its input open."),
                "yield_time_ms": _described("number", "How long to wait for it, in ms: 250 to 30000, usually 10000."),
                "max_output_tokens": _described("number", "How much of the output to return at most."),
                "justification": _described("string", "One question to the user, in case this needs approval."),
            },
            required="cmd",
        )

    async def run(self, turn: "Turn", call: "OpenCall", arguments: Any) -> ToolResult:
        """Run it if it may run. What it does later goes to its item."""
        given = _parsed(ExecArguments, arguments)
        if isinstance(given, str):
            return ToolResult(given)
        if not is_usable_cwd(turn.plan.settings.cwd):
            turn.session.warn(
                "A command was not run: the thread's working directory is no path of this system.",
                code="cwdMissing",
                effect="Give a cwd when you start the next turn.",
            )
            return ToolResult(failed("the thread has no working directory on this system"))
        with turn.session.terminals.place() as number:
            if number is None:
                return ToolResult(failed(f"{MAX_TERMINALS} commands are running already; end one of them first"))
            terminal = await _started(turn, call, given, number)
        if isinstance(terminal, ToolResult):
            return terminal
        try:
            return await _told(turn.session, terminal, given, YIELD_MS)
        except asyncio.CancelledError:
            call.left = await terminal.abandon()
            raise


async def _started(turn: "Turn", call: "OpenCall", given: "ExecArguments", number: int) -> Terminal | ToolResult:
    """Run the command if it may run; what the model is told where it does not."""
    argv = shell_argv(turn.session.env, given.cmd, shell=given.shell, login=given.login)
    cwd = absolute_path(given.workdir or "", turn.plan.settings.cwd)
    item = command_item(call.call_id, given.cmd, argv, cwd)
    refusal = await _refusal(turn, call, Question(item, argv, given.justification))
    if refusal is not None:
        return refusal
    started = {"process_id": str(number), "source": "unifiedExecStartup"}
    terminal = Terminal(turn, item.model_copy(update=started), number)
    command = Command(argv, cwd, command_environment(turn.session), tty=bool(given.tty))
    try:
        await turn.session.terminals.start(terminal, command)
    except CommandNotStarted as error:
        return _not_run(turn, item, ItemStatus.FAILED, not_started(error.reason))
    return terminal


@dataclass(frozen=True, slots=True)
class WriteStdin:
    """Writes to a running command, or looks how far it is."""

    name: str = "write_stdin"
    namespace: str | None = None

    def declaration(self) -> dict[str, Any]:
        """As the reference's tool of this name."""
        return _function(
            self.name,
            "Writes to a running session of exec_command and returns its new output.",
            {
                "session_id": _described("number", "The session's id."),
                "chars": _described("string", "What to write; nothing by default, which only looks."),
                "yield_time_ms": _described("number", "How long to wait for output, in ms; at least 5000 to look."),
                "max_output_tokens": _described("number", "How much of the output to return at most."),
            },
            required="session_id",
        )

    async def run(self, turn: "Turn", call: "OpenCall", arguments: Any) -> ToolResult:
        """Cancelled: the command goes on, only the look at it ends."""
        given = _parsed(WriteArguments, arguments)
        if isinstance(given, str):
            return ToolResult(given)
        terminal = turn.session.terminals.find(given.session_id)
        if terminal is None:
            return ToolResult(f"write_stdin failed: Unknown process id {given.session_id}")
        if given.chars and not terminal.tty:
            return ToolResult(STDIN_CLOSED)
        if given.chars:
            terminal.write(given.chars)
            shown = {"itemId": terminal.item.id, "processId": terminal.item.process_id, "stdin": given.chars}
            turn.session.publish("item/commandExecution/terminalInteraction", {"turnId": turn.id, **shown})
        return await _told(turn.session, terminal, given, WRITE_MS if given.chars else POLL_MS)


def shell_tools(session: "Session") -> Iterator[Tool]:
    """The shell tool, unless the configuration turns it off."""
    if session.env.config.runs_commands_for(session.facts.tenant):
        yield ExecCommand()
        yield WriteStdin()


def command_item(item_id: str, command: str, argv: tuple[str, ...], cwd: str) -> CommandExecutionItem:
    """A command as clients see it before it runs."""
    return CommandExecutionItem(
        id=item_id, command=shown_command(argv), cwd=cwd, command_actions=command_actions(command)
    )


def shell_argv(
    env: "Environment", command: str, *, shell: str | None = None, login: bool | None = None
) -> tuple[str, ...]:
    """The words that run a shell line: in the user's shell, as a login shell where that is allowed.

    Args:
        shell: A shell that was asked for; one that is not there is passed over.
        login: Asked for; None means what the configuration says.
    """
    program = (shutil.which(shell) if shell else None) or env.shell_program
    allowed = env.config.allow_login_shell
    return (program, "-lc" if allowed and login is not False else "-c", command)


def command_environment(session: "Session") -> dict[str, str]:
    """The variables of a thread's commands: what `shell_environment_policy` says, and never a model service's key."""
    config = session.env.config
    table = config.shell_environment_policy
    providers = [config.provider(name) for name in {config.model_provider, *config.model_providers}]
    secret = {value for one in providers for value in (one.env_key, *one.env_http_headers.values()) if value}
    policy = EnvironmentPolicy(
        inherit=table.inherit,
        keep_secrets=table.ignore_default_excludes,
        exclude=table.exclude,
        include_only=table.include_only,
        variables=table.set,
        secret=frozenset(secret),
    )
    return child_environment(policy, os.environ)


async def _refusal(turn: "Turn", call: "OpenCall", question: Question) -> ToolResult | None:
    """What the model is told when the command may not run; None when it may."""
    settings = turn.plan.settings
    match ruling(settings.approval_policy, settings.sandbox):
        case Ruling.RUN:
            return None
        case Ruling.REFUSE:
            turn.show_started(question.item)
            return _not_run(turn, question.item, ItemStatus.DECLINED, failed(REFUSED))
    if is_remembered(turn, question):
        return None
    decision = await ask_approval(turn, question)
    if decision.allows:
        return None
    if decision is Decision.CANCEL:
        await turn.interrupted()
    output = failed(_REASONS[decision])
    if decision is Decision.FAILED:
        return _not_run(turn, question.item, ItemStatus.FAILED, output)
    return ToolResult(output)  # its item ended with the decision


def _not_run(turn: "Turn", item: CommandExecutionItem, status: ItemStatus, output: str) -> ToolResult:
    if item.id not in turn.live:
        turn.show_started(item)
    return ToolResult(output, item.model_copy(update={"status": status}))


async def _told(
    session: "Session", terminal: Terminal, given: _Arguments, waits_ms: tuple[int, int, int]
) -> ToolResult:
    """Wait for the command a while, then say what came of it."""
    least, usual, longest = waits_ms
    wait_ms = min(max(usual if given.yield_time_ms is None else given.yield_time_ms, least), longest)
    began = time.monotonic()
    ended = await terminal.ended_within(wait_ms / 1000)
    wall_s = time.monotonic() - began
    state = f"Process running with session ID {terminal.number}"
    if ended:
        session.terminals.told(terminal)
        state = f"Process exited with code {terminal.ended_with}"
    news, chunk_id = terminal.news(), secrets.token_hex(3)
    limit = given.output_tokens
    return ToolResult(exec_output(news, chunk_id=chunk_id, wall_s=wall_s, state=state, max_output_tokens=limit))


def _parsed(shape: type[A], arguments: Any) -> A | str:
    """The arguments, or what the model is told of the first one that is wrong."""
    try:
        return shape.model_validate(arguments)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = f"missing field `{place}`" if first["type"] == "missing" else f"{place}: {first['msg']}"
        return f"failed to parse function arguments: {reason}"


def _function(name: str, description: str, properties: Mapping[str, Any], *, required: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": dict(properties),
        "required": [required],
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "description": description, "strict": False, "parameters": parameters}


def _described(kind: str, description: str) -> dict[str, str]:
    return {"type": kind, "description": description}
