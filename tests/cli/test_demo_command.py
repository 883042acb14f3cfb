"""The demo: it tells its story, checks what it says, and leaves nothing running."""

import asyncio
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from unspool_server.cli import demo_daemon, demo_story
from unspool_server.cli.demo_daemon import running_daemon
from unspool_server.cli.demo_telling import ClaimFailed, Telling
from unspool_server.cli.main import main

FIXTURE = Path(__file__).parents[1] / "fixtures" / "codex" / "tool_loop"


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_daemon, "PACE_S", 0.0)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_every_claim_holds_and_no_process_is_left() -> None:
    result = CliRunner().invoke(main, ["demo", "--plain"], prog_name="unspool")

    assert result.exit_code == 0, result.output
    assert re.search(r"All (\d+) claims were checked and hold\.", result.output)
    assert "\x1b" not in result.output
    pids = [int(pid) for pid in re.findall(r"process (\d+)", result.output)]
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_a_claim_that_does_not_hold_is_named_and_ends_the_demo_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_story, "only_grown", lambda before, after: False)

    result = CliRunner().invoke(main, ["demo", "--plain"], prog_name="unspool")

    assert result.exit_code == 1
    last = result.output.strip().splitlines()[-1]
    assert last.startswith("✗ This claim does not hold: For neither was a byte of any log changed")
    assert gone(int(re.findall(r"process (\d+)", result.output)[0]))


def test_an_error_breaks_the_demo_off_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(telling: Telling, home: Path) -> None:
        raise RuntimeError("the daemon did not start: no memory")

    monkeypatch.setattr(demo_story, "tell", tell)

    result = CliRunner().invoke(main, ["demo", "--plain"], prog_name="unspool")

    assert (result.exit_code, result.output.strip()) == (
        1,
        "✗ The demo broke off: the daemon did not start: no memory",
    )


async def test_a_daemon_that_does_not_start_tells_why(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("model = ")

    with pytest.raises(RuntimeError, match="did not start: Error loading config"):
        async with asyncio.timeout(20), running_daemon(tmp_path, []):
            pass


def test_a_claim_counts_only_when_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    telling = Telling(plain=True)
    telling.claim(True, "this is so")

    with pytest.raises(ClaimFailed, match="this is not"):
        telling.claim(False, "this is not")

    assert telling.claims == 1
    assert capsys.readouterr().out == "   ✓ this is so\n"


def test_the_shipped_log_is_the_fixture_byte_for_byte() -> None:
    (fixture,) = FIXTURE.rglob("*.jsonl")
    shipped = Path(demo_story.__file__).parent / "demo_log"

    assert (shipped / fixture.name).read_bytes() == fixture.read_bytes()
    assert fixture.name in (shipped / "ORIGIN.md").read_text()
