"""Commands end to end: a daemon inside the process, the offline provider, a home of the test's own."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from unspool_server.cli.main import main

Run = Callable[..., Result]


@pytest.fixture
def unspool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on the test's home, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"

    def run(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(main, [*arguments, "--home", str(home)], input=stdin, prog_name="unspool")

    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[[object], list[str]]:
    """Writes a script of replies and gives the flags that make the offline provider follow it."""

    def write(replies: object) -> list[str]:
        path = tmp_path / "script.json"
        path.write_text(json.dumps(replies))
        return ["-c", f"model_providers.offline={{wire_api='offline', script='{path}'}}"]

    return write


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def thread_of(result: Result) -> str:
    first = lines(result)[0]
    assert first["type"] == "thread.started"
    return str(first["thread_id"])


def messages(result: Result) -> list[str]:
    items = [line["item"] for line in lines(result) if line["type"] == "item.completed"]
    return [item["text"] for item in items if item["type"] == "agent_message"]


def shown(unspool: Run, thread_id: str) -> list[list[str]]:
    """The texts of a thread's turns."""
    thread = json.loads(unspool("threads", "show", thread_id, "--json").stdout)
    return [
        [
            item.get("text") or item["content"][0]["text"]
            for item in turn["items"]
            if item["type"] != "contextCompaction"
        ]
        for turn in thread["turns"]
    ]


def test_a_turn_is_run_and_told_as_lines(unspool: Run) -> None:
    result = unspool("exec", "--json", "--skip-git-repo-check", "hello there")

    assert result.exit_code == 0
    told = lines(result)
    assert [line["type"] for line in told] == ["thread.started", "turn.started", "item.completed", "turn.completed"]
    assert told[2]["item"] == {"id": "item_0", "type": "agent_message", "text": "hello there"}
    assert set(told[3]["usage"]) == {
        "input_tokens",
        "cached_input_tokens",
        "cache_write_input_tokens",
        "output_tokens",
        "reasoning_output_tokens",
    }


def test_people_get_the_answer_on_stdout_and_the_transcript_on_stderr(unspool: Run) -> None:
    result = unspool("exec", "hello", stdin="piped")

    assert (result.exit_code, result.stdout) == (0, "hello\n\n<stdin>\npiped\n</stdin>\n")
    assert "\nmodel: offline-echo\n" in result.stderr
    assert "\nagent\nhello\n" in result.stderr


def test_a_failed_turn_ends_with_status_1(unspool: Run, script: Callable[[object], list[str]], tmp_path: Path) -> None:
    out = tmp_path / "last.txt"

    result = unspool("exec", "--json", "-o", str(out), *script([[{"http": 500}]]), "hi")

    message = "We’re currently experiencing high demand, which may cause temporary errors."
    assert result.exit_code == 1
    assert lines(result)[1:] == [
        {"type": "turn.started"},
        {"type": "error", "message": message},
        {"type": "turn.failed", "error": {"message": message}},
    ]
    assert out.read_text() == ""


def test_the_last_message_is_written_to_a_file(
    unspool: Run, script: Callable[[object], list[str]], tmp_path: Path
) -> None:
    out = tmp_path / "last.txt"

    result = unspool("exec", "-o", str(out), *script([[{"say": "first"}, {"say": "last"}]]), "hi")

    assert (result.exit_code, result.stdout, out.read_text()) == (0, "last\n", "last")


def test_a_thread_is_resumed_by_id_by_place_and_by_name(unspool: Run) -> None:
    thread = thread_of(unspool("exec", "--json", "one"))

    again = unspool("exec", "--json", "resume", thread, "two")
    last = unspool("exec", "resume", "--last", "three", "--json")

    assert (thread_of(again), messages(again)) == (thread, ["two"])
    assert (thread_of(last), messages(last)) == (thread, ["three"])
    assert shown(unspool, thread) == [["one", "one"], ["two", "two"], ["three", "three"]]
    missing = unspool("exec", "resume", "no such name", "x")
    assert (missing.exit_code, missing.stderr) == (1, "Error: no thread named no such name\n")


def test_a_fork_leaves_its_parent_alone(unspool: Run) -> None:
    parent = thread_of(unspool("exec", "--json", "one"))

    child = thread_of(unspool("exec", "--json", "fork", parent, "two"))
    silent = unspool("exec", "--json", "fork", parent)

    assert child != parent
    assert shown(unspool, child) == [["one", "one"], ["two", "two"]]
    assert shown(unspool, parent) == [["one", "one"]]
    assert [line["type"] for line in lines(silent)] == ["thread.started"]


def test_an_unknown_thread_and_a_bad_setting_end_with_one_line_and_status_1(unspool: Run) -> None:
    unknown = unspool("exec", "--json", "resume", "00000000-0000-7000-8000-000000000000", "x")
    bad = unspool("exec", "-c", "approval_policy=sometimes", "x")

    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr == "Error: no rollout found for thread id 00000000-0000-7000-8000-000000000000\n"
    assert bad.exit_code == 1
    assert bad.stderr.splitlines()[-1].startswith("Error loading config.toml: configuration key `approval_policy`")


def test_an_ephemeral_run_leaves_nothing_behind(unspool: Run) -> None:
    assert unspool("exec", "--ephemeral", "hi").exit_code == 0

    assert unspool("threads", "list", "--json").stdout == "[]\n"
    assert unspool("threads", "list").stdout == "no threads\n"


def test_threads_are_listed_and_shown(unspool: Run) -> None:
    thread = thread_of(unspool("exec", "--json", "what a day"))

    table, facts = unspool("threads", "list").stdout, unspool("threads", "show", thread).stdout

    assert thread in table
    assert "what a day" in table
    assert "userMessage: what a day" in facts
    assert "agentMessage: what a day" in facts


def test_turns_are_dropped_and_brought_back(unspool: Run) -> None:
    thread = thread_of(unspool("exec", "--json", "one"))
    unspool("exec", "resume", thread, "two")

    dropped = unspool("threads", "rollback", thread, "-n", "1")
    assert (dropped.exit_code, shown(unspool, thread)) == (0, [["one", "one"]])
    undone = unspool("threads", "rollback", thread, "--undo")

    assert (undone.exit_code, shown(unspool, thread)) == (0, [["one", "one"], ["two", "two"]])
    too_many = unspool("threads", "rollback", thread, "-n", "9")
    assert too_many.exit_code == 1
    assert too_many.stderr.startswith("Error: ")


@pytest.mark.parametrize("flags", [[], ["--summary", "all of it"]])
def test_a_thread_is_compacted_by_the_model_or_by_hand(unspool: Run, flags: list[str]) -> None:
    thread = thread_of(unspool("exec", "--json", "one"))

    result = unspool("threads", "compact", thread, *flags)

    assert (result.exit_code, result.stdout) == (0, f"compacted {thread}\n")
    assert messages(unspool("exec", "--json", "resume", thread, "two")) == ["two"]


def test_threads_are_forked_archived_and_deleted(unspool: Run) -> None:
    parent = thread_of(unspool("exec", "--json", "one"))
    child = json.loads(unspool("threads", "fork", parent, "--json").stdout)["id"]

    assert unspool("threads", "archive", parent).stdout == f"archived {parent}\n"
    listed = json.loads(unspool("threads", "list", "--archived", "--json").stdout)
    assert [thread["id"] for thread in listed] == [parent]
    assert unspool("threads", "unarchive", parent).exit_code == 0
    assert unspool("threads", "delete", child, stdin="n\n").exit_code == 1
    assert unspool("threads", "delete", child, "--yes").stdout == f"deleted {child}\n"
    assert unspool("threads", "show", child).exit_code == 1


def test_a_replay_tells_the_events_in_order(unspool: Run) -> None:
    thread = thread_of(unspool("exec", "--json", "one"))
    unspool("exec", "resume", thread, "two")

    events = lines(unspool("replay", thread, "--json"))
    text = unspool("replay", thread, "--speed", "1000").stdout

    completed = [event for event in events if event["method"] == "item/completed"]
    assert [event["params"]["item"]["type"] for event in completed] == ["userMessage", "agentMessage"] * 2
    assert [event["method"] for event in events].count("turn/completed") == 2
    assert all("cursor" in event and "emittedAtMs" in event for event in completed)
    assert [line for line in text.splitlines() if line in ("one", "two")] == ["one", "one", "two", "two"]
    later = lines(unspool("replay", thread, "--json", "--after", completed[1]["cursor"], "--item-kind", "userMessage"))
    assert [event["params"]["item"]["type"] for event in later if event["method"] == "item/completed"] == [
        "userMessage"
    ]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A daemon of its own process on a free port; gives its address."""
    command = [sys.executable, "-m", "unspool_server.cli.main", "app-server", "--listen", "ws://127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--home", str(tmp_path / "server")], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    killer = threading.Timer(30, process.kill)
    killer.start()
    try:
        assert process.stderr is not None
        yield next(line.split()[-1] for line in process.stderr if "listening on" in line)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        killer.cancel()
    assert process.returncode == 0


def test_commands_use_a_running_server(unspool: Run, server: str, tmp_path: Path) -> None:
    thread = thread_of(unspool("exec", "--json", "--remote", server, "-C", str(tmp_path), "hi"))

    assert thread in unspool("threads", "list", "--remote", server).stdout
    assert unspool("threads", "list", "--json").stdout == "[]\n"


def test_a_server_that_is_not_there_ends_with_one_line(unspool: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        result = unspool("exec", "--remote", f"ws://127.0.0.1:{taken.getsockname()[1]}", "hi")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].startswith("Error: ")


def test_interrupting_a_run_ends_its_turn_and_gives_status_1(
    unspool: Run, script: Callable[[object], list[str]], tmp_path: Path
) -> None:
    flags = script([[{"say": "so far"}, {"hang": True}]])
    command = [sys.executable, "-m", "unspool_server.cli.main", "exec", "--json", "--home", str(tmp_path / "home")]
    process = subprocess.Popen(
        [*command, *flags, "hi"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    killer = threading.Timer(30, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        # The message before the hang is out, so the turn runs.
        assert any("so far" in line for line in process.stdout)
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=20)
    finally:
        killer.cancel()

    assert process.returncode == 1
    thread = json.loads(unspool("threads", "show", first["thread_id"], "--json").stdout)
    assert [turn["status"] for turn in thread["turns"]] == ["interrupted"]


def test_an_archived_thread_is_refused_with_the_command_that_brings_it_back(unspool: Run) -> None:
    thread_id = thread_of(unspool("exec", "--json", "one"))
    unspool("threads", "archive", thread_id)

    result = unspool("exec", "resume", thread_id, "two")

    assert result.exit_code == 1
    assert f"`unspool threads unarchive {thread_id}`" in result.stderr


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "unspool_server.cli.main",
            "serve",
            "--port",
            str(port),
            "--home",
            str(tmp_path),
        ]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert (ended.returncode, ended.stderr) == (
        1,
        f"Error: cannot listen on ws://127.0.0.1:{port}: Address already in use\n",
    )
