"""The real `codex exec --json --remote ws://…` runs turns on our daemon, `resume` included."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.real_clients.conftest import Place
from tests.real_clients.daemons import WebSocketDaemon
from tests.real_clients.packages import Unavailable, codex

Run = Callable[..., "Ran"]
RUN_S = 60


class Ran:
    """One run of the program."""

    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self.status, self.stderr = process.returncode, process.stderr
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in process.stdout.splitlines() if line[:1] == "{"]

    @property
    def thread(self) -> str:
        """The thread's id, from the first line."""
        return str(self.lines[0]["thread_id"])

    @property
    def types(self) -> list[str]:
        """The kinds of lines in order, without notices."""
        return [line["type"] for line in self.lines if line.get("item", {}).get("type") != "error"]

    @property
    def said(self) -> list[str]:
        """The agent's messages."""
        items = [line["item"] for line in self.lines if line["type"] == "item.completed"]
        return [item["text"] for item in items if item["type"] == "agent_message"]


@pytest.fixture(scope="module")
def run(place: Place, socket: WebSocketDaemon) -> Run:
    """Runs the program with a prompt against the daemon."""
    try:
        binary = codex()
    except Unavailable as reason:
        pytest.skip(str(reason))
    Path(place.env["CODEX_HOME"]).mkdir(exist_ok=True)

    def ran(*words: str, stdin: str = "") -> Ran:
        command = [str(binary), "exec", "--json", "--skip-git-repo-check", "--remote", socket.url, *words]
        env = {**os.environ, **place.env}
        done = subprocess.run(
            command, env=env, cwd=place.work, input=stdin, capture_output=True, text=True, timeout=RUN_S, check=False
        )
        return Ran(done)

    return ran


def test_a_turn_runs_and_its_lines_are_complete(run: Run) -> None:
    ran = run("hello from exec")
    assert ran.status == 0, ran.stderr
    assert ran.types == ["thread.started", "turn.started", "item.completed", "turn.completed"]
    assert ran.said == ["hello from exec"]
    assert ran.lines[-1]["usage"]["input_tokens"] > 0


def test_a_thread_is_resumed_by_its_id(run: Run) -> None:
    first = run("first words")
    again = run("resume", first.thread, "second words")
    assert (again.status, again.thread, again.said) == (0, first.thread, ["second words"])


def test_the_last_message_is_written_to_a_file(run: Run, place: Place) -> None:
    ran = run("words to keep", "--output-last-message", str(place.work / "last.txt"))
    assert ran.status == 0 and (place.work / "last.txt").read_text() == "words to keep"


def test_a_prompt_comes_from_standard_input(run: Run) -> None:
    assert run("-", stdin="from a pipe\n").said == ["from a pipe\n"]


def test_an_unknown_thread_is_refused(run: Run) -> None:
    ran = run("resume", "01900000-0000-7000-8000-000000000000", "anyone?")
    assert ran.status == 1 and not ran.said
