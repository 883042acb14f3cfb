"""Commands that the model runs: what clients see, what the model reads, what the log keeps (07 §5)."""

from typing import Any

import pytest
from unspool_server.sessions.tools import terminals

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.interaction.stories import story
from tests.tools.commands import (
    FULL,
    NEST,
    all_gone,
    command,
    commands,
    deltas,
    done,
    output_lines,
    outputs,
    printed,
    session_of,
    shell_house,
)


def write(session: int, call: str, chars: str = "", **more: Any) -> dict[str, Any]:
    """A step of the model that goes on with a running command."""
    return {"call": "write_stdin", "id": call, "args": {"session_id": session, "chars": chars, **more}}


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_a_command_is_shown_streamed_told_to_the_model_and_the_same_after_a_restart(
    house: House, mock: Mock, mode: str
) -> None:
    shell_house(house, mock)
    mock.push(command("echo out; echo err >&2; exit 3"))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode, **FULL)
        mark = client.mark
        await client.turn(thread, "go")
        told = [word for word in story(client.seen[mark:]) if "command" in word]
        live = await done(client)
    assert told[0] == "item/started commandExecution"
    assert set(told[1:-1]) == {"item/commandExecution/outputDelta"}
    assert told[-1] == "item/completed commandExecution"
    assert deltas(client) == "out\nerr\n"
    assert output_lines(mock) == ["Process exited with code 3", "Original token count: 2", "Output:", "out", "err", ""]
    expected = {
        "type": "commandExecution",
        "id": "c1",
        "command": f"{live['command'].split()[0]} -c 'echo out; echo err >&2; exit 3'",
        "cwd": str(house.work),
        "source": "unifiedExecStartup",
        "status": "failed",
        "commandActions": [{"type": "unknown", "command": "echo out; echo err >&2; exit 3"}],
        "aggregatedOutput": "out\nerr\n",
        "exitCode": 3,
    }
    assert {key: live[key] for key in expected} == expected
    assert int(live["processId"]) >= 1000
    async with house.daemon() as daemon:
        client = await daemon.connect()
        (again,) = commands((await client.read(thread))["turns"][0])
        times = {"startedAtMs", "completedAtMs"} if mode == "legacy" else set()
        assert {key: again[key] for key in again if key not in times} == {
            key: live[key] for key in live if key not in times
        }


async def test_a_command_that_goes_on_has_a_session_that_can_be_looked_at_until_its_end_was_told(
    house: House, mock: Mock
) -> None:
    shell_house(house, mock)
    gate = house.work / "gate"
    mock.push(command(f"echo first; until [ -e {gate} ]; do sleep 0.01; done; echo last; exit 4", yield_time_ms=1))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        first = await client.turn(thread, "go")
        session = session_of(mock)
        listed = (await client.call("thread/backgroundTerminals/list", {"threadId": thread}))["data"]
        assert [(one["itemId"], one["processId"]) for one in listed] == [("c1", str(session))]
        mock.push(write(session, "c3", "x"), write(7, "c4"))
        await client.turn(thread, "wrong")
        gate.touch()
        mock.push(write(session, "c2"))
        await client.turn(thread, "look")
        assert output_lines(mock, "c2") == [
            "Process exited with code 4",
            "Original token count: 2",
            "Output:",
            *_last(mock),
        ]
        assert outputs(mock)["c3"] == (
            "write_stdin failed: stdin is closed for this session; rerun exec_command with tty=true to keep stdin open"
        )
        assert outputs(mock)["c4"] == "write_stdin failed: Unknown process id 7"
        ended = await done(client)
        assert (ended["exitCode"], ended["aggregatedOutput"]) == (4, "first\nlast\n")
        mock.push(write(session, "c5"))
        await client.turn(thread, "again")
        assert outputs(mock)["c5"] == f"write_stdin failed: Unknown process id {session}"
        turns = (await client.read(thread))["turns"]
        assert [commands(turn) for turn in turns] == [[ended], [], [], []]
        assert turns[0]["id"] == first


def _last(mock: Mock) -> list[str]:
    """What the second look brought: the rest, and the first line where the first look came before it."""
    told_at_first = "first" in outputs(mock)["c1"]
    return ["last", ""] if told_at_first else ["first", "last", ""]


async def test_one_round_cannot_run_more_commands_than_may_run_at_once(
    house: House, mock: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "MAX_TERMINALS", 2)
    shell_house(house, mock)
    mock.push(*(command("sleep 600", f"c{number}", yield_time_ms=1) for number in range(3)))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        await client.turn(thread, "go")
        states = sorted(output_lines(mock, f"c{number}")[0].split()[0] for number in range(3))
        assert states == ["Process", "Process", "exec_command"]
        assert len((await client.call("thread/backgroundTerminals/list", {"threadId": thread}))["data"]) == 2


async def test_a_terminal_can_be_written_to_and_clients_are_told(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(command("read line; echo got $line", tty=True, yield_time_ms=1))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        await client.turn(thread, "go")
        session = session_of(mock)
        mock.push(write(session, "c2", "hello\n", yield_time_ms=5000))
        await client.turn(thread, "write")
        interaction = await client.event("item/commandExecution/terminalInteraction")
        assert interaction["params"]["stdin"] == "hello\n"
        assert output_lines(mock, "c2")[0] == "Process exited with code 0"
        assert "got hello" in outputs(mock)["c2"]


async def test_an_interrupt_ends_the_command_with_all_it_started_and_closes_its_item(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(command(NEST, yield_time_ms=30000))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        turn = await client.begin(thread, "go")
        *pids, _ = await printed(client, "up\n")
        mark = client.mark
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        assert (await client.ended(turn))["status"] == "interrupted"
        await all_gone(pids)
        assert story(client.seen[mark:]) == [
            "answer",
            "item/completed commandExecution",
            "thread/tokenUsage/updated",
            "status idle",
            "turn/completed interrupted",
        ]
        ended = await done(client)
        assert (ended["status"], ended["exitCode"]) == ("failed", -1)
        await client.turn(thread, "on")
        assert outputs(mock)["c1"].endswith("seconds\naborted by user")
        assert commands((await client.read(thread))["turns"][0]) == [ended]


async def test_whoever_comes_while_a_command_runs_sees_its_output_so_far(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(command("echo here; sleep 600", yield_time_ms=30000))
    async with house.daemon() as daemon:
        client, other = await daemon.connect(), await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        await client.begin(thread, "go")
        await printed(client, "here\n")
        resumed = await other.call("thread/resume", {"threadId": thread, "replay": {"mode": "snapshot"}})
        (item,) = commands(resumed["thread"]["turns"][-1])
        assert (item["status"], item["aggregatedOutput"]) == ("inProgress", "here\n")


async def test_a_command_that_lives_too_long_is_ended(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    house.settings["command_timeout_secs"] = 0.05
    mock.push(command(NEST, yield_time_ms=30000))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        await client.turn(thread, "go")
        ended = await done(client)
        assert (ended["status"], ended["exitCode"]) == ("failed", -1)
        assert output_lines(mock)[0] == "Process exited with code -1"


async def test_a_rollback_ends_what_runs_in_the_past_that_is_left(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push({"say": "one"})
    mock.push(command(NEST, yield_time_ms=250))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        first, second = await client.turn(thread, "one"), await client.turn(thread, "go")
        *pids, _ = await printed(client, "up\n")
        rolled = await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        await all_gone(pids)
        assert [turn["id"] for turn in rolled["thread"]["turns"]] == [first]
        assert [turn["id"] for turn in (await client.read(thread))["turns"]] == [first]
        undone = await client.call("thread/rollback/undo", {"threadId": thread})
        assert [turn["id"] for turn in undone["thread"]["turns"]] == [first, second]
        assert commands(undone["thread"]["turns"][1])[0]["exitCode"] == -1


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ({}, "failed to parse function arguments: missing field `cmd`"),
        ({"cmd": 5}, "failed to parse function arguments: cmd: Input should be a valid string"),
        ([], "failed to parse function arguments: "),
        (
            {"cmd": "pwd", "workdir": "missing"},
            'exec_command failed: CreateProcess { message: "Rejected(\\"Failed to create unified exec process: '
            'No such file or directory\\")" }',
        ),
    ],
)
async def test_a_call_that_cannot_be_run_gets_an_output_that_says_so(
    house: House, mock: Mock, arguments: Any, output: str
) -> None:
    shell_house(house, mock)
    mock.push({"call": "exec_command", "id": "c1", "args": arguments})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        await client.turn(thread, "go")
        assert outputs(mock)["c1"].startswith(output)


async def test_a_command_runs_in_the_folder_it_names_below_the_threads_own(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    (house.work / "sub").mkdir()
    mock.push(command("pwd", workdir="sub"), command("pwd", "c2"))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        await client.turn(thread, "go")
    assert output_lines(mock)[-2:] == [str((house.work / "sub").resolve()), ""]
    assert output_lines(mock, "c2")[-2:] == [str(house.work.resolve()), ""]


async def test_commands_do_not_see_the_servers_secrets(
    house: House, mock: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell_house(house, mock)
    house.providers["mock"]["env_key"] = "MODEL_PASS"
    house.tables["shell_environment_policy"] = {"exclude": ["PLAIN_B*"], "ignore_default_excludes": False}
    for name in ("MODEL_PASS", "SOME_API_KEY", "PLAIN_A", "PLAIN_B"):
        monkeypatch.setenv(name, f"value-of-{name}")
    mock.push(command("env; tr '\\0' '\\n' < /proc/$PPID/environ"))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        await client.turn(thread, "go")
    told = outputs(mock)["c1"]
    assert "value-of-PLAIN_A" in told
    for name in ("MODEL_PASS", "SOME_API_KEY", "PLAIN_B"):
        assert f"value-of-{name}" not in told


async def test_without_the_shell_tool_it_is_neither_declared_nor_run(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    house.tables["features"] = {"shell_tool": False}
    mock.push(command("touch here"))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        await client.turn(thread, "go")
        assert outputs(mock)["c1"] == "unsupported call: exec_command"
        assert mock.last().get("tools", []) == []
        refused = await client.refused("thread/shellCommand", {"threadId": thread, "command": "true"})
        assert refused.reason == "shellDisabled"
    assert not (house.work / "here").exists()


async def test_what_a_command_prints_is_kept_within_bounds_and_cut_for_the_model(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(command("seq 1 400000", yield_time_ms=30000))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        await client.turn(thread, "go")
        kept = (await done(client))["aggregatedOutput"]
    assert kept.startswith("1\n2\n") and kept.endswith("\n400000\n")
    assert len(kept) < (1 << 20) + 100
    assert "bytes omitted" in kept
    assert len(deltas(client)) < (1 << 20) + 10_000
    assert len(outputs(mock)["c1"]) < 10_300
