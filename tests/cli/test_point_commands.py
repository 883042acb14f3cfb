"""`unspool threads restore`, `context` and `diff`, on a home of the test's own."""

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

    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*arguments, "--home", str(home)], prog_name="unspool")
        assert result.exit_code == code, result.output
        return result

    return run


def test_a_thread_is_looked_at_compared_and_brought_back(unspool: Run) -> None:
    first = unspool("exec", "--json", "--skip-git-repo-check", "hello")
    thread = str(json.loads(first.stdout.splitlines()[0])["thread_id"])
    unspool("exec", "resume", thread, "--json", "--skip-git-repo-check", "again")
    context = json.loads(unspool("threads", "context", thread, "--json").stdout)
    place = f"{context['at']['rolloutId']}:{context['at']['ordinal']}"
    unspool("threads", "rollback", thread)

    then = unspool("threads", "context", thread, "--at", place).stdout
    assert "user: again" in then and f"total {context['totalTokens']} tokens" in then
    assert "user: again" not in unspool("threads", "context", thread).stdout
    told = unspool("threads", "diff", thread, place).stdout
    assert any(line.startswith("- ") and line.rstrip().endswith("user: again") for line in told.splitlines())
    assert json.loads(unspool("threads", "diff", thread, place, place, "--json").stdout)["turns"] == {
        "added": [], "removed": [], "changed": [],
    }  # fmt: skip
    assert f"restored {thread} to {place}" in unspool("threads", "restore", thread, "--at", place).stdout
    assert json.loads(unspool("threads", "context", thread, "--json").stdout)["items"] == context["items"]


def test_what_is_no_position_is_told(unspool: Run) -> None:
    assert "is no position" in unspool("threads", "context", "x", "--at", "r:y", code=2).output
