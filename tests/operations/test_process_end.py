"""Signals and exit statuses of real processes, and the commands that ask and end a daemon."""

import asyncio
import json
import signal
import socket

import pytest
from click.testing import CliRunner
from unspool_server.cli.operating import health

from tests.interaction.house import House, StdioWire
from tests.interaction.stories import HANG, word
from tests.interaction.wire import Client
from tests.operations.processes import ended, line, process, run, serving


def configured(house: House, *replies: object, drain_s: float) -> None:
    """Write the configuration of a daemon whose model hangs."""
    house.settings |= {"drain_timeout_secs": drain_s}
    house.offline(*HANG)
    house._write_config()


async def hanging_over_stdio(running: asyncio.subprocess.Process, house: House) -> tuple[Client, str, str]:
    """A client, its thread, and a turn that hangs."""
    assert running.stdin is not None
    info = {"clientInfo": {"name": "t", "version": "1"}, "capabilities": {"experimentalApi": True}}
    running.stdin.write(json.dumps({"id": 0, "method": "initialize", "params": info}).encode() + b"\n")
    await line(running.stdout, "userAgent")  # a busy machine takes its time to start a process
    client = Client(StdioWire(running))
    thread = await client.start(cwd=str(house.work))
    turn = await client.begin(thread, "go")
    await client.event("item/agentMessage/delta", turnId=turn)
    return client, thread, turn


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_parks_the_running_turn_says_goodbye_and_ends_with_0(house: House, number: int) -> None:
    configured(house, drain_s=0.05)
    async with process("app-server", "--home", str(house.home)) as running:
        client, thread, turn = await hanging_over_stdio(running, house)
        running.send_signal(number)
        assert await ended(running) == 0
        assert (await client.ended(turn))["status"] == "interrupted"
        closing = await client.event("connection/closing")
        assert word(client.seen[-1]) == "connection/closing"
        await client.close()
    assert closing["params"]["cursors"] == {thread: client.events(thread)[-1]["cursor"]}
    assert house.records(thread)[-1]["payload"]["type"] == "turn_aborted"


async def test_a_second_signal_does_not_wait(house: House) -> None:
    configured(house, drain_s=600.0)
    async with process("app-server", "--home", str(house.home)) as running:
        client, _, _ = await hanging_over_stdio(running, house)
        running.send_signal(signal.SIGTERM)
        await client.event("server/draining", deadlineMs=600_000)
        running.send_signal(signal.SIGTERM)
        assert await ended(running) == -signal.SIGTERM
        await client.close()


async def test_exec_ends_its_turn_in_order_on_sigterm_and_says_so_with_143(house: House) -> None:
    configured(house, drain_s=0.0)
    async with process("exec", "--json", "-C", str(house.work), "--home", str(house.home), "go") as running:
        assert running.stdin is not None
        running.stdin.close()
        await line(running.stdout, "turn.started")
        running.send_signal(signal.SIGTERM)
        assert await ended(running) == 143
    (log,) = house.logs().values()
    assert json.loads(log.splitlines()[-1])["payload"]["type"] == "turn_aborted"


async def test_what_cannot_start_ends_with_1_and_wrong_words_with_2(house: House) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        url = f"ws://127.0.0.1:{taken.getsockname()[1]}"
        async with process("app-server", "--listen", url, "--home", str(house.home)) as running:
            told = await line(running.stderr, "Error: cannot listen on (.*): ")
            refused = await ended(running)
    wrong, _, _ = await run("app-server", "--no-such-flag")
    assert (refused, wrong) == (1, 2)
    assert told[1] == url


async def test_health_asks_the_listener_and_fails_where_nobody_listens(house: House) -> None:
    async with serving(house.home) as (_, address):
        live = await run("health", f"ws://{address}")
        ready = await run("health", "--ready", f"http://{address}")
    gone = await run("health", f"http://{address}")
    assert (live[:2], ready[:2]) == ((0, "healthy\n"), (0, "ready\n"))
    assert gone[0] == 1 and gone[2].startswith(f"no answer from http://{address}")


@pytest.mark.parametrize("url", ["http://[::1", "http://h:port", "http://h:99999", "http://a b", "ftp://h", "h:1"])
def test_health_of_what_is_no_address_is_a_wrong_use(url: str) -> None:
    asked = CliRunner().invoke(health, [url])
    assert (asked.exit_code, isinstance(asked.exception, SystemExit)) == (2, True)
    assert "is no http:// or ws:// address" in asked.output


async def test_doctor_looks_at_a_home_that_nobody_serves(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        held = json.loads((await run("doctor", "--json", "--home", str(house.home)))[1])
    status, out, _ = await run("doctor", "--json", "--home", str(house.home), "-c", "nonsense=1")
    left = json.loads(out)
    assert held["held"].keys() == {thread}
    assert (status, left["held"], left["faults"]) == (0, {}, [])
    assert left["notes"] == ["unknown configuration key `nonsense` is ignored"]
    assert (left["logs"]["threads"], left["logs"]["bytes"]) == (1, len(house.log(thread)))
    broken = await run("doctor", "--home", str(house.home), "-c", "drain_timeout_secs=soon")
    assert broken[0] == 1 and "drain_timeout_secs" in broken[1]
