"""A terminal program on a screen of its own (tmux): type into it, wait for what it shows."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

WAIT_S = 40
_LOOK_S = 0.1
_PASTE_S = 0.4
"""Keys that come faster than a person types are taken for a pasted text by the program."""


class Screen:
    """One program in a tmux server of its own, which ends with it."""

    def __init__(self, tmux: str, command: Sequence[str], env: Mapping[str, str], cwd: Path, socket: Path) -> None:
        self._tmux = [tmux, "-S", str(socket), "-f", "/dev/null"]
        variables = [part for name, value in env.items() for part in ("-e", f"{name}={value}")]
        size = ["-x", "110", "-y", "45", "-c", str(cwd)]
        self._start = ["new-session", "-d", *size, *variables, *command]

    def __enter__(self) -> Self:
        self._run(*self._start)
        self._run("set-option", "-g", "remain-on-exit", "on")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run("kill-server", check=False)

    def type(self, text: str, *keys: str) -> None:
        """Type a text as it stands, and once it is there press keys by their tmux names."""
        if text:
            self._run("send-keys", "-l", text)
            self.shows(text)
            time.sleep(_PASTE_S)
        for key in keys:
            self._run("send-keys", key)

    def text(self) -> str:
        """What is on the screen now."""
        return self._run("capture-pane", "-p")

    def shows(self, *texts: str) -> str:
        """Wait until the screen shows all of the texts; gives the screen. Fails with what it shows instead."""
        return self.until(lambda screen: all(text in screen for text in texts), " and ".join(texts))

    def until(self, holds: Callable[[str], bool], what: str) -> str:
        """Wait until the screen is as it should be."""
        deadline = time.monotonic() + WAIT_S
        while not holds(screen := self.text()):
            assert time.monotonic() < deadline, f"the screen does not show {what}:\n{screen}"
            time.sleep(_LOOK_S)
        return screen

    def _run(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, check=False, timeout=WAIT_S)
        assert not check or not done.returncode, done.stderr
        return done.stdout
