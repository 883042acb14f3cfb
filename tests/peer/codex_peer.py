"""Two app-servers on one home: ours and the real Codex, driven by the same small client over stdio.

Where the real one is looked for: `UNSPOOL_PEER_CODEX`, `codex` on the PATH, `node_modules/.bin/codex` in this folder or
one above. The model is `tests/fixtures/mockmodel.py` for both.
"""

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from tests.fixtures.mockmodel import Mock

Json = dict[str, Any]
Who = Literal["ours", "codex"]

WAIT_S = 30.0
NOT_ITS_OWN = re.compile(r"unknown variant `(thread_name_updated|unspool_\w+)`")
BASE = "BASE"
ROOT = Path(__file__).parents[2]

CONFIG = """\
model = "mock-model"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
compact_prompt = "COMPACT-NOW"
include_permissions_instructions = false
include_apps_instructions = false
include_collaboration_mode_instructions = false
web_search = "disabled"

[skills]
include_instructions = false
[skills.bundled]
enabled = false

[features]
apps = false
plugins = false
memories = false
goals = false
multi_agent = false
shell_snapshot = false
hooks = false
remote_plugin = false
tool_suggest = false
image_generation = false
skill_search = false
workspace_dependencies = false

[model_providers.mock]
name = "mock"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false
"""


def find_codex() -> str | None:
    """The path of the real program, None where it cannot be had."""
    given = os.environ.get("UNSPOOL_PEER_CODEX")
    if given:
        return given if Path(given).exists() else None
    found = shutil.which("codex")
    if found:
        return found
    installed = (folder / "node_modules" / ".bin" / "codex" for folder in (ROOT, *ROOT.parents))
    return next((str(path) for path in installed if path.exists()), None)


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, method: str, error: Mapping[str, Any]) -> None:
        super().__init__(f"{method}: {error}")
        self.error = error


class Server:
    """One app-server process and a client of it. Every wait is bounded; `close` ends the process by its id."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path) -> None:
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=env, cwd=cwd
        )
        self._inbox: queue.Queue[Json | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ids = 0
        self._seen: list[Json] = []
        self.tools: dict[str, Callable[[Any], str]] = {}

    def greet(self) -> None:
        """Do the handshake."""
        client = {"name": "peer-test", "version": "1", "title": "peer test"}
        self.call("initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}})
        self._send({"method": "initialized"})

    def call(self, method: str, params: Json) -> Json:
        """Send a request and give its result. Raises Refused."""
        answer = self.ask(method, params)
        if "error" in answer:
            raise Refused(method, answer["error"])
        result: Json = answer["result"]
        return result

    def ask(self, method: str, params: Json) -> Json:
        """Send a request and give its whole answer."""
        self._ids += 1
        number = self._ids
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._next()
            if message.get("id") == number and "method" not in message:
                return message

    def wait(self, method: str, thread_id: str) -> Json:
        """The params of the oldest notification of this name not yet taken."""
        while True:
            for index, message in enumerate(self._seen):
                if message.get("method") == method and message["params"].get("threadId") == thread_id:
                    del self._seen[index]
                    params: Json = message["params"]
                    return params
            self._next()

    def forget(self) -> None:
        """Take all notifications that have come in."""
        self._seen.clear()

    # Operations

    def start(self, cwd: Path, **params: Any) -> str:
        """Start a thread."""
        given = {"cwd": str(cwd), "baseInstructions": BASE, "developerInstructions": "DEV", **params}
        return str(self.call("thread/start", given)["thread"]["id"])

    def turn(self, thread_id: str, text: str, **params: Any) -> Json:
        """Run a turn to its end."""
        self.begin(thread_id, text, **params)
        turn: Json = self.wait("turn/completed", thread_id)["turn"]
        return turn

    def begin(self, thread_id: str, text: str, **params: Any) -> str:
        """Start a turn."""
        given = {"threadId": thread_id, "input": [{"type": "text", "text": text}], **params}
        return str(self.call("turn/start", given)["turn"]["id"])

    def compact(self, thread_id: str) -> None:
        """Let the model compact, and wait for it."""
        self.call("thread/compact/start", {"threadId": thread_id})
        assert self.wait("turn/completed", thread_id)["turn"]["status"] == "completed"

    def close(self) -> None:
        """End the process in order; by force where it does not."""
        with suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self.process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(3)
                break
        self._end()

    def kill(self) -> None:
        """End the process with kill -9."""
        self.process.kill()
        self.process.wait(WAIT_S)
        with suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        self._end()

    def _end(self) -> None:
        self._reader.join(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()

    def _send(self, message: Json) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError):
                self._inbox.put(json.loads(line))
        self._inbox.put(None)

    def _next(self) -> Json:
        message = self._inbox.get(timeout=WAIT_S)
        assert message is not None, "the server ended"
        if message.get("method") == "item/tool/call" and "id" in message:
            text = self.tools[message["params"]["tool"]](message["params"]["arguments"])
            result = {"contentItems": [{"type": "inputText", "text": text}], "success": True}
            self._send({"id": message["id"], "result": result})
        elif "method" in message:
            self._seen.append(message)
        return message


class PeerHome:
    """A home that both servers can open, one after the other, and the model service that both ask."""

    def __init__(self, folder: Path, codex: str, *, cwd: Path | None = None) -> None:
        self.folder, self._codex = folder, codex
        self.home, self.cwd = folder / "home", cwd or folder / "proj"
        for path in (self.home, self.cwd):
            path.mkdir(parents=True, exist_ok=True)
        self._running: list[Server] = []
        self.mock = Mock()
        (self.home / "config.toml").write_text(CONFIG.format(port=self.mock.port))

    def copy(self, name: str) -> "PeerHome":
        """The same logs in a home of its own, without the databases that servers keep beside them."""
        other = PeerHome(self.folder / name, self._codex, cwd=self.cwd)
        for part in ("sessions", "archived_sessions"):
            if (self.home / part).is_dir():
                shutil.copytree(self.home / part, other.home / part)
        return other

    def open(self, who: Who) -> Server:
        """Start a server on this home."""
        env = {**os.environ, "CODEX_HOME": str(self.home), "TZ": "Etc/UTC", "SHELL": "/bin/bash", "RUST_LOG": "warn"}
        if who == "codex":
            command = [self._codex, "app-server"]
        else:
            command = [sys.executable, "-m", "unspool_server.cli.main", "app-server", "--home", str(self.home)]
            env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        server = Server(command, env, self.cwd, self.home / f"{who}.stderr")
        self._running.append(server)
        server.greet()
        return server

    def complaints(self) -> list[str]:
        """What the real one said about records that it could not read.

        It does not know the record of a thread's name (names are no records of its logs) and those of ours, and passes
        them over with a warning, and one more for the ordinal behind them.
        """
        path = self.home / "codex.stderr"
        text = path.read_text(errors="replace") if path.exists() else ""
        lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
        told = [line for line in lines if re.search(r"skipping|pars|deserial", line, re.I)]
        passed = [line for line in told if NOT_ITS_OWN.search(line)]
        ordinals = {m[1] for line in passed if (m := re.search(r"expected_ordinal=(\d+)", line))}
        gaps = tuple(f"skipped_ordinal_start={number} " for number in ordinals)
        return [line for line in told if line not in passed and not any(gap in line + " " for gap in gaps)]

    def logs(self) -> dict[Path, bytes]:
        """All logs of this home, by their path in it."""
        return {path.relative_to(self.home): path.read_bytes() for path in sorted(self.home.rglob("rollout-*.jsonl"))}

    def done(self) -> None:
        """End what still runs."""
        for server in self._running:
            if server.process.poll() is None:
                server.kill()
        self.mock.srv.shutdown()
        self.mock.srv.server_close()


DROPPED = frozenset({"id", "status", "internal_chat_message_metadata_passthrough", "metadata", "phase"})


def normal_item(item: Mapping[str, Any]) -> Json:
    """An input item without ids and metadata, which are each server's own."""
    kept = {key: value for key, value in item.items() if key not in DROPPED and value is not None}
    if isinstance(kept.get("content"), list):
        shown = ("type", "text", "image_url", "refusal")
        kept["content"] = [{key: part[key] for key in shown if key in part} for part in kept["content"]]
    return kept


def normal_input(request: Mapping[str, Any]) -> list[Json]:
    """The input of a request without the base instructions in front."""
    items = [normal_item(item) for item in request["body"]["input"]]
    base = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": BASE}]}
    return items[1:] if items and items[0] == base else items


def next_input(home: PeerHome, who: Who, thread_id: str, text: str = "what next", **params: Any) -> list[Json]:
    """What the model is sent first when this server resumes the thread and runs a turn."""
    server = home.open(who)
    try:
        server.call("thread/resume", {"threadId": thread_id})
        before = len(home.mock.requests)
        turn = server.turn(thread_id, text, **params)
        assert turn["status"] == "completed", turn
        return normal_input(home.mock.requests[before])
    finally:
        server.close()


def texts(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each item says, short, for people who read a failure."""
    told = []
    for item in items:
        content = item.get("content")
        parts = [str(part.get("text", part["type"])) for part in content] if isinstance(content, list) else []
        said = item.get("arguments") or item.get("output") or ""
        told.append(f"{item.get('role') or item.get('type')}: {' & '.join(parts) or said}")
    return told
