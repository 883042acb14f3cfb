"""A daemon process on a WebSocket of this machine, ended by its id."""

import os
import re
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

START_S = 30
STOP_S = 15


class WebSocketDaemon:
    """`unspool app-server --listen ws://127.0.0.1:0`; `url` is known once it is entered."""

    def __init__(self, program: Path, env: Mapping[str, str], cwd: Path) -> None:
        self._command = [str(program), "app-server", "--listen", "ws://127.0.0.1:0"]
        self._env, self._cwd = {**os.environ, **env}, cwd
        self.url = ""
        self.log: list[str] = []

    @property
    def pid(self) -> int:
        """The process, once it is entered."""
        return self._process.pid

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            env=self._env,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        up = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(up,), daemon=True)
        self._reader.start()
        if not up.wait(START_S) or not self.url:
            self.__exit__(None, None, None)
            raise AssertionError(f"the daemon did not start: {self.log}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(STOP_S)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self, up: threading.Event) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            found = re.search(r"listening on: (ws://\S+)", line)
            if found:
                self.url = found[1]
                up.set()
        up.set()
