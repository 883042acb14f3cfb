"""Commands under their supervisors: output, ends, and what they leave behind."""

import asyncio
import os
from pathlib import Path

import pytest
from unspool_server.processes.environment import FIXED, EnvironmentPolicy, child_environment
from unspool_server.processes.runner import Command, CommandNotStarted, Process, start_process

from tests.interaction.wire import WAIT_S
from tests.tools.commands import alive, all_gone, eventually


class Run:
    """A started command and what it printed."""

    def __init__(self) -> None:
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    async def start(self, line: str, cwd: Path, *, tty: bool = False) -> Process:
        env = {"PATH": os.environ["PATH"], "TERM": "dumb"}
        return await start_process(Command(("/bin/sh", "-c", line), str(cwd), env, tty), self.pieces.append)


async def ended(process: Process) -> int:
    """Wait for the end; returns the exit code."""
    async with asyncio.timeout(WAIT_S):
        await process.exited.wait()
    assert process.exit_code is not None
    return process.exit_code


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("echo out; echo err >&2; exit 3", 3, "out\nerr\n"),
        ("kill -TERM $$", 143, ""),
        ("cat; echo end of input", 0, "end of input\n"),
        ("printf '\\303'; printf '\\251'; printf '\\377'", 0, "é�"),
    ],
)
async def test_output_and_end_of_a_command_come_back(tmp_path: Path, line: str, code: int, text: str) -> None:
    run = Run()
    process = await run.start(line, tmp_path)
    assert await ended(process) == code
    assert run.text == text
    await process.close()


async def test_what_a_command_wrote_before_its_end_is_all_there(tmp_path: Path) -> None:
    run = Run()
    process = await run.start("seq 1 30000; sleep 600 & exit 0", tmp_path)
    assert await ended(process) == 0
    assert run.text == "".join(f"{number}\n" for number in range(1, 30001))
    await process.close()


async def test_what_it_left_behind_writes_no_more_output_and_ends_with_it(tmp_path: Path) -> None:
    run = Run()
    process = await run.start("(sleep 0.05; echo late; echo $$ > late; sleep 600) & echo $!; exit 0", tmp_path)
    assert await ended(process) == 0
    (pid,) = run.text.split()
    await eventually((tmp_path / "late").exists)
    assert alive(int(pid))
    await process.close()
    await all_gone([pid])
    assert run.text.split() == [pid]


async def test_one_that_does_not_heed_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    run = Run()
    process = await run.start("trap '' TERM; echo $$; while :; do sleep 600; done", tmp_path)
    await eventually(lambda: "\n" in run.text)
    async with asyncio.timeout(WAIT_S):
        await process.stop(grace_s=0.01)
    assert process.exit_code == 137
    await all_gone(run.text.split())


async def test_one_that_kills_its_supervisor_ends_with_its_children(tmp_path: Path) -> None:
    run = Run()
    process = await run.start("sleep 600 & echo $! $$; until [ -e go ]; do sleep 0.01; done; kill -9 $PPID", tmp_path)
    (tmp_path / "go").touch()
    assert await ended(process) == -1
    await process.close()
    await eventually(lambda: len(run.text.split()) == 2 and not any(map(running, run.text.split())))


def running(pid: str) -> bool:
    """Whether a process still does anything; what killed orphans leave is for the system to take in."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_writing_much_to_one_that_prints_without_end_holds_nobody_up(tmp_path: Path) -> None:
    run = Run()
    process = await run.start("while :; do echo more; done", tmp_path, tty=True)
    await eventually(lambda: "more" in run.text)
    process.write("x" * 1_000_000)
    so_far = len(run.text)
    await eventually(lambda: len(run.text) > so_far)
    async with asyncio.timeout(5):
        await process.stop()
    assert process.exit_code is not None


@pytest.mark.parametrize(
    ("argv", "cwd"), [(("/no/such/program",), "/"), (("/bin/sh", "-c", "true"), "/no/such/folder"), (("/",), "/")]
)
async def test_one_that_cannot_be_started_says_why(argv: tuple[str, ...], cwd: str) -> None:
    with pytest.raises(CommandNotStarted) as refused:
        await start_process(Command(argv, cwd, {}), Run().pieces.append)
    assert refused.value.reason in ("No such file or directory", "Permission denied")


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    run = Run()
    starting = asyncio.create_task(run.start(f"echo $$ > {tmp_path}/pid; sleep 600", tmp_path))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    if (tmp_path / "pid").exists():
        await all_gone((tmp_path / "pid").read_text().split())


async def test_a_terminal_takes_what_is_written_and_ends_with_control_c(tmp_path: Path) -> None:
    run = Run()
    process = await run.start("read line; echo got $line; exec cat", tmp_path, tty=True)
    process.write("hello\n")
    await eventually(lambda: "got hello" in run.text)
    # A shell may swallow Ctrl-C on its way to the next command; once cat repeats what was typed, it is gone.
    process.write("more\n")
    await eventually(lambda: run.text.count("more") == 2)
    process.write("\x03")
    assert await ended(process) == 130
    await process.close()


ENVIRON = {"PATH": "/bin", "HOME": "/h", "MY_TOKEN": "t", "api_key": "k", "PLAIN": "p", "MODEL": "m"}


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        (EnvironmentPolicy(), {"PATH", "HOME", "PLAIN", "MODEL"}),
        (EnvironmentPolicy(keep_secrets=True), {"PATH", "HOME", "PLAIN", "MODEL", "MY_TOKEN", "api_key"}),
        (
            EnvironmentPolicy(keep_secrets=True, secret=frozenset({"MY_TOKEN"})),
            {"PATH", "HOME", "PLAIN", "MODEL", "api_key"},
        ),
        (EnvironmentPolicy(inherit="core"), {"PATH", "HOME"}),
        (EnvironmentPolicy(inherit="none"), set()),
        (EnvironmentPolicy(exclude=("p*",)), {"HOME", "MODEL"}),
        (EnvironmentPolicy(inherit="none", variables={"EXTRA": "x"}), {"EXTRA"}),
        (EnvironmentPolicy(include_only=("P*",)), {"PATH", "PLAIN"}),
    ],
)
def test_a_command_gets_the_variables_that_the_policy_leaves(policy: EnvironmentPolicy, names: set[str]) -> None:
    got = child_environment(policy, ENVIRON)
    assert set(got) - set(FIXED) == names
    assert all(got[name] == ENVIRON.get(name, "x") for name in names)
