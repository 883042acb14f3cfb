"""Process life: what a daemon leaves behind when it dies, and how one that lives is found and ended."""

import json
import signal
from pathlib import Path

from tests.interaction.house import House
from tests.operations.processes import ended, run, serving, unix


async def turn(house: House, thread: str | None = None) -> None:
    """Run a turn with the command, so that whoever still holds the thread would be in its way."""
    words = ["resume", thread, "more"] if thread is not None else ["hello"]
    status, _, told = await run("exec", "--json", "-C", str(house.work), "--home", str(house.home), *words)
    assert status == 0, told


def leftovers(home: Path) -> set[str]:
    """Files that say something about a process."""
    return {path.name for path in home.rglob("*") if path.suffix in (".pid", ".sock", ".lock", ".json")}


async def test_b101_what_a_killed_daemon_left_behind_keeps_nobody_from_starting(house: House) -> None:
    """A stale PID file, lock or socket blocks every start for days."""
    where = house.home / "app-server.sock"
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
    async with unix(house.home) as first:
        held = await run("threads", "show", thread, "--remote", f"unix://{where}")
        assert held[0] == 0
        first.kill()
        await ended(first)
    assert "app-server.sock" in leftovers(house.home), "it had no time to remove it"
    stale = [path for path in house.home.rglob("*.lock") if path.name == f"{thread}.lock"]
    assert stale, "the files of its locks are there"
    async with unix(house.home) as second:
        assert (await run("doctor", "--json", "--home", str(house.home)))[0] == 0
        second.send_signal(signal.SIGTERM)
        assert await ended(second) == 0
    await turn(house, thread)


async def test_b103_a_server_whose_files_are_gone_is_still_asked_and_ended(house: House) -> None:
    """The server lives but its state files are gone: it can be neither stopped nor adopted."""
    async with serving(house.home) as (running, address):
        for path in sorted(house.home.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        url = f"ws://{address}"
        status, out, _ = await run("doctor", "--json", "--remote", url)
        told = json.loads(out)
        assert (status, told["process"]["id"], told["home"]) == (0, running.pid, str(house.home))
        assert told["listeners"] == [url]
        assert (await run("stop", "--remote", url))[:2] == (0, f"process {running.pid} has ended its work\n")
        assert await ended(running) == 0
    nobody = await run("stop", "--home", str(house.home))
    assert nobody[0] == 1 and "say where it is with --remote" in nobody[2]
