"""`unspool threads audit` and the choices of `unspool threads delete`, on a home of the test's own."""

import json
from collections.abc import Callable
from pathlib import Path

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
        result = CliRunner().invoke(main, [*arguments, "--home", str(home)], input=stdin, prog_name="unspool")
        assert result.exit_code == 0, result.output
        return result

    return run


def started(unspool: Run, *words: str) -> str:
    """A thread with a turn for each word."""
    first = unspool("exec", "--json", "--skip-git-repo-check", words[0])
    thread = str(json.loads(first.stdout.splitlines()[0])["thread_id"])
    for word in words[1:]:
        unspool("exec", "resume", thread, "--json", "--skip-git-repo-check", word)
    return thread


def test_an_audit_shows_every_line_with_its_fate(unspool: Run) -> None:
    thread = started(unspool, "hello", "again")
    unspool("threads", "rollback", thread)
    entries = json.loads(unspool("threads", "audit", thread, "--json").stdout)
    table = [line.rstrip() for line in unspool("threads", "audit", thread).stdout.splitlines()]
    assert [entry["rolloutId"] for entry in entries].count(thread) < len(entries)
    gone = next(entry for entry in entries if entry["label"] == "user: again")
    by = gone["model"]["by"]
    row = next(line for line in table if line.endswith("user: again"))
    assert f"rollback @…{by['rolloutId'][-6:]}:{by['ordinal']}" in row
    kept = next(line for line in table if line.endswith("user: hello"))
    assert kept.split()[2:6] == ["response_item", "in", "·", "·"]
    assert len([line for line in table if line.lstrip().startswith("rollout ")]) == 2


def test_an_audit_shows_raw_lines_and_other_branches_on_demand(unspool: Run) -> None:
    thread = started(unspool, "hello", "again")
    unspool("threads", "rollback", thread)
    left = json.loads(unspool("threads", "audit", thread, "--branch", thread, "--raw", "--json").stdout)
    said = next(entry for entry in left if entry["label"] == "user: again")
    assert said["model"] == {"inForce": True}
    assert json.loads(said["raw"])["payload"]["content"][0]["text"] == "again"
    assert '"text":"again"' in unspool("threads", "audit", thread, "--raw").stdout.replace("\n", "")


def test_a_thread_can_be_deleted_with_its_forks_or_without_harming_them(unspool: Run) -> None:
    thread = started(unspool, "hello")
    fork = json.loads(unspool("threads", "fork", thread, "--json").stdout)["id"]
    told = unspool("threads", "delete", thread, "--yes", "--dependents", "materialize").stdout
    assert told.splitlines() == [f"deleted {thread}", f"copied {fork}"]
    other = json.loads(unspool("threads", "fork", fork, "--json").stdout)["id"]
    told = unspool("threads", "delete", fork, "--yes", "--dependents", "cascade").stdout
    assert told.splitlines() == [f"deleted {other}", f"deleted {fork}"]
    assert json.loads(unspool("threads", "list", "--json").stdout) == []
