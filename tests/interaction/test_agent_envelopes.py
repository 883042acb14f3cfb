"""Messages between agents as boundaries: client turns, rollback counting, fork cuts and the prompt (03 §2)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.state.agreement import assert_memory_is_the_log
from tests.state.inprocess import Client, House, Message, house, user_texts

MODES = ["paginated", "legacy"]
THREAD = "01a00000-0000-7000-8000-000000000001"
Line = tuple[str, dict[str, Any]]


def item(role: str, text: str) -> Line:
    kind = "output_text" if role == "assistant" else "input_text"
    return "response_item", {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def event(kind: str, **payload: Any) -> Line:
    return "event_msg", {"type": kind, **payload}


def shown(mode: str, turn: str, text: str) -> Line:
    """The user's message as clients see it."""
    if mode == "legacy":
        return event("user_message", message=text)
    content = [{"type": "text", "text": text, "text_elements": []}]
    return event(
        "item_completed",
        thread_id=THREAD,
        turn_id=turn,
        item={"type": "UserMessage", "id": f"i-{turn}", "content": content},
    )


def turn(turn_id: str, *body: Line) -> list[Line]:
    context = {"turn_id": turn_id, "model": "m", "cwd": "/w", "approval_policy": "never", "summary": "auto"}
    return [
        event("task_started", turn_id=turn_id),
        ("turn_context", context),
        *body,
        event("task_complete", turn_id=turn_id),
    ]


def user_turn(mode: str, turn_id: str, text: str) -> list[Line]:
    return turn(turn_id, item("user", text), shown(mode, turn_id, text), item("assistant", f"re {text}"))


def record(text: str, *, trigger: bool) -> list[Line]:
    return [
        (
            "inter_agent_communication",
            {"author": "/root", "recipient": "/root/w", "content": text, "trigger_turn": trigger},
        )
    ]


def sealed(text: str, *, trigger: bool) -> list[Line]:
    payload = {"author": "/root", "recipient": "/root/w", "encrypted_content": text, "trigger_turn": trigger}
    return [("inter_agent_communication", payload)]


def envelope(text: str, *, trigger: bool) -> list[Line]:
    """The old form: an assistant message whose only text is the message between agents."""
    content = {"author": "/root", "recipient": "/root/w", "content": text, "trigger_turn": trigger}
    return [item("assistant", json.dumps(content))]


def described(text: str, *, trigger: bool) -> list[Line]:
    """The newest form: a record that says whether it triggers, and the model's own item."""
    content = [{"type": "input_text", "text": text}]
    message = {"type": "agent_message", "author": "/root", "recipient": "/root/w", "content": content}
    return [("inter_agent_communication_metadata", {"trigger_turn": trigger}), ("response_item", message)]


FORMS = [record, sealed, envelope, described]


def write(home: Path, mode: str, *lines: Line) -> None:
    header: dict[str, Any] = {
        "session_id": THREAD, "id": THREAD, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w", "originator": "test",
        "cli_version": "0.171.0", "source": "cli", "model_provider": "offline",
    }  # fmt: skip
    if mode == "paginated":
        header["history_mode"] = mode
    folder = home / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True)
    whole: Sequence[Line] = [("session_meta", header), *lines]
    text = ""
    for ordinal, (kind, payload) in enumerate(whole):
        line: dict[str, Any] = {"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}
        if mode == "paginated":
            line["ordinal"] = ordinal
        text += json.dumps(line) + "\n"
    (folder / f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl").write_text(text)


async def turn_ids(client: Client, thread_id: str = THREAD) -> list[str]:
    read = await client.call("thread/read", threadId=thread_id, includeTurns=True)
    return [one["id"] for one in read["thread"]["turns"]]


async def items(client: Client, thread_id: str = THREAD) -> list[Message]:
    context = await client.call("thread/context", threadId=thread_id)
    return [entry["item"] for entry in context["items"]]


def texts(found: list[Message]) -> list[str]:
    return ["".join(str(part.get("text", "")) for part in one["content"]) for one in found]


async def opened(home: House, client: Client) -> None:
    await client.call("thread/resume", threadId=THREAD)
    await assert_memory_is_the_log(home, THREAD)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
async def test_a_turn_that_an_agent_message_triggers_is_visible_and_counted(
    tmp_path: Path, mode: str, form: Any
) -> None:
    write(
        tmp_path, mode, *user_turn(mode, "t1", "one"),
        *turn("t2", *form("do it", trigger=True), item("assistant", "done")),
    )  # fmt: skip
    async with house(tmp_path) as home, home.client() as client:
        await opened(home, client)
        assert await turn_ids(client) == ["t1", "t2"]
        error = await client.refused("thread/rollback", threadId=THREAD, numTurns=3)
        assert error.data["available"] == 2
        await client.call("thread/rollback", threadId=THREAD, numTurns=1)
        assert (await turn_ids(client), texts(await items(client))) == (["t1"], ["one", "re one"])
        await assert_memory_is_the_log(home, THREAD)
        await client.call("thread/rollback/undo", threadId=THREAD)
        assert await turn_ids(client) == ["t1", "t2"]
        await client.call("thread/rollback", threadId=THREAD, numTurns=2)
        assert (await turn_ids(client), await items(client)) == ([], [])
        await assert_memory_is_the_log(home, THREAD)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
async def test_a_turn_with_a_message_that_triggers_nothing_goes_along_uncounted(
    tmp_path: Path, mode: str, form: Any
) -> None:
    write(
        tmp_path, mode, *user_turn(mode, "t1", "one"), *user_turn(mode, "t2", "two"),
        *turn("t3", *form("for your information", trigger=False), item("assistant", "noted")),
    )  # fmt: skip
    async with house(tmp_path) as home, home.client() as client:
        await opened(home, client)
        assert await turn_ids(client) == ["t1", "t2", "t3"]
        assert (await client.refused("thread/rollback", threadId=THREAD, numTurns=3)).data["available"] == 2
        await client.call("thread/rollback", threadId=THREAD, numTurns=1)
        assert (await turn_ids(client), texts(await items(client))) == (["t1"], ["one", "re one"])
        await assert_memory_is_the_log(home, THREAD)


@pytest.mark.parametrize("mode", MODES)
async def test_a_message_between_turns_stays_when_the_turn_after_it_goes(tmp_path: Path, mode: str) -> None:
    write(tmp_path, mode, *user_turn(mode, "t1", "one"), *record("fyi", trigger=False), *user_turn(mode, "t2", "two"))
    async with house(tmp_path) as home, home.client() as client:
        await opened(home, client)
        await client.call("thread/rollback", threadId=THREAD, numTurns=1)
        assert (await turn_ids(client), texts(await items(client))) == (["t1"], ["one", "re one", "fyi"])
        await assert_memory_is_the_log(home, THREAD)


@pytest.mark.parametrize("mode", MODES)
async def test_the_model_gets_agent_messages_in_its_own_form(tmp_path: Path, mode: str) -> None:
    write(
        tmp_path, mode, *turn("t1", *record("do it", trigger=True)), *record("fyi", trigger=False),
        *turn("t2", *sealed("S3CR3T", trigger=True)),
    )  # fmt: skip
    async with house(tmp_path) as home, home.client() as client:
        await opened(home, client)
        sender = {"type": "agent_message", "author": "/root", "recipient": "/root/w"}
        lead = "Message Type: NEW_TASK\nTask name: /root/w\nSender: /root\nPayload:\n"
        assert await items(client) == [
            {**sender, "content": [{"type": "input_text", "text": "do it"}]},
            {**sender, "content": [{"type": "input_text", "text": "fyi"}]},
            {
                **sender,
                "content": [
                    {"type": "input_text", "text": lead},
                    {"type": "encrypted_content", "encrypted_content": "S3CR3T"},
                ],
            },
        ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
async def test_forks_count_triggering_messages_only(tmp_path: Path, mode: str, form: Any) -> None:
    write(
        tmp_path, mode, *user_turn(mode, "t1", "one"),
        *turn("t2", *form("do it", trigger=True), item("assistant", "done")),
        *turn("t3", *form("fyi", trigger=False), item("assistant", "noted")), *user_turn(mode, "t4", "two"),
    )  # fmt: skip
    async with house(tmp_path) as home, home.client() as client:
        await opened(home, client)
        whole = await items(client)
        for kept, ids in ((1, ["t4"]), (2, ["t2", "t3", "t4"]), (3, ["t1", "t2", "t3", "t4"])):
            forked = await client.call("thread/fork", threadId=THREAD, lastNBoundaries=kept)
            assert [one["id"] for one in forked["thread"]["turns"]] == ids
            child = forked["thread"]["id"]
            found = await items(client, child)
            assert found == whole[-len(found) :] and len(found) == 2 * len(ids)
            await assert_memory_is_the_log(home, child)


@pytest.mark.parametrize("mode", MODES)
async def test_a_fork_ends_at_the_boundary_of_an_agent_message(tmp_path: Path, mode: str) -> None:
    write(
        tmp_path, mode, *user_turn(mode, "t1", "one"),
        *turn("t2", *record("do it", trigger=True), item("assistant", "done")), *user_turn(mode, "t3", "two"),
    )  # fmt: skip
    async with house(tmp_path) as home, home.client() as client:
        await opened(home, client)
        for cut, ids in (({"lastTurnId": "t2"}, ["t1", "t2"]), ({"beforeTurnId": "t2"}, ["t1"])):
            forked = await client.call("thread/fork", threadId=THREAD, **cut)
            assert [one["id"] for one in forked["thread"]["turns"]] == ids
        child = forked["thread"]["id"]
        await client.turn(child, "mine")
        read = await client.call("thread/read", threadId=child, includeTurns=True)
        assert [user_texts(one) for one in read["thread"]["turns"]] == [["one"], ["mine"]]
