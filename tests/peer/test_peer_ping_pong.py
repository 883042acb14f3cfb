"""Both servers take turns on one home, with the databases that the real one keeps beside the logs."""

from collections.abc import Callable

import pytest

from tests.peer.codex_peer import Json, PeerHome, Who, normal_input
from tests.peer.operations import compacted

Homes = Callable[[str], PeerHome]


def add_turn(home: PeerHome, who: Who, thread_id: str, text: str, **params: str) -> list[Json]:
    """Resume, run a turn, end the server; gives the turn's first input."""
    server = home.open(who)
    try:
        server.call("thread/resume", {"threadId": thread_id, **params})
        before = len(home.mock.requests)
        assert server.turn(thread_id, text)["status"] == "completed"
        return normal_input(home.mock.requests[before])
    finally:
        server.close()


def first_turn(home: PeerHome, who: Who, **params: str) -> tuple[str, list[Json]]:
    server = home.open(who)
    try:
        thread_id = server.start(home.cwd, **params)
        server.turn(thread_id, "turn 0")
        return thread_id, normal_input(home.mock.requests[0])
    finally:
        server.close()


def users(items: list[Json]) -> list[str]:
    said = [item["content"][0]["text"] for item in items if item.get("role") == "user"]
    return [text for text in said if not text.startswith("<")]


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
@pytest.mark.parametrize("first", ["ours", "codex"])
def test_each_request_begins_with_the_whole_request_of_the_other_server(homes: Homes, first: Who, mode: str) -> None:
    home = homes("shared")
    order: list[Who] = ["ours", "codex"] if first == "ours" else ["codex", "ours"]
    thread_id, before = first_turn(home, first, historyMode=mode)

    for number in range(1, 6):
        now = add_turn(home, order[number % 2], thread_id, f"turn {number}")
        assert now[: len(before)] == before
        added = now[len(before) :]
        assert [item.get("role") for item in added] == ["assistant", "user"]
        before = now

    assert users(before) == [f"turn {number}" for number in range(6)]
    assert home.complaints() == []


def test_codex_follows_our_rollback_and_its_undo_in_a_home_without_its_databases(homes: Homes) -> None:
    home = homes("shared")
    thread_id, _ = first_turn(home, "codex")
    add_turn(home, "ours", thread_id, "turn 1")
    add_turn(home, "codex", thread_id, "turn 2")

    change(home, "thread/rollback", thread_id, numTurns=1)
    assert users(tried(home, thread_id)) == ["turn 0", "turn 1", "try"]

    change(home, "thread/rollback/undo", thread_id)
    assert users(tried(home, thread_id)) == ["turn 0", "turn 1", "turn 2", "try"]


def test_codex_with_its_database_stays_in_the_file_that_it_noted(homes: Homes) -> None:
    """Codex notes which file is a thread's present, and only its own revert moves the note. Known limit of sharing."""
    home = homes("shared")
    thread_id, _ = first_turn(home, "codex")
    add_turn(home, "ours", thread_id, "turn 1")
    change(home, "thread/rollback", thread_id, numTurns=1)

    assert users(add_turn(home, "codex", thread_id, "turn 2")) == ["turn 0", "turn 1", "turn 2"]
    assert users(add_turn(home, "ours", thread_id, "turn 3")) == ["turn 0", "turn 3"]


def tried(home: PeerHome, thread_id: str) -> list[Json]:
    """What Codex would send, asked on a copy of the logs."""
    copy = home.copy(f"copy-{len(home.mock.requests)}-{len(home.logs())}")
    try:
        return add_turn(copy, "codex", thread_id, "try")
    finally:
        copy.done()


def test_we_undo_what_codex_reverted(homes: Homes) -> None:
    home = homes("shared")
    thread_id, _ = first_turn(home, "ours")
    add_turn(home, "codex", thread_id, "turn 1")
    server = home.open("codex")
    try:
        server.call("thread/resume", {"threadId": thread_id})
        turn_id = server.turn(thread_id, "turn 2")["id"]
        server.call("thread/revert", {"threadId": thread_id, "beforeTurnId": turn_id})
    finally:
        server.close()
    assert users(add_turn(home, "ours", thread_id, "turn 3")) == ["turn 0", "turn 1", "turn 3"]

    change(home, "thread/rollback/undo", thread_id)

    assert users(add_turn(home, "ours", thread_id, "turn 4")) == ["turn 0", "turn 1", "turn 2", "turn 4"]


def test_a_thread_that_one_server_holds_is_refused_by_the_other(homes: Homes) -> None:
    home = homes("shared")
    thread_id, _ = first_turn(home, "ours")
    holder = home.open("codex")
    try:
        holder.call("thread/resume", {"threadId": thread_id})
        holder.turn(thread_id, "held by codex")
        other = home.open("ours")
        try:
            answer = other.ask("turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "mine"}]})
            assert "error" in answer
        finally:
            other.close()
    finally:
        holder.close()


def change(home: PeerHome, method: str, thread_id: str, **params: int) -> None:
    server = home.open("ours")
    try:
        server.call("thread/resume", {"threadId": thread_id})
        server.call(method, {"threadId": thread_id, **params})
    finally:
        server.close()


def test_logs_of_both_lie_where_the_other_looks(homes: Homes) -> None:
    home = homes("shared")
    mine, _ = first_turn(home, "ours")
    server = home.open("codex")
    try:
        theirs = server.start(home.cwd)
        server.turn(theirs, "hello")
    finally:
        server.close()
    listed = {}
    for who in ("ours", "codex"):
        server = home.open(who)
        try:
            page = server.call("thread/list", {"limit": 50, "modelProviders": [], "sourceKinds": []})
            listed[who] = {thread["id"]: thread["preview"] for thread in page["data"]}
        finally:
            server.close()

    assert listed["ours"] == listed["codex"] == {mine: "turn 0", theirs: "hello"}
    assert {path.parts[0] for path in home.logs()} == {"sessions"}


def test_we_replace_a_summary_of_codex_and_codex_keeps_ours_as_a_message(homes: Homes) -> None:
    """A summary is known by the sentence in front of it. Ours is another one, which Codex cannot know (07 §6.2)."""
    assert len(summaries_after_second_compaction(homes("codex-first"), "codex", "ours")) == 1
    assert len(summaries_after_second_compaction(homes("ours-first"), "ours", "codex")) == 2


def summaries_after_second_compaction(home: PeerHome, first: Who, second: Who) -> list[str]:
    server = home.open(first)
    try:
        thread_id = compacted(home, server, first)
    finally:
        server.close()
    server = home.open(second)
    try:
        server.call("thread/resume", {"threadId": thread_id})
        server.compact(thread_id)
        before = len(home.mock.requests)
        server.turn(thread_id, "end")
    finally:
        server.close()
    said = users(normal_input(home.mock.requests[before]))
    assert [text for text in said if "summary" not in text] == ["one", "two", "three", "after it", "end"]
    return [text for text in said if "summary" in text]
