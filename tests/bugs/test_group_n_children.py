"""Child processes of tools that outlive the server as orphans or zombies."""

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.faults.daemon_process import WAIT_S, DaemonProcess, daemon_process
from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.tools.commands import FULL, NEST, alive, command, commands, eventually, printed, shell_house

CONFIG = """
allow_login_shell = false
drain_timeout_secs = 0
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.offline]
name = "Offline"
wire_api = "offline"
script = "script.json"
"""

Ending = Callable[[DaemonProcess], Awaitable[None]]


async def killed(daemon: DaemonProcess) -> None:
    """Signal 9."""
    await daemon.kill()


async def terminated(daemon: DaemonProcess) -> None:
    """SIGTERM."""
    daemon.process.terminate()
    await daemon.process.wait()


async def hung_up(daemon: DaemonProcess) -> None:
    """The end of its input."""
    assert daemon.process.stdin is not None
    daemon.process.stdin.close()
    await daemon.process.wait()


def is_there(pid: int) -> bool:
    """Whether a process is there and no zombie that a lax init left behind."""
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes() if Path("/proc").is_dir() else alive(pid)
    except (FileNotFoundError, ProcessLookupError):
        return False


def no_child_is_left() -> bool:
    """Whether this process has no child, dead ones that nobody has taken in included."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


@pytest.mark.parametrize("ending", [killed, terminated, hung_up])
async def test_b105_children_and_grandchildren_end_with_the_server_however_it_ends(
    tmp_path: Path, ending: Ending
) -> None:
    """Commands that were running when the server was killed go on for ever, owned by init."""
    home = tmp_path / "home"
    home.mkdir()
    script = {"replies": [[command(NEST, yield_time_ms=30000)]]}
    (home / "script.json").write_text(json.dumps(script))
    async with daemon_process(home, config=CONFIG) as daemon:
        started = await daemon.result("thread/start", cwd=str(tmp_path))
        await daemon.result("turn/start", threadId=started["thread"]["id"], input=[{"type": "text", "text": "go"}])
        pids = await daemon.output_of("c1", until="up\n")
        assert len(pids) == 3 and all(is_there(pid) for pid in pids)
        await ending(daemon)
    await eventually(lambda: not any(is_there(pid) for pid in pids), WAIT_S)


async def test_b105_they_end_with_their_thread_and_none_is_left_unreaped(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    house.settings["thread_unload_delay_secs"] = 0
    mock.push(command(NEST, yield_time_ms=1), command("sleep 600 & true", "c2"))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        await client.turn(thread, "go")
        *told, _ = await printed(client, "up\n")
        pids = [int(pid) for pid in told]
        await client.call("thread/unsubscribe", {"threadId": thread})
        await client.event("thread/closed", threadId=thread)
        assert not any(is_there(pid) for pid in pids)
        assert no_child_is_left()
        items = {item["id"]: item for item in commands((await client.read(thread))["turns"][0])}
        ended = items["c1"]
        assert (ended["status"], ended["exitCode"]) == ("failed", -1)
