"""Pi sessions become threads: versions 1 to 3, branches, compactions, shell commands."""

from pathlib import Path

from unspool_server.history.boundaries import SUMMARY_PREFIX
from unspool_server.importers import FileReport, Outcome, import_paths
from unspool_server.store.local import LocalStore

from tests.importers.foreign import CLAUDE_SESSION, PI_SESSION, Pi, stamp, text, write
from tests.importers.looking import files_of, model_items, told


def imported(tmp_path: Path, session: Pi) -> FileReport:
    """Import one session."""
    write(tmp_path / "pi/agent/sessions/--tmp--" / f"2025_{PI_SESSION}.jsonl", session.lines)
    [report] = import_paths([tmp_path / "pi/agent"], tmp_path / "home").files
    return report


def with_tools(version: int = 3) -> Pi:
    """A turn with a thought, a call and an answer."""
    session = Pi(version=version)
    session.entry("model_change", "e0", provider="anthropic", modelId="claude-sonnet-4-5")
    session.message("e1", "user", "list files")
    session.message(
        "e2",
        "assistant",
        [
            {"type": "thinking", "thinking": "need ls", "thinkingSignature": "s"},
            text("I look."),
            {"type": "toolCall", "id": "call_1|fc_1", "name": "bash", "arguments": {"command": "ls"}},
        ],
        model="claude-sonnet-4-5",
        stopReason="toolUse",
        usage={"input": 1},
    )
    session.message("e3", "toolResult", [text("a\nb")], toolCallId="call_1|fc_1", toolName="bash", isError=False)
    session.message("e4", "assistant", [text("Two files.")], model="claude-sonnet-4-5", stopReason="stop")
    return session


TOLD = [
    "user: list files", "thought need ls", "assistant: I look.", "call call_1 bash", "output call_1 a\nb",
    "assistant: Two files.",
]  # fmt: skip


async def test_a_session_with_tools_is_one_thread(tmp_path: Path) -> None:
    session = with_tools()
    session.entry("session_info", "n1", name="Files")
    report = imported(tmp_path, session)
    assert (report.outcome, report.losses, report.threads) == (Outcome.IMPORTED, [], [PI_SESSION])
    assert told(await model_items(tmp_path / "home", PI_SESSION)) == TOLD
    store = LocalStore(tmp_path / "home")
    records = [record async for record in store.read(PI_SESSION)]
    await store.close()
    assert [record.payload["thread_name"] for record in records if record.event == "thread_name_updated"] == ["Files"]
    assert records[0].payload["originator"] == "pi"
    [start] = [record for record in records if record.event == "task_started"]
    assert start.extra == {"unspool": {"imported": {"model": "claude-sonnet-4-5"}}}
    assert records[-1].timestamp == stamp(5)


async def test_the_first_version_is_a_line_of_entries(tmp_path: Path) -> None:
    session = with_tools(version=1)
    for line in session.lines:
        assert isinstance(line, dict)
        for key in ("version",) if line["type"] == "session" else ("id", "parentId"):
            del line[key]
    session.lines.append({"type": "compaction", "timestamp": stamp(9), "summary": "Sum.", "firstKeptEntryIndex": 5})
    report = imported(tmp_path, session)
    assert (report.losses, report.threads) == ([], [PI_SESSION])
    assert told(await model_items(tmp_path / "home", PI_SESSION)) == [
        f"user: {SUMMARY_PREFIX}\nSum.", "assistant: Two files.",
    ]  # fmt: skip


async def test_the_newest_entry_decides_what_is_the_present_and_the_rest_are_forks(tmp_path: Path) -> None:
    session = with_tools()
    session.message("f1", "user", "left")
    session.message("f2", "assistant", [text("left answer")], stopReason="stop")
    session.entry("branch_summary", "g0", parent="e4", fromId="f2", summary="They went left.")
    session.message("g1", "user", "right")
    session.entry("label", "g2", targetId="g1", label="here")
    session.entry("model_change", "h1", parent="f2", provider="x", modelId="y")
    session.message("g3", "assistant", [text("right answer")], parent="g2", stopReason="stop")
    report = imported(tmp_path, session)
    home = tmp_path / "home"
    present, fork = report.threads
    assert present == PI_SESSION
    lines = told(await model_items(home, present))
    assert (lines[:6], lines[7:]) == (TOLD, ["user: right", "assistant: right answer"])
    assert "They went left." in lines[6] and lines[6].startswith("developer: ")
    assert told(await model_items(home, fork)) == [*TOLD, "user: left", "assistant: left answer"]
    assert [(loss.kind, loss.id) for loss in report.losses] == [("label", "g2")]


async def test_a_compaction_keeps_the_entries_that_it_names(tmp_path: Path) -> None:
    session = with_tools()
    session.message("e5", "user", "and dirs?")
    session.message("e6", "assistant", [text("none")], stopReason="stop")
    session.entry("compaction", "c1", summary="Files were listed.", firstKeptEntryId="e5", tokensBefore=9)
    session.message("e7", "user", "thanks")
    report = imported(tmp_path, session)
    assert report.losses == []
    assert told(await model_items(tmp_path / "home", PI_SESSION)) == [
        f"user: {SUMMARY_PREFIX}\nFiles were listed.", "user: and dirs?", "assistant: none", "user: thanks",
    ]  # fmt: skip


async def test_shell_commands_custom_messages_and_failures_keep_their_meaning(tmp_path: Path) -> None:
    session = Pi(parentSession=f"/x/2025_{CLAUDE_SESSION}.jsonl")
    session.message("s1", "bashExecution", command="ls", output="a", exitCode=0, cancelled=False, truncated=False)
    session.message("s2", "bashExecution", command="pwd", output="/", exitCode=0, excludeFromContext=True)
    session.message("u1", "user", "go")
    session.entry("custom_message", "c1", customType="x", content="be brief", display=True)
    session.message("a1", "assistant", [], stopReason="error", errorMessage="overloaded")
    session.message("u2", "user", "again")
    session.message("a2", "assistant", [text("well")], stopReason="aborted")
    session.entry("custom", "k1", customType="state", data={})
    session.message("o1", "oracle", "?")
    report = imported(tmp_path, session)
    assert [(loss.kind, loss.id) for loss in report.losses] == [("custom", "k1"), ("message.oracle", "o1")]
    lines = told(await model_items(tmp_path / "home", PI_SESSION))
    assert lines[0].startswith("user: <user_shell_command>") and "\na\n" in lines[0]
    assert lines[1:5] == ["user: go", "developer: be brief", "user: again", "assistant: well"]
    store = LocalStore(tmp_path / "home")
    records = [record async for record in store.read(PI_SESSION)]
    await store.close()
    ends = [record for record in records if record.event in ("task_complete", "turn_aborted")]
    assert [(end.event, (end.payload.get("error") or {}).get("message")) for end in ends] == [
        ("task_complete", None), ("task_complete", None), ("task_complete", "overloaded"), ("turn_aborted", None),
    ]  # fmt: skip
    assert records[0].payload["forked_from_id"] == CLAUDE_SESSION


async def test_damage_and_missing_parents_are_losses_and_a_second_import_changes_nothing(tmp_path: Path) -> None:
    session = with_tools()
    session.lines.insert(3, "{broken")
    session.message("u2", "user", "more", parent="gone")
    report = imported(tmp_path, session)
    assert [(loss.line, loss.kind, loss.id) for loss in report.losses] == [
        (4, "invalidJson", None), (8, "parentId", "gone"),
    ]  # fmt: skip
    assert told(await model_items(tmp_path / "home", PI_SESSION)) == [*TOLD, "user: more"]
    before = files_of(tmp_path / "home")
    assert imported(tmp_path, session).outcome is Outcome.UNCHANGED
    assert files_of(tmp_path / "home") == before
