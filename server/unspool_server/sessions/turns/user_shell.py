"""`thread/shellCommand`: a command of the user's own, in a turn of its own or beside the running one (07 §5).

It is the user's word, so nobody is asked about it, and no sandbox mode holds it. The model reads what came of it.
"""

import asyncio
import time
import uuid
from functools import partial
from typing import Any

from unspool_protocol.items import CommandExecutionItem
from unspool_protocol.log import NewRecord

from unspool_server.errors import RequestError
from unspool_server.processes.runner import Command, CommandNotStarted
from unspool_server.sessions.clock import new_id, now_ms
from unspool_server.sessions.records import item_record
from unspool_server.sessions.session import After, Session
from unspool_server.sessions.tools.shell import command_environment, command_item, shell_argv
from unspool_server.sessions.tools.shell_texts import Captured, user_command_text
from unspool_server.sessions.tools.terminals import Terminal
from unspool_server.sessions.turns.turn import Turn, TurnPlan

ABORTED = "command aborted by user"
"""What the model reads instead of the output of a command that an interrupt ended."""


class UserCommand:
    """One command of the user's within a turn."""

    def __init__(self, turn: Turn, command: str, limit_s: float | None) -> None:
        self._turn, self._command, self._limit_s = turn, command, limit_s
        self._argv = shell_argv(turn.session.env, command)
        shown = command_item(str(uuid.uuid4()), command, self._argv, turn.plan.settings.cwd)
        self._item = shown.model_copy(update={"source": "userShell"})
        self._terminal = Terminal(turn, self._item, None)
        self._told = False
        self._beside: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Run it beside the turn's own work."""
        self._beside = self._turn.session.spawn(self.run(), "user-command")

    async def run(self) -> None:
        """Run it to its end. What the model reads of it waits for its place in the turn."""
        session, cwd = self._turn.session, self._turn.plan.settings.cwd
        command = Command(self._argv, cwd, command_environment(session))
        began = time.monotonic()
        try:
            await session.terminals.start(self._terminal, command, self._limit_s)
        except CommandNotStarted as error:
            await session.step(partial(self._not_started, error.reason))
            return
        await self._terminal.closed.wait()
        if not self._told:
            self._told = True
            code = self._terminal.ended_with
            self._note(self._text(code, time.monotonic() - began, self._terminal.news()))
            await session.step(self._turn.record_notes_if_over)

    async def cut_short(self) -> list[NewRecord]:
        """End it, because its turn ends; returns what is to be recorded of it."""
        if self._told:
            return []
        self._told = True
        if self._beside is not None:
            self._beside.cancel()
            await asyncio.gather(self._beside, return_exceptions=True)
        item = await self._terminal.abandon()
        self._note(self._text(-1, 0.0, Captured(ABORTED, len(ABORTED))))
        return [] if item is None else [self._turn.item_event(item, self._terminal.started_at_ms, now_ms())]

    async def _not_started(self, reason: str) -> None:
        self._told = True
        item: CommandExecutionItem = self._item.model_copy(update={"status": "failed", "aggregated_output": reason})
        self._turn.show_started(item)
        live = self._turn.live.pop(item.id)
        await self._turn.session.record(self._turn.item_event(item, live.started_at_ms, now_ms()))
        self._note(self._text(-1, 0.0, Captured(reason, len(reason))))
        await self._turn.record_notes_if_over()

    def _text(self, exit_code: int, wall_s: float, captured: Captured) -> str:
        return user_command_text(self._command, exit_code=exit_code, wall_s=wall_s, captured=captured)

    def _note(self, text: str) -> None:
        content: list[dict[str, Any]] = [{"type": "input_text", "text": text}]
        message = {"type": "message", "id": f"msg_{new_id()}", "role": "user", "content": content}
        self._turn.notes.append(item_record(self._turn.attributed(message, now_ms())))


class UserShellTurn(Turn):
    """A turn that only runs a command of the user's: no context, no model."""

    kind = "userShell"

    def __init__(self, session: Session, command: str, limit_s: float | None) -> None:
        super().__init__(session, TurnPlan(session.settings, []))
        self._first = UserCommand(self, command, limit_s)
        self.beside.append(self._first)

    async def _work(self) -> None:
        await self._first.run()
        await self.session.step(self._complete)

    async def record_input(self) -> None:
        """It has no input, and so the model is shown no context for it."""
        self.input_recorded = True


async def run_user_command(session: Session, command: str, limit_s: float | None, after: After) -> None:
    """Run a command once the answer has left: in the running turn, or in one of its own.

    Args:
        limit_s: Longest life of the command; None means what the configuration says.

    Raises:
        RequestError: Nothing to run, or commands are turned off.
    """
    if not command.strip():
        raise RequestError("command must not be empty", data={"reason": "invalidParams", "field": "command"})
    if not session.env.config.runs_commands_for(session.facts.tenant):
        raise RequestError("commands are turned off by the configuration", data={"reason": "shellDisabled"})

    async def accept() -> UserShellTurn | UserCommand:
        if session.turn is None:
            session.env.lifecycle.admit_turn()
            session.turn = turn = UserShellTurn(session, command, limit_s)
            return turn
        beside = UserCommand(session.turn, command, limit_s)
        session.turn.beside.append(beside)
        return beside

    async def begin(accepted: UserShellTurn | UserCommand) -> None:
        if isinstance(accepted, UserCommand):
            accepted.begin()
        else:
            accepted.start()
            accepted.release()

    await session.answered_step(after, accept, begin)
