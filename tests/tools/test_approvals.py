"""Asking whether a command may run: when, whom, what counts as an answer, and what comes of each."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House, LocalDaemon
from tests.interaction.stories import story
from tests.interaction.wire import Client, Message
from tests.tools.commands import (
    ASKING,
    FULL,
    REQUEST,
    asked,
    command,
    commands,
    decided,
    done,
    output_lines,
    outputs,
    shell_house,
)

REJECTED = 'exec_command failed: CreateProcess {{ message: "Rejected(\\"{}\\")" }}'
AMENDMENT = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}}


async def asking(house: House, daemon: LocalDaemon, **settings: Any) -> tuple[Client, str, str, Message]:
    """A client whose turn asks it about a command: client, thread, turn, request."""
    client = await daemon.connect()
    thread = await client.start(cwd=str(house.work), **(settings or ASKING))
    turn = await client.begin(thread, "go")
    return client, thread, turn, await asked(client)


def status_flags(messages: list[Message]) -> list[str]:
    """Messages in words, flags of the status included."""
    told = []
    for message, word in zip(messages, (story([message])[0] for message in messages), strict=True):
        flags = ((message.get("params") or {}).get("status") or {}).get("activeFlags") if "status" in word else None
        told.append(f"{word} {flags}" if flags is not None else word)
    return told


async def test_a_command_is_asked_about_before_it_runs_and_everything_comes_in_order(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(command("touch here", justification="May I?"))
    async with house.daemon() as daemon:
        client, thread, turn, request = await asking(house, daemon)
        assert not (house.work / "here").exists()
        shown = await client.event("item/started", turnId=turn, since=client.seen.index(request) - 1)
        item = shown["params"]["item"]
        assert request["params"] == {
            "kind": "command",
            "threadId": thread,
            "turnId": turn,
            "itemId": "c1",
            "startedAtMs": item["startedAtMs"],
            "environmentId": "local",
            "reason": "May I?",
            "command": item["command"],
            "cwd": str(house.work),
            "commandActions": [{"type": "unknown", "command": "touch here"}],
            "availableDecisions": ["accept", "acceptForSession", "decline", "cancel"],
        }
        assert (item["status"], item["source"], item["processId"]) == ("inProgress", "agent", None)
        mark = client.seen.index(request)
        await client.send(decided(request, "accept"))
        await client.ended(turn)
        assert status_flags(client.seen[mark - 2 : mark + 5]) == [
            "status active ['waitingOnApproval']",
            "item/started commandExecution",
            REQUEST,
            "serverRequest/resolved",
            "status active []",
            "item/completed commandExecution",
            "thread/tokenUsage/updated",
        ]
        assert (house.work / "here").exists()
        assert (await done(client))["status"] == "completed"


@pytest.mark.parametrize(
    ("decision", "status", "output"),
    [("decline", "declined", "rejected by user"), (None, "failed", "approval request failed")],
)
async def test_a_command_that_is_not_allowed_does_not_run_and_the_turn_goes_on(
    house: House, mock: Mock, decision: str | None, status: str, output: str
) -> None:
    shell_house(house, mock)
    mock.push(command("touch here"))
    async with house.daemon() as daemon:
        client, thread, turn, request = await asking(house, daemon)
        refusal = {"id": request["id"], "error": {"code": -32000, "message": "no"}}
        await client.send(decided(request, decision) if decision else refusal)
        assert (await client.ended(turn))["status"] == "completed"
        assert outputs(mock)["c1"] == REJECTED.format(output)
        live = await done(client)
        assert (live["status"], live["exitCode"]) == (status, None)
        assert commands((await client.read(thread))["turns"][0]) == [live]
    assert not (house.work / "here").exists()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert commands((await client.read(thread))["turns"][0]) == [live]


async def test_cancel_declines_the_command_and_interrupts_the_turn(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(command("touch here"))
    async with house.daemon() as daemon:
        client, _, turn, request = await asking(house, daemon)
        mark = client.mark
        await client.send(decided(request, "cancel"))
        assert (await client.ended(turn))["status"] == "interrupted"
        assert status_flags(client.seen[mark:]) == [
            "serverRequest/resolved",
            "item/completed commandExecution",
            "status active []",
            "thread/tokenUsage/updated",
            "status idle",
            "turn/completed interrupted",
        ]
        assert (await done(client))["status"] == "declined"
        await client.turn(request["params"]["threadId"], "on")
        assert outputs(mock)["c1"].endswith("aborted by user")
    assert not (house.work / "here").exists()


@pytest.mark.parametrize("decision", ["acceptForSession", AMENDMENT])
async def test_what_is_allowed_for_the_session_is_this_command_in_this_folder_until_the_thread_is_loaded_anew(
    house: House, mock: Mock, decision: Any
) -> None:
    shell_house(house, mock)
    (house.work / "sub").mkdir()
    mock.push(command("touch here"))
    async with house.daemon() as daemon:
        client, thread, turn, request = await asking(house, daemon)
        await client.send(decided(request, decision))
        await client.ended(turn)
        mock.push(command("touch here", "c2"))
        await client.turn(thread, "again")
        assert output_lines(mock, "c2")[0] == "Process exited with code 0"
        mock.push(command("touch here", "c3", workdir="sub"))
        turn = await client.begin(thread, "elsewhere")
        await client.send(decided(await asked(client, "c3"), "decline"))
        await client.ended(turn)
    mock.push(command("touch here", "c4"))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        turn = await client.begin(thread, "later")
        await client.send(decided(await asked(client, "c4"), "decline"))
        await client.ended(turn)
    assert not (house.work / "sub" / "here").exists()


@pytest.mark.parametrize(
    ("settings", "runs"),
    [
        ({"approvalPolicy": "never", "sandbox": "danger-full-access"}, True),
        ({"approvalPolicy": "on-request", "sandbox": "danger-full-access"}, True),
        ({"approvalPolicy": {"granular": {"sandbox_approval": False}}, "sandbox": "danger-full-access"}, True),
        ({"approvalPolicy": "untrusted", "sandbox": "danger-full-access"}, None),
        ({"approvalPolicy": "on-request", "sandbox": "workspace-write"}, None),
        ({"approvalPolicy": "untrusted", "sandbox": "read-only"}, None),
        ({"approvalPolicy": {"granular": {"sandbox_approval": True}}, "sandbox": "read-only"}, None),
        ({"approvalPolicy": {"granular": {"sandbox_approval": False}}, "sandbox": "read-only"}, False),
        ({"approvalPolicy": "never", "sandbox": "workspace-write"}, False),
        ({"approvalPolicy": "never", "sandbox": "read-only"}, False),
    ],
)
async def test_without_full_access_no_command_runs_unasked(
    house: House, mock: Mock, settings: dict[str, Any], runs: bool | None
) -> None:
    shell_house(house, mock)
    mock.push(command("touch here"))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **settings)
        turn = await client.begin(thread, "go")
        if runs is None:
            await client.send(decided(await asked(client), "decline"))
        await client.ended(turn)
        assert client.count(REQUEST) == (runs is None)
        if runs is False:
            assert "this server has no sandbox" in outputs(mock)["c1"]
            assert (await done(client))["status"] == "declined"
    assert (house.work / "here").exists() is (runs is True)


async def test_an_answer_that_is_none_decides_nothing(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(command("touch here"))
    async with house.daemon() as daemon:
        client, thread, turn, request = await asking(house, daemon)
        answers: tuple[Any, ...] = (
            {},
            {"decision": "yes"},
            {"decision": None},
            [],
            "accept",
            {"decision": {"accept": True}},
        )
        for nonsense in answers:
            await client.send({"id": request["id"], "result": nonsense})
        await client.send({"id": request["id"], "error": "no object"})
        await client.settled()
        assert (await client.read(thread))["status"]["activeFlags"] == ["waitingOnApproval"]
        await client.send(decided(request, "accept"))
        await client.ended(turn)
        assert output_lines(mock)[0] == "Process exited with code 0"


async def test_with_nobody_there_it_waits_until_somebody_comes(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(command("touch here"))
    async with house.daemon() as daemon:
        client, thread, turn, request = await asking(house, daemon)
        await client.close()
        other = await daemon.connect()
        await other.call("thread/resume", {"threadId": thread})
        again = await asked(other)
        assert again == request
        await other.send(decided(again, "accept"))
        assert (await other.ended(turn))["status"] == "completed"


async def test_two_questions_keep_the_thread_waiting_until_the_second_answer(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(command("touch a", "c1"), command("touch b", "c2"))
    async with house.daemon() as daemon:
        client, thread, turn, first = await asking(house, daemon)
        second = await asked(client, "c2")
        await client.send(decided(second, "decline"))
        await done(client, "c2")
        assert (await client.read(thread))["status"]["activeFlags"] == ["waitingOnApproval"]
        await client.send(decided(first, "decline"))
        await client.ended(turn)
        flags = [
            m["params"]["status"].get("activeFlags") for m in client.seen if "status/changed" in str(m.get("method"))
        ]
        assert flags == [[], ["waitingOnApproval"], [], None]


async def test_a_question_that_nobody_answers_in_time_is_a_no_with_a_reason(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    house.settings["approval_timeout_secs"] = 77
    mock.push(command("touch here"))
    waited: list[float] = []
    due = asyncio.Event()

    async def clock(seconds: float) -> None:
        waited.append(seconds)
        await due.wait()

    async with house.daemon() as daemon:
        daemon.services.env.sleep = clock
        client, thread, turn, request = await asking(house, daemon)
        due.set()
        assert (await client.ended(turn))["status"] == "completed"
        await client.event("serverRequest/resolved", requestId=request["id"])
        await client.send(decided(request, "accept"))
        await client.settled()
        assert waited == [77.0]
        assert (await done(client))["status"] == "declined"
        assert outputs(mock)["c1"] == REJECTED.format("nobody answered the approval request in time")
    assert [record["payload"]["decision"] for record in decisions(house, thread)] == ["approvalTimedOut"]
    assert not (house.work / "here").exists()


def decisions(house: House, thread: str) -> list[dict[str, Any]]:
    """The recorded decisions of a thread."""
    return [record for record in house.records(thread) if record["type"] == "unspool_approval"]


async def test_each_decision_is_recorded_when_it_is_made(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(command("touch here"))
    async with house.daemon() as daemon:
        client, thread, turn, request = await asking(house, daemon)
        await client.send(decided(request, "decline"))
        await client.ended(turn)
        entries = (await client.call("thread/audit", {"threadId": thread}))["data"]
    (record,) = decisions(house, thread)
    payload = record["payload"]
    assert payload["asked_at_ms"] <= payload["decided_at_ms"]
    assert {key: payload[key] for key in ("turn_id", "call_id", "cwd", "decision")} == {
        "turn_id": turn,
        "call_id": "c1",
        "cwd": str(house.work),
        "decision": "decline",
    }
    assert payload["command"][-1] == "touch here"
    assert "unspool_approval" in {entry["type"] for entry in entries}


@pytest.mark.parametrize("how", ["interrupt", "close"])
async def test_a_pending_question_ends_with_its_turn_and_history_stays_valid(
    house: House, mock: Mock, how: str
) -> None:
    shell_house(house, mock)
    mock.push(command("touch here"))
    async with house.daemon() as daemon:
        client, thread, turn, _request = await asking(house, daemon)
        mark = client.mark
        if how == "interrupt":
            await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
            await client.ended(turn)
            assert story(client.seen[mark:]) == [
                "answer",
                "serverRequest/resolved",
                "thread/tokenUsage/updated",
                "status idle",
                "turn/completed interrupted",
            ]
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread, "approvalPolicy": "never"})
        assert [turn["status"] for turn in resumed["thread"]["turns"]] == ["interrupted"]
        await client.turn(thread, "on")
        assert outputs(mock)["c1"].endswith("aborted by user")
    assert not (house.work / "here").exists()


async def test_a_thread_of_another_system_runs_nothing_and_says_why(house: House, mock: Mock) -> None:
    shell_house(house, mock)
    mock.push(command("touch here"))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **FULL)
        session = daemon.session(thread)
        session.settings = replace(session.settings, cwd="C:\\work")
        await client.turn(thread, "go")
        warning = await client.until(lambda m: m.get("method") == "warning" and m["params"].get("code") == "cwdMissing")
        assert warning["params"]["threadId"] == thread
        assert "no working directory" in outputs(mock)["c1"]
