"""`unspool import` as people and scripts use it."""

import json
from pathlib import Path

from click.testing import CliRunner, Result
from unspool_server.cli.main import main

from tests.importers.foreign import CLAUDE_SESSION, Claude, text, write

FIXTURES = Path(__file__).parents[1] / "fixtures" / "codex"


def run(home: Path, *arguments: str) -> Result:
    """Run the command on a home."""
    return CliRunner().invoke(main, ["import", *arguments, "--home", str(home)], prog_name="unspool")


def session(folder: Path, *more: dict[str, object]) -> Path:
    """A small session."""
    made = Claude()
    made.user("u1", "hello")
    made.said("a1", text("hi"))
    made.lines.extend(more)
    return write(folder / f"{CLAUDE_SESSION}.jsonl", made.lines)


def test_status_is_zero_when_everything_came_over(tmp_path: Path) -> None:
    done = run(tmp_path / "home", str(session(tmp_path / "in")))
    assert (done.exit_code, done.output) == (
        0,
        "1 files: 1 imported, 0 unchanged, 0 failed; 1 threads, 0 losses\n",
    )


def test_status_is_one_when_something_was_lost_and_the_report_names_it(tmp_path: Path) -> None:
    path = session(tmp_path / "in", {"type": "file-history-snapshot", "messageId": "m9"})
    done = run(tmp_path / "home", str(path))
    assert done.exit_code == 1
    assert done.output.splitlines()[:2] == [
        f"{path} (claude): imported",
        "  line 3: file-history-snapshot m9: Backups of files lie outside the session.",
    ]
    told = json.loads(run(tmp_path / "home", str(path), "--json").output)
    assert (told["losses"], told["unchanged"], told["reports"][0]["losses"][0]["id"]) == (1, 1, "m9")


def test_status_is_two_for_a_path_that_is_not_there(tmp_path: Path) -> None:
    assert run(tmp_path / "home", str(tmp_path / "nowhere")).exit_code == 2
    assert run(tmp_path / "home").exit_code == 2


def test_imported_logs_pass_the_check_of_logs(tmp_path: Path) -> None:
    run(tmp_path / "home", str(session(tmp_path / "in")), str(FIXTURES / "fork_parent_continues"))
    checked = CliRunner().invoke(main, ["verify", "--all", "--home", str(tmp_path / "home")], prog_name="unspool")
    assert (checked.exit_code, checked.output.count(": clean (")) == (0, 3)


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    done = run(tmp_path / "home", str(session(tmp_path / "in")), "--dry-run")
    assert (done.exit_code, (tmp_path / "home").exists()) == (0, False)
    assert "1 would be imported" in done.output


def test_a_format_that_was_named_is_not_guessed(tmp_path: Path) -> None:
    done = run(tmp_path / "home", str(session(tmp_path / "in")), "--from", "pi", "--json")
    assert done.exit_code == 1
    assert json.loads(done.output)["reports"][0]["outcome"] == "failed"
