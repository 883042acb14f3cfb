"""Starts commands, each under a supervisor of its own, and stands for them here (see `supervisor.py`).

Owns neither what may run nor what the output means. A process is let go of with `close`, which kills whatever is left
of it; should the server end without that, the supervisors do it by themselves.
"""

import asyncio
import base64
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_server.errors import UnspoolError
from unspool_server.processes.output import TextStream

logger = logging.getLogger(__name__)

SUPERVISOR = Path(__file__).with_name("supervisor.py")

TERM_GRACE_S = 0.5
"""Seconds that a command has to end after SIGTERM; then comes SIGKILL."""

READ_BYTES = 8192
"""Taken from a command's output at once, so that one that never stops does not hold up everything else."""

PIPE_BYTES = 1 << 16
"""What a pipe holds: how much may still be in it when a command has ended."""


class CommandNotStarted(UnspoolError):
    """The command could not be started; `reason` is the system's word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: program path and arguments, an absolute folder, all variables; `tty` gives it a terminal."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    tty: bool = False


class Process:
    """A running or ended command.

    Attributes:
        exit_code: Set once it has ended; 128 + n where signal n ended it, -1 where nobody knows.
        exited: Set when it has ended and all of its own output was handed over.
    """

    def __init__(self, on_output: Callable[[str], None]) -> None:
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.exited = asyncio.Event()
        self._on_output = on_output
        self._text = TextStream()
        self._control, self._output, self._status = -1, -1, -1
        self._group: int | None = None
        self._orders = bytearray()
        self._news = b""
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._supervisor: asyncio.subprocess.Process | None = None

    async def start(self, command: Command) -> None:
        """Run the command. Raises CommandNotStarted."""
        child_control, self._control = os.pipe()
        self._output, child_output = os.pipe()
        self._status, child_status = os.pipe()
        try:
            self._supervisor = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(SUPERVISOR)),
                stdin=child_control,
                stdout=child_output,
                stderr=child_status,
                env=_supervisor_environment(),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self._let_go()
            raise CommandNotStarted(error.strerror or str(error)) from error
        finally:
            for end in (child_control, child_output, child_status):
                os.close(end)
        for end in (self._control, self._output, self._status):
            os.set_blocking(end, False)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._output, self._read_output)
        loop.add_reader(self._status, self._read_status)
        job = {"argv": list(command.argv), "cwd": command.cwd, "env": dict(command.env), "tty": command.tty}
        try:
            self._order(job)
            await self._begun
        except BaseException:
            await self.close()
            raise

    def write(self, chars: str) -> None:
        """Type into its terminal."""
        self._order({"write": base64.b64encode(chars.encode("utf-8", "replace")).decode()})

    async def stop(self, grace_s: float = TERM_GRACE_S) -> None:
        """End it and everything it started: SIGTERM, then SIGKILL for what is left after the grace."""
        self._order({"stop": grace_s})
        await self.gone()

    async def close(self) -> None:
        """Kill whatever is left of it and wait until nothing is."""
        self._close_control()
        await self.gone()

    async def gone(self) -> None:
        """Wait until neither it nor anything it started is left."""
        if self._supervisor is not None:
            # Its output must go on being read, or a supervisor that passes on a terminal's could not end.
            status = await self._supervisor.wait()
            self._read_status()
            if status != 0:
                self._kill_group()
        self._let_go()

    def _kill_group(self) -> None:
        """The supervisor was killed itself, and could not see to what the command started. Once: numbers come again."""
        group, self._group = self._group, None
        if group is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def _order(self, order: Mapping[str, Any]) -> None:
        if self._control >= 0:
            self._orders += json.dumps(order).encode() + b"\n"
            self._send_orders()

    def _send_orders(self) -> None:
        """Send as much as the pipe takes, and the rest when it takes more.

        Never waits: the supervisor may itself be waiting for us to read the command's output.
        """
        loop = asyncio.get_running_loop()
        try:
            while self._orders:
                del self._orders[: os.write(self._control, self._orders)]
        except BlockingIOError:
            loop.add_writer(self._control, self._send_orders)
            return
        except BrokenPipeError:  # it has ended; that is told on the other stream
            self._orders.clear()
        loop.remove_writer(self._control)

    def _close_control(self) -> None:
        if self._control >= 0:
            asyncio.get_running_loop().remove_writer(self._control)
            os.close(self._control)
            self._control = -1

    def _read_output(self) -> bool:
        """Hand over one piece of output. False when there is none at the moment."""
        if self._output < 0:
            return False
        try:
            chunk = os.read(self._output, READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._stop_reading(output=True)
            return False
        if not self.exited.is_set() and (text := self._text.feed(chunk)):
            self._on_output(text)
        return True

    def _read_status(self) -> None:
        if self._status < 0:
            return
        try:
            chunk = os.read(self._status, 65536)
        except BlockingIOError:
            return
        *lines, self._news = (self._news + chunk).split(b"\n")
        for line in lines:
            self._take(line)
        if not chunk:
            self._stop_reading(status=True)
            self._ended(-1)

    def _take(self, line: bytes) -> None:
        try:
            news = json.loads(line)
        except ValueError:
            news = None
        if not isinstance(news, dict):
            logger.warning("the supervisor of a command said: %s", line.decode(errors="replace"))
            return
        if "pid" in news and self.pid is None:
            self.pid = self._group = news["pid"]
        elif "begun" in news:
            if not self._begun.done():
                self._begun.set_result(None)
        elif "failed" in news:
            if not self._begun.done():
                self._begun.set_exception(CommandNotStarted(news["failed"]))
        elif "exit" in news:
            self._ended(news["exit"])

    def _ended(self, code: int) -> None:
        """The command is over: what it wrote is in the pipe by now; what others write later is not its output."""
        if not self._begun.done():
            self._begun.set_exception(CommandNotStarted("its supervisor ended"))
        if self.exit_code is not None:
            return
        for _ in range(PIPE_BYTES // READ_BYTES + 1):
            if not self._read_output():
                break
        if rest := self._text.end():
            self._on_output(rest)
        self.exit_code = code
        self.exited.set()

    def _stop_reading(self, *, output: bool = False, status: bool = False) -> None:
        loop = asyncio.get_running_loop()
        if output and self._output >= 0:
            loop.remove_reader(self._output)
            os.close(self._output)
            self._output = -1
        if status and self._status >= 0:
            loop.remove_reader(self._status)
            os.close(self._status)
            self._status = -1

    def _let_go(self) -> None:
        self._close_control()
        if self._supervisor is not None:
            self._ended(-1)
        self._stop_reading(output=True, status=True)


def _supervisor_environment() -> dict[str, str]:
    """Nothing of the server's own, which the command could read, but where the interpreter finds its libraries."""
    return {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}


async def start_process(command: Command, on_output: Callable[[str], None]) -> Process:
    """Run a command.

    Args:
        on_output: Called with each piece of its output, on the event loop; never after `exited` is set.

    Raises:
        CommandNotStarted: No such program or folder, or no right to it.
    """
    process = Process(on_output)
    await process.start(command)
    return process
