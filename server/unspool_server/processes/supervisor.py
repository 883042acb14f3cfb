"""The program between the server and one command: runs it, passes its output on, and lets nothing of it outlive them.

Started as `python -I -S supervisor.py`; the standard library only, and nothing of this project. Its three streams:

- stdin: JSON lines from the server. The first one says what to run; later ones write to its terminal or stop it. The
  end of this stream means that the server is gone, however it went: everything is killed at once.
- stdout: the command's output, both of its streams in the order they were written. The command holds it itself.
- stderr: JSON lines to the server: `{"pid": N}` before the command can do anything, `{"begun": true}` once it runs or
  `{"failed": text}` where it cannot, then `{"exit": N}`.

Why a process of its own: a parent-death signal follows the thread that forked, and it reaches the child alone. This one
is single-threaded, takes in orphans of the command (Linux: subreaper), and ends when no descendant is left.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import termios
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would double the time to start
    from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CONTROL, OUTPUT, STATUS = 0, 1, 2
LINUX = sys.platform == "linux"


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; without effect where there is no such call."""
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def tell(**news: int | str) -> None:
    """Send one line to the server; nobody listens once it is gone."""
    with contextlib.suppress(OSError):
        os.write(STATUS, json.dumps(news).encode() + b"\n")


def descendants() -> list[int]:
    """Every living process below this one."""
    below: dict[int, list[int]] = {}
    for entry in os.scandir("/proc") if LINUX else ():
        if entry.name.isdigit():
            try:
                with open(entry.path + "/stat", "rb") as stat:  # noqa: PTH123 - pathlib would double the time to start
                    fields = stat.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] != b"Z":
                below.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += children
    return found


class Supervisor:
    """One command and everything that it started."""

    def __init__(self) -> None:
        self.child: int | None = None
        self.terminal: int | None = None
        self.typed = b""
        self.pending = b""
        self.kill_at: float | None = None
        self.wakeup, wakeup_write = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(wakeup_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)

    def start(self, job: dict[str, Any]) -> bool:
        """Fork the command. False, and a word to the server, when it cannot be started."""
        slave = None
        if job["tty"]:
            self.terminal, slave = os.openpty()
            os.set_blocking(self.terminal, False)
        refused, refused_write = os.pipe()
        known, known_write = os.pipe()
        parent = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            try:
                os.close(known_write)
                os.read(known, 1)
                self.become(job, slave, parent)
            except BaseException as error:
                os.write(refused_write, (getattr(error, "strerror", None) or str(error)).encode())
            os._exit(127)
        os.close(refused_write)
        os.close(known)
        tell(pid=self.child)
        os.close(known_write)
        reason = os.read(refused, 4096)
        os.close(refused)
        if slave is not None:
            os.close(slave)
        if reason:
            os.waitpid(self.child, 0)
            tell(failed=reason.decode(errors="replace"))
            return False
        if self.terminal is None:
            # Whoever still writes is the command's own; the server sees the end of its output when the last one goes.
            os.close(OUTPUT)
        tell(begun=True)
        return True

    def become(self, job: dict[str, Any], slave: int | None, parent: int) -> None:
        """In the child: a session of its own, its streams, its folder, and the command in its place."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(127)
        if slave is None:
            source, target = os.open(os.devnull, os.O_RDONLY), OUTPUT
        else:
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            source = target = slave
        os.dup2(target, 2)
        os.dup2(target, 1)
        os.dup2(source, 0)
        os.chdir(job["cwd"])
        os.execve(job["argv"][0], job["argv"], job["env"])

    def run(self) -> None:
        """Serve until nothing of the command is left."""
        while True:
            wait = None if self.kill_at is None else max(self.kill_at - time.monotonic(), 0)
            terminal = [] if self.terminal is None else [self.terminal]
            ready, writable, _ = select.select(
                [CONTROL, self.wakeup, *terminal], terminal if self.typed else [], [], wait
            )
            if self.wakeup in ready:
                os.read(self.wakeup, 4096)
            if self.terminal in ready:
                self.relay()
            if self.terminal is not None and self.terminal in writable:
                with contextlib.suppress(BlockingIOError):
                    self.typed = self.typed[os.write(self.terminal, self.typed) :]
            if CONTROL in ready:
                self.obey()
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.kill_all()
                return
            if self.reap():
                return

    def relay(self) -> None:
        """Pass on what the terminal holds. At its end reading fails: nobody has it open any more."""
        assert self.terminal is not None
        try:
            chunk = os.read(self.terminal, 8192)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            os.close(self.terminal)
            self.terminal = None
        while chunk:
            chunk = chunk[os.write(OUTPUT, chunk) :]

    def obey(self) -> None:
        """Carry out what the server asks for."""
        chunk = os.read(CONTROL, 65536)
        if not chunk:
            self.kill_all()
            sys.exit(0)
        *lines, self.pending = (self.pending + chunk).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "write" in order:
                self.typed += base64.b64decode(order["write"])
            if "stop" in order:
                self.signal(signal.SIGTERM)
                self.kill_at = time.monotonic() + order["stop"]

    def signal(self, number: int) -> None:
        """Signal every descendant; where they cannot be listed, the command's group."""
        for pid in descendants():
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        if self.child is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.child, number)

    def kill_all(self) -> None:
        """Kill until nobody is left; a process that forks meanwhile is caught by the next round."""
        while not self.reap():
            self.signal(signal.SIGKILL)
            time.sleep(0.002)

    def reap(self) -> bool:
        """Take in whoever has ended and tell of the command itself. True when no descendant is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.child:
                self.child = None
                while self.terminal is not None and select.select([self.terminal], [], [], 0)[0]:
                    self.relay()
                code = os.waitstatus_to_exitcode(status)
                tell(exit=code if code >= 0 else 128 - code)


def main() -> None:
    """Read the job, run it, stay until it is over."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    supervisor = Supervisor()
    buffer = b""
    while b"\n" not in buffer:
        chunk = os.read(CONTROL, 65536)
        if not chunk:
            return
        buffer += chunk
    line, _, supervisor.pending = buffer.partition(b"\n")
    if supervisor.start(json.loads(line)):
        try:
            with contextlib.suppress(ConnectionError):
                supervisor.run()
        finally:
            supervisor.kill_all()


main()
