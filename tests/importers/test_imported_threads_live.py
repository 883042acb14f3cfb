"""Imported threads behave like our own: listed, read, resumed, forked, and going on with turns of ours."""

from pathlib import Path
from typing import Any

import pytest
from unspool_server.importers import import_paths
from unspool_server.model.contract import ModelRequest
from unspool_server.model.offline import OfflineProvider

from tests.importers.foreign import CLAUDE_SESSION, PI_SESSION, Claude, Pi, text, use, write
from tests.importers.looking import told
from tests.state.inprocess import house, user_texts

FIXTURES = Path(__file__).parents[1] / "fixtures" / "codex"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a Claude Code session of two branches and a Pi session."""
    claude = Claude()
    claude.user("u1", "first question")
    claude.said("a1", {"type": "thinking", "thinking": "let me see", "signature": "s"}, answer="A")
    claude.said("a2", use("toolu_1", "Bash", command="echo hi | cat"), use("toolu_2", "Read", path="x"), answer="A")
    claude.result("r1", "toolu_1", "hi\n")
    claude.result("r2", "toolu_2", [text("x!")])
    claude.said("a3", text("first answer"))
    claude.user("u2", "left question")
    claude.said("a4", text("left answer"))
    claude.user("u3", "right question", parent="a3")
    claude.said("a5", text("right answer"))
    claude.lines.append({"type": "ai-title", "aiTitle": "Questions", "sessionId": CLAUDE_SESSION})
    pi = Pi()
    pi.message("e1", "user", "pi question")
    pi.message("e2", "assistant", [text("pi answer")], stopReason="stop")
    pi.entry("compaction", "c1", summary="They asked pi.", firstKeptEntryId="e2", tokensBefore=1)
    write(tmp_path / "in" / f"{CLAUDE_SESSION}.jsonl", claude.lines)
    write(tmp_path / "in" / "pi.jsonl", pi.lines)
    assert import_paths([tmp_path / "in"], tmp_path / "home").status == 0
    return tmp_path / "home"


async def test_the_list_shows_imported_threads_with_their_names_and_times(home: Path) -> None:
    async with house(home) as daemon, daemon.client() as client:
        listed = {one["id"]: one for one in (await client.call("thread/list"))["data"]}
        assert len(listed) == 3
        claude, pi = listed[CLAUDE_SESSION], listed[PI_SESSION]
        assert (claude["name"], claude["preview"], claude["createdAt"]) == ("Questions", "first question", 1751536801)
        assert (claude["updatedAt"], claude["gitInfo"]["branch"]) == (1751536810, "main")
        assert (pi["preview"], pi["createdAt"]) == ("pi question", 1751536801)
        [fork] = listed.keys() - {CLAUDE_SESSION, PI_SESSION}
        assert listed[fork]["forkedFromId"] == CLAUDE_SESSION
        assert (await client.call("thread/list", searchTerm="left question"))["data"][0]["id"] == fork


async def test_reading_shows_the_turns_and_their_items(home: Path) -> None:
    async with house(home) as daemon, daemon.client() as client:
        read = (await client.call("thread/read", threadId=CLAUDE_SESSION, includeTurns=True))["thread"]
        first, second = read["turns"]
        assert [user_texts(turn) for turn in read["turns"]] == [["first question"], ["right question"]]
        assert [item["type"] for item in first["items"]] == [
            "userMessage", "reasoning", "commandExecution", "dynamicToolCall", "agentMessage",
        ]  # fmt: skip
        command, call = first["items"][2:4]
        assert (command["command"], command["aggregatedOutput"]) == ("/bin/bash -lc 'echo hi | cat'", "hi\n")
        assert (call["tool"], call["contentItems"]) == ("Read", [{"type": "inputText", "text": "x!"}])
        assert (first["status"], first["startedAt"], second["status"]) == ("completed", 1751536801, "completed")


@pytest.mark.parametrize("which", ["present", "fork"])
async def test_a_resumed_thread_goes_on_and_its_model_sees_everything_in_order(home: Path, which: str) -> None:
    provider = _Watching()
    side = "right" if which == "present" else "left"
    async with house(home, provider) as daemon, daemon.client() as client:
        ids = {one["id"] for one in (await client.call("thread/list"))["data"]}
        thread_id = CLAUDE_SESSION if which == "present" else (ids - {CLAUDE_SESSION, PI_SESSION}).pop()
        resumed = (await client.call("thread/resume", threadId=thread_id))["thread"]
        assert [user_texts(turn) for turn in resumed["turns"]] == [["first question"], [f"{side} question"]]
        turn = await client.turn(thread_id, "and more")
        assert turn["status"] == "completed"
        lines = [line for line in told(provider.requests[-1].input) if not line.startswith("developer: ")]
        known = [line for line in lines if not line.startswith("user: <environment_context>")]
        assert known == [
            "user: first question",
            "thought let me see",
            "call toolu_1 Bash",
            "call toolu_2 Read",
            "output toolu_1 hi\n",
            "output toolu_2 x!",
            "assistant: first answer",
            f"user: {side} question",
            f"assistant: {side} answer",
            "user: and more",
        ]
        rolled = (await client.call("thread/rollback", threadId=thread_id, numTurns=2))["thread"]
        assert [user_texts(turn) for turn in rolled["turns"]] == [["first question"]]
        fork = (await client.call("thread/fork", threadId=thread_id))["thread"]
        assert [user_texts(turn) for turn in fork["turns"]] == [["first question"]]


async def test_a_compacted_session_goes_on_from_its_summary(home: Path) -> None:
    provider = _Watching()
    async with house(home, provider) as daemon, daemon.client() as client:
        await client.call("thread/resume", threadId=PI_SESSION)
        await client.turn(PI_SESSION, "what was it?")
        lines = told(provider.requests[-1].input)
        spoken = [line for line in lines if not line.startswith(("developer: ", "user: <environment_context>"))]
        assert spoken[0].endswith("They asked pi.")
        assert spoken[1:] == ["assistant: pi answer", "user: what was it?"]


async def test_an_import_while_a_daemon_runs_is_seen_and_importing_again_after_a_turn_changes_nothing(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with house(home) as daemon, daemon.client() as client:
        assert (await client.call("thread/list"))["data"] == []
        source = FIXTURES / "plain_turns"
        assert import_paths([source], home).status == 0
        [listed] = (await client.call("thread/list"))["data"]
        await client.call("thread/resume", threadId=listed["id"], modelProvider="offline", cwd=str(tmp_path))
        turn: dict[str, Any] = await client.turn(listed["id"], "hello again")
        assert turn["status"] == "completed"
    again = import_paths([source], home)
    assert (again.status, again.counts()["unchanged"]) == (0, 1)


class _Watching(OfflineProvider):
    """The offline provider, remembering what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        return super().stream(request)
