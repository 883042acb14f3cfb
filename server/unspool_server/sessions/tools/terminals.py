"""Commands of a thread that run: their output, their item for clients, and the numbers by which the model knows them.

A terminal belongs to the turn that started it, also when it outlives that turn: its item is recorded when it ends. Owns
neither who may start one (`approvals`) nor what the model reads of it (`shell_texts`).
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from unspool_protocol.items import CommandExecutionItem, ItemStatus

from unspool_server.processes.output import KeptOutput
from unspool_server.processes.runner import Command, Process, start_process
from unspool_server.sessions.clock import now_ms
from unspool_server.sessions.tools.shell_texts import Captured

if TYPE_CHECKING:
    from unspool_server.sessions.session import Session
    from unspool_server.sessions.turns.turn import Turn

MAX_TERMINALS = 64
"""Of one thread at once; a further command is refused."""

STREAMED_BYTES = 1 << 20
"""Shown as deltas of one command; of more output, clients see what is kept when it ends."""

ENDED_BY_US = -1
"""Exit code of a command that was stopped from here, as in the reference."""


class Terminal:
    """One command.

    Attributes:
        number: By which the model writes to it; None for a command of the user's.
        line: What the shell was given.
        closed: Set once it has ended and its item is recorded.
    """

    def __init__(self, turn: "Turn", item: CommandExecutionItem, number: int | None) -> None:
        self.turn = turn
        self.item = item
        self.number = number
        self.closed = asyncio.Event()
        self.tty, self.line = False, ""
        self.stopped = False
        self.recorded = False
        self.started_at_ms = now_ms()
        self._began = time.monotonic()
        self._output = KeptOutput()
        self._unread = KeptOutput()
        self._streamed = 0
        self._held: list[str] | None = []
        self._process: Process | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.exit_code

    @property
    def ended_with(self) -> int:
        """The exit code that is told of an ended one."""
        code = self.exit_code
        return ENDED_BY_US if self.stopped or code is None else code

    @property
    def wall_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    @property
    def os_pid(self) -> int | None:
        """The system's number of it."""
        return None if self._process is None else self._process.pid

    async def start(self, command: Command, limit_s: float | None) -> None:
        """Run it, and watch it until it ends; it is shown once it runs. Raises CommandNotStarted."""
        self.tty, self.line = command.tty, command.argv[-1]
        self._began = time.monotonic()
        self._process = await start_process(command, self._take)
        live = self.turn.live.get(self.item.id) or self.turn.show_started(self.item)
        live.more = self._snapshot
        self.started_at_ms = live.started_at_ms
        held, self._held = self._held or [], None
        for text in held:
            self._stream(text)
        self._watch = self.turn.session.spawn(self._until_ended(limit_s), "command")

    def write(self, chars: str) -> None:
        """Type into it."""
        if self._process is not None:
            self._process.write(chars)

    async def ended_within(self, seconds: float) -> bool:
        """Wait until it has ended and is recorded, but for its end no longer than this."""
        assert self._process is not None
        try:
            async with asyncio.timeout(seconds):
                await self._process.exited.wait()
        except TimeoutError:
            return False
        await self.closed.wait()
        return True

    def news(self) -> Captured:
        """Output that the model was not told of yet; it counts as told now."""
        news, self._unread = self._unread, KeptOutput()
        return _captured(news)

    async def stop(self) -> None:
        """End it with everything it started; its watcher then records it."""
        self.stopped = self.stopped or self.exit_code is None
        if self._process is not None:
            await self._process.stop()

    async def abandon(self) -> CommandExecutionItem | None:
        """End it; the finished item is the caller's to record, unless it was recorded already."""
        await self._unwatched()
        await self.stop()
        self.closed.set()
        if self.recorded or self._process is None:
            return None
        self.recorded = True
        return self.finished()

    async def kill(self) -> None:
        """Let go of it, recording what there is to record. Inside a step only."""
        await self._unwatched()
        self.stopped = self.stopped or self.exit_code is None
        if self._process is not None:
            await self._process.close()
        await self._record()

    def finished(self) -> CommandExecutionItem:
        """The item as it ended."""
        code = self.ended_with
        return self.item.model_copy(
            update={
                "status": ItemStatus.COMPLETED if code == 0 else ItemStatus.FAILED,
                "aggregated_output": self._output.text() or None,
                "exit_code": code,
                "duration_ms": int(self.wall_s * 1000),
            }
        )

    def _take(self, text: str) -> None:
        self._output.add(text)
        self._unread.add(text)
        if self._held is not None:
            self._held.append(text)  # it is not shown yet
        else:
            self._stream(text)

    def _stream(self, text: str) -> None:
        if self._streamed < STREAMED_BYTES:
            self._streamed += len(text)
            params = {"turnId": self.turn.id, "itemId": self.item.id, "delta": text}
            self.turn.session.publish("item/commandExecution/outputDelta", params)

    def _snapshot(self) -> dict[str, object]:
        """What an onlooker who comes now is told beyond the item as it began."""
        known = {"processId": self.item.process_id, "source": self.item.source}
        return {**known, "aggregatedOutput": self._output.text() or None}

    async def _until_ended(self, limit_s: float | None) -> None:
        assert self._process is not None
        try:
            async with asyncio.timeout(limit_s):
                await self._process.exited.wait()
        except TimeoutError:
            await self.stop()
        await self.turn.session.step(self._record)
        # What it left behind is no output of it, but is let go of with the thread like the command itself.
        await self._process.gone()
        self.turn.session.terminals.over(self)

    async def _record(self) -> None:
        if not self.recorded:
            self.recorded = True
            self.turn.live.pop(self.item.id, None)
            item = self.finished()
            self._output = KeptOutput()
            await self.turn.session.record(self.turn.item_event(item, self.started_at_ms, now_ms()))
        self.closed.set()

    async def _unwatched(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)


def _captured(output: KeptOutput) -> Captured:
    return Captured(output.text(), output.total_bytes, output.omitted_bytes)


class Terminals:
    """The terminals of one thread: those that run, and ended ones whose last output the model was not told of."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._known: dict[int, Terminal] = {}
        self._all: set[Terminal] = set()
        self._reserved: set[int] = set()

    @contextmanager
    def place(self) -> Iterator[int | None]:
        """A place among those that may run, held until the command was started or is not to be.

        Gives a number that means no other terminal of this thread, also none that its history tells of by likelihood;
        None when too many run or are about to: a round of the model's may call for any number at once.
        """
        if len(self.running()) + len(self._reserved) >= MAX_TERMINALS:
            yield None
            return
        while (number := 1000 + secrets.randbelow(99_000)) in self._known or number in self._reserved:
            pass
        self._reserved.add(number)
        try:
            yield number
        finally:
            self._reserved.discard(number)

    def find(self, number: int) -> Terminal | None:
        """The terminal that the model means."""
        return self._known.get(number)

    def running(self) -> list[Terminal]:
        """Those that the model left running, oldest first."""
        return [terminal for terminal in self._known.values() if terminal.exit_code is None]

    async def start(self, terminal: Terminal, command: Command, limit_s: float | None = None) -> None:
        """Run a command, by default for no longer than the configuration says. Raises CommandNotStarted."""
        limit_s = self._session.env.config.command_timeout_secs or None if limit_s is None else limit_s
        self._all.add(terminal)
        try:
            await terminal.start(command, limit_s)
        except BaseException:
            self._all.discard(terminal)
            raise
        if terminal.number is not None:
            self._known[terminal.number] = terminal
        self._prune()

    def over(self, terminal: Terminal) -> None:
        """Nothing is left of it."""
        self._all.discard(terminal)

    def told(self, terminal: Terminal) -> None:
        """The model knows how it ended; its number means nothing any more."""
        if terminal.number is not None:
            self._known.pop(terminal.number, None)

    async def stop(self, wanted: Callable[[Terminal], bool] = lambda _terminal: True) -> bool:
        """Stop running terminals outside of steps. False when there was none to stop."""
        stopping = [terminal for terminal in self.running() if wanted(terminal)]
        await asyncio.gather(*(terminal.stop() for terminal in stopping))
        return bool(stopping)

    async def kill_all(self) -> None:
        """Let go of every command, also of what ended ones left behind. Inside a step only."""
        every, self._all, self._known = self._all, set(), {}
        await asyncio.gather(*(terminal.kill() for terminal in every))

    def _prune(self) -> None:
        """Forget the oldest ended ones whose rest nobody asks for."""
        ended = [terminal for terminal in self._known.values() if terminal.exit_code is not None]
        for terminal in ended[: max(len(ended) - MAX_TERMINALS, 0)]:
            self.told(terminal)
