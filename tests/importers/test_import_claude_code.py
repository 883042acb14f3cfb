"""Claude Code sessions become threads: turns, thoughts, calls, compactions, branches and sub-agents."""

from pathlib import Path
from typing import Any

from unspool_server.history.boundaries import SUMMARY_PREFIX
from unspool_server.importers import FileReport, Outcome, import_paths
from unspool_server.store.local import LocalStore

from tests.importers.foreign import CLAUDE_SESSION, CWD, Claude, stamp, text, use, write
from tests.importers.looking import files_of, model_items, thread_ids, told


def imported(tmp_path: Path, session: Claude, name: str = f"{CLAUDE_SESSION}.jsonl") -> FileReport:
    """Import one session."""
    write(tmp_path / "projects/-tmp" / name, session.lines)
    [report] = import_paths([tmp_path / "projects"], tmp_path / "home").files
    return report


async def headers(home: Path) -> dict[str, Any]:
    """The headers of a home's threads."""
    store = LocalStore(home)
    infos = await store.rollouts()
    await store.close()
    return {info.thread_id: info.header.payload for info in infos if info.header is not None}


def with_tools() -> Claude:
    """A turn with thoughts, two calls at once whose results hang beside the path, and an answer."""
    session = Claude()
    session.user("u1", "count my files")
    session.said("a1", {"type": "thinking", "thinking": "I should look", "signature": "sig"}, answer="A")
    session.said("a2", use("toolu_1", "Bash", command="ls | wc -l"), answer="A")
    session.said("a3", use("toolu_2", "Read", file_path="/tmp/x"), answer="A")
    session.result("r1", "toolu_1", "3\n", parent="a2")
    session.result("r2", "toolu_2", [text("content of x")], parent="a3")
    session.said("a4", text("There are three."))
    return session


TOLD = [
    "user: count my files",
    "thought I should look",
    "call toolu_1 Bash",
    "call toolu_2 Read",
    "output toolu_1 3\n",
    "output toolu_2 content of x",
    "assistant: There are three.",
]


async def test_a_turn_with_thoughts_and_parallel_calls_is_one_thread_with_valid_pairs(tmp_path: Path) -> None:
    report = imported(tmp_path, with_tools())
    assert (report.outcome, report.losses, report.threads) == (Outcome.IMPORTED, [], [CLAUDE_SESSION])
    assert report.reduced == {"thinking.signature": 1, "usage": 4}
    assert told(await model_items(tmp_path / "home", CLAUDE_SESSION)) == TOLD


async def test_results_that_come_in_another_order_do_not_make_a_fork(tmp_path: Path) -> None:
    session = Claude()
    session.user("u1", "go")
    session.said("a1", use("c1", "Read"), answer="A")
    session.said("a2", use("c2", "Read"), answer="A")
    session.result("r2", "c2", "two", parent="a2")
    session.result("r1", "c1", "one", parent="a1")
    session.said("a3", text("done"))
    report = imported(tmp_path, session)
    assert (report.losses, report.threads) == ([], [CLAUDE_SESSION])
    assert told(await model_items(tmp_path / "home", CLAUDE_SESSION)) == [
        "user: go", "call c1 Read", "call c2 Read", "output c2 two", "output c1 one", "assistant: done",
    ]  # fmt: skip


async def test_times_name_folder_and_origin_are_those_of_the_source(tmp_path: Path) -> None:
    session = with_tools()
    session.lines.append({"type": "custom-title", "customTitle": "Files", "sessionId": CLAUDE_SESSION})
    imported(tmp_path, session)
    home = tmp_path / "home"
    [name] = files_of(home)
    assert name.startswith("sessions/2025/07/0")
    store = LocalStore(home)
    records = [record async for record in store.read(CLAUDE_SESSION)]
    await store.close()
    header = records[0].payload
    assert (header["cwd"], header["git"], header["originator"]) == (CWD, {"branch": "main"}, "claude_code")
    assert records[0].extra == {"unspool": {"import": {"from": "claude", "session": CLAUDE_SESSION}}}
    assert header["timestamp"] == records[0].timestamp == stamp(1)
    assert records[-1].timestamp == stamp(7)
    assert [record.payload["thread_name"] for record in records if record.event == "thread_name_updated"] == ["Files"]
    ends = [record.payload for record in records if record.event == "task_complete"]
    assert [(end["duration_ms"], end["last_agent_message"]) for end in ends] == [(6000, "There are three.")]


async def test_other_leaves_become_forks_that_share_what_came_before(tmp_path: Path) -> None:
    session = with_tools()
    session.user("u2", "old way")
    session.said("a5", text("old answer"))
    session.user("u3", "new way", parent="a4")
    session.said("a6", text("new answer"))
    session.user("u4", "newest way", parent="a6")
    session.user("u5", "other way", parent="a5")
    session.said("a7", text("other answer"))
    session.lines.append({"type": "summary", "summary": "The old way", "leafUuid": "a5"})
    session.lines.append({"type": "summary", "summary": "Of another session", "leafUuid": "zz"})
    report = imported(tmp_path, session)
    present, fork = report.threads
    home = tmp_path / "home"
    assert told(await model_items(home, present)) == [
        *TOLD, "user: old way", "assistant: old answer", "user: other way", "assistant: other answer",
    ]  # fmt: skip
    assert told(await model_items(home, fork)) == [
        *TOLD, "user: new way", "assistant: new answer", "user: newest way",
    ]  # fmt: skip
    found = await headers(home)
    assert (present, found[present].get("forked_from_id")) == (CLAUDE_SESSION, None)
    assert (found[fork]["forked_from_id"], found[fork]["history_base"]["thread_id"]) == (present, present)
    assert [(loss.kind, loss.id) for loss in report.losses] == [("summary", "zz")]


async def test_a_compaction_replaces_the_history_by_its_summary_and_what_it_kept(tmp_path: Path) -> None:
    session = with_tools()
    metadata = {"trigger": "auto", "preTokens": 9, "preservedMessages": {"anchorUuid": "a4", "uuids": ["u1", "a4"]}}
    session.entry("system", "b1", parent=None, logicalParentUuid="a4", subtype="compact_boundary",
                  content="Conversation compacted", compactMetadata=metadata)  # fmt: skip
    session.user("s1", "They counted files.", isCompactSummary=True, isVisibleInTranscriptOnly=True)
    session.user("u2", "and now?")
    session.said("a5", text("nothing"))
    report = imported(tmp_path, session)
    assert (report.losses, report.threads) == ([], [CLAUDE_SESSION])
    assert told(await model_items(tmp_path / "home", CLAUDE_SESSION)) == [
        f"user: {SUMMARY_PREFIX}\nThey counted files.",
        "user: count my files",
        "assistant: There are three.",
        "user: and now?",
        "assistant: nothing",
    ]


async def test_a_compaction_may_name_what_it_kept_by_its_ends(tmp_path: Path) -> None:
    session = with_tools()
    session.user("u2", "more")
    metadata = {"preservedSegment": {"headUuid": "a4", "anchorUuid": "s1", "tailUuid": "u2"}}
    session.entry("system", "b1", parent=None, logicalParentUuid="u2", subtype="compact_boundary",
                  compactMetadata=metadata)  # fmt: skip
    session.user("s1", "Sum.", isCompactSummary=True)
    session.said("a5", text("going on"))
    report = imported(tmp_path, session)
    assert report.losses == []
    assert told(await model_items(tmp_path / "home", CLAUDE_SESSION)) == [
        f"user: {SUMMARY_PREFIX}\nSum.", "assistant: There are three.", "user: more", "assistant: going on",
    ]  # fmt: skip


async def test_sub_agents_are_threads_of_their_own_below_their_session(tmp_path: Path) -> None:
    session = with_tools()
    session.user("s1", "inner task", parent=None, isSidechain=True)
    session.said("s2", text("inner answer"), isSidechain=True)
    agent = Claude()
    agent.user("x1", "outer task", parent=None, isSidechain=True, agentId="abc")
    agent.said("x2", text("outer answer"), isSidechain=True, agentId="abc")
    projects = tmp_path / "projects/-tmp"
    write(projects / f"{CLAUDE_SESSION}.jsonl", session.lines)
    write(projects / CLAUDE_SESSION / "subagents" / "agent-abc.jsonl", agent.lines)
    report = import_paths([tmp_path / "projects"], tmp_path / "home")
    assert report.status == 0
    home = tmp_path / "home"
    (main, inner), [outer] = (file.threads for file in report.files)
    assert main == CLAUDE_SESSION
    found = await headers(home)
    for thread_id, words in ((inner, "inner"), (outer, "outer")):
        assert found[thread_id]["parent_thread_id"] == main
        assert found[thread_id]["source"] == {"subagent": {"thread_spawn": {"parent_thread_id": main, "depth": 1}}}
        assert told(await model_items(home, thread_id)) == [f"user: {words} task", f"assistant: {words} answer"]
    assert told(await model_items(home, main)) == TOLD


async def test_what_has_no_counterpart_is_named_and_the_rest_comes_over(tmp_path: Path) -> None:
    session = Claude()
    session.lines.append({"type": "file-history-snapshot", "messageId": "m1", "snapshot": {}})
    session.lines.append('{"type": "user", "uuid": "torn')
    session.user("u1", [text("look"), {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                 "data": "QUJD"}}, {"type": "document", "source": {}}])  # fmt: skip
    session.entry("progress", "p1", data={})
    session.entry("attachment", "t1", attachment={"type": "edited_text_file"})
    session.entry("attachment", "t2", attachment={"type": "queued_command", "prompt": "hurry"})
    session.said("a1", {"type": "redacted_thinking", "data": "x"}, text("seen"))
    session.lines.append({"type": "user", "uuid": "bad", "message": {"role": "user"}, "sessionId": CLAUDE_SESSION})
    session.result("r9", "nothing", "for nobody")
    session.lines.append({"type": "brand-new", "uuid": "n1", "parentUuid": "r9"})
    report = imported(tmp_path, session)
    assert [(loss.line, loss.id, loss.kind) for loss in sorted(report.losses, key=lambda loss: loss.line or 0)] == [
        (1, "m1", "file-history-snapshot"),
        (2, None, "invalidJson"),
        (3, "u1", "document"),
        (4, "p1", "progress"),
        (5, "t1", "attachment.edited_text_file"),
        (7, "a1", "redacted_thinking"),
        (8, "bad", "user"),
        (9, "r9", "tool_result"),
        (10, "n1", "brand-new"),
    ]
    assert told(await model_items(tmp_path / "home", CLAUDE_SESSION)) == [
        "user: look data:image/png;base64,QUJD", "user: hurry", "assistant: seen",
    ]  # fmt: skip


async def test_interruptions_notes_and_local_commands_are_no_turns(tmp_path: Path) -> None:
    session = Claude()
    session.user("u1", "go")
    session.said("a1", use("c1", "Bash", command="sleep 9"))
    session.result("r1", "c1", "stopped", parent="a1")
    session.user("i1", [text("[Request interrupted by user for tool use]")])
    session.user("m1", "Caveat: not written by the user", isMeta=True)
    session.user("l1", "<local-command-stdout>ok</local-command-stdout>")
    session.user("u2", "again")
    session.said("a2", text("API Error: 500"), isApiErrorMessage=True)
    imported(tmp_path, session)
    store = LocalStore(tmp_path / "home")
    records = [record async for record in store.read(CLAUDE_SESSION)]
    await store.close()
    assert [record.event for record in records if record.event and record.event.startswith("t")] == [
        "task_started", "turn_aborted", "task_started", "task_complete",
    ]  # fmt: skip
    lines = told(await model_items(tmp_path / "home", CLAUDE_SESSION))
    assert lines[:3] == ["user: go", "call c1 Bash", "output c1 stopped"]
    assert lines[3].startswith("user: <turn_aborted>")
    assert lines[4:] == [
        "developer: Caveat: not written by the user",
        "developer: <local-command-stdout>ok</local-command-stdout>",
        "user: again",
    ]


async def test_importing_twice_changes_nothing_and_a_source_that_went_on_is_reported(tmp_path: Path) -> None:
    session = with_tools()
    imported(tmp_path, session)
    before = files_of(tmp_path / "home")
    again = imported(tmp_path, session)
    assert (again.outcome, again.threads, files_of(tmp_path / "home")) == (
        Outcome.UNCHANGED, [CLAUDE_SESSION], before,
    )  # fmt: skip
    session.said("a5", text("one more thing"))
    grown = imported(tmp_path, session)
    assert (grown.outcome, [loss.kind for loss in grown.losses]) == (Outcome.FAILED, ["thread"])
    assert files_of(tmp_path / "home") == before


async def test_an_id_that_is_taken_or_no_uuid_is_replaced_by_one_that_stays_the_same(tmp_path: Path) -> None:
    odd = Claude("my-session")
    odd.user("u1", "hello")
    odd.said("a1", text("hi"))
    first = imported(tmp_path, odd, "my-session.jsonl")
    assert first.threads == imported(tmp_path, odd, "my-session.jsonl").threads
    [thread_id] = first.threads
    assert (thread_id[14], thread_id != "my-session") == ("7", True)

    other = tmp_path / "other"
    taken = write(other / "sessions/2024/01/01" / f"rollout-2024-01-01T00-00-00-{CLAUDE_SESSION}.jsonl", [
        {"timestamp": "", "type": "session_meta", "payload": {"id": CLAUDE_SESSION}}
    ])  # fmt: skip
    write(tmp_path / "second" / f"{CLAUDE_SESSION}.jsonl", with_tools().lines)
    runs = [import_paths([tmp_path / "second"], other).files[0] for _ in range(2)]
    assert [run.outcome for run in runs] == [Outcome.IMPORTED, Outcome.UNCHANGED]
    assert runs[0].threads == runs[1].threads != [CLAUDE_SESSION]
    assert await thread_ids(other) == {CLAUDE_SESSION, *runs[0].threads}
    assert b"my-session" not in taken.read_bytes()


async def test_every_cut_off_session_imports_without_failing(tmp_path: Path) -> None:
    session = with_tools()
    session.user("u2", "old way", parent="a1")
    whole = write(tmp_path / "whole.jsonl", session.lines).read_bytes()
    for size in range(0, len(whole), 97):
        source = tmp_path / f"cut{size}" / f"{CLAUDE_SESSION}.jsonl"
        source.parent.mkdir()
        source.write_bytes(whole[:size])
        report = import_paths([source], tmp_path / f"home{size}", form="claude")
        assert [file.outcome for file in report.files] == [Outcome.IMPORTED if size > 300 else Outcome.FAILED]
