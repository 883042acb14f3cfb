"""What is done to threads before the other server takes them over. Each gives the id of the thread to resume."""

from collections.abc import Callable
from typing import Any

from tests.peer.codex_peer import PeerHome, Server, Who

Operation = Callable[[PeerHome, Server, Who], str]

TOOL = {
    "name": "lookup",
    "description": "Look something up.",
    "inputSchema": {"type": "object", "properties": {"key": {"type": "string"}}},
}


def plain(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = server.start(home.cwd)
    for text in ("one", "two", "three"):
        server.turn(thread_id, text)
    return thread_id


def dynamic_tool(home: PeerHome, server: Server, who: Who) -> str:
    server.tools["lookup"] = lambda arguments: f"found {arguments['key']}"
    thread_id = server.start(home.cwd, dynamicTools=[TOOL])
    home.mock.push({"reason": "let me look"}, {"call": "lookup", "args": {"key": "k"}})
    server.turn(thread_id, "look it up")
    server.turn(thread_id, "thanks")
    return thread_id


def interrupted(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = server.start(home.cwd)
    server.turn(thread_id, "one")
    home.mock.push({"say": "a beginning", "partial": True}, {"hang": True})
    turn_id = server.begin(thread_id, "write much")
    server.wait("item/agentMessage/delta", thread_id)
    # The first turn streamed as well; the second wait is for the one that hangs.
    server.wait("item/agentMessage/delta", thread_id)
    server.call("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    assert server.wait("turn/completed", thread_id)["turn"]["status"] == "interrupted"
    return thread_id


def failed(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = server.start(home.cwd)
    server.turn(thread_id, "one")
    home.mock.push({"say": "whole"}, {"cut": True})
    assert server.turn(thread_id, "this breaks")["status"] == "failed"
    return thread_id


def killed(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = server.start(home.cwd)
    server.turn(thread_id, "one")
    server.forget()
    home.mock.push({"say": "whole"}, {"say": "a beginning", "partial": True}, {"hang": True})
    server.begin(thread_id, "write much")
    for _ in range(2):
        server.wait("item/agentMessage/delta", thread_id)
    server.call("thread/name/set", {"threadId": thread_id, "name": "named"})
    server.kill()
    return thread_id


def compacted(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = plain(home, server, who)
    server.compact(thread_id)
    server.turn(thread_id, "after it")
    return thread_id


def compacted_last(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = plain(home, server, who)
    server.compact(thread_id)
    return thread_id


def compacted_by_caller(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = plain(home, server, who)
    server.call("thread/compact", {"threadId": thread_id, "summary": "one and two were said", "keepLast": 2})
    server.turn(thread_id, "after it")
    return thread_id


def rolled_back(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = plain(home, server, who)
    server.call("thread/rollback", {"threadId": thread_id, "numTurns": 2})
    return thread_id


def rolled_back_then_turn(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = rolled_back(home, server, who)
    server.turn(thread_id, "another way")
    return thread_id


def rolled_back_everything(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = plain(home, server, who)
    server.call("thread/rollback", {"threadId": thread_id, "numTurns": 3})
    return thread_id


def rolled_back_and_undone(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = rolled_back(home, server, who)
    server.call("thread/rollback/undo", {"threadId": thread_id})
    return thread_id


def rolled_back_over_compaction(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = compacted(home, server, who)
    server.call("thread/rollback", {"threadId": thread_id, "numTurns": 2})
    return thread_id


def reverted(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = server.start(home.cwd)
    turns = [server.turn(thread_id, text)["id"] for text in ("one", "two", "three")]
    server.call("thread/revert", {"threadId": thread_id, "beforeTurnId": turns[1]})
    server.turn(thread_id, "another way")
    return thread_id


def forked(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = server.start(home.cwd)
    turns = [server.turn(thread_id, text)["id"] for text in ("one", "two", "three")]
    fork_id = _fork(server, thread_id, lastTurnId=turns[1])
    server.turn(fork_id, "in the fork")
    server.turn(thread_id, "in the parent")
    return fork_id


def forked_twice(home: PeerHome, server: Server, who: Who) -> str:
    fork_id = forked(home, server, who)
    server.forget()
    second = _fork(server, fork_id)
    server.turn(second, "in the second fork")
    server.turn(fork_id, "meanwhile in the first")
    return second


def forked_untouched(home: PeerHome, server: Server, who: Who) -> str:
    return _fork(server, plain(home, server, who))


def other_model(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = server.start(home.cwd)
    server.turn(thread_id, "one")
    server.turn(thread_id, "two", model="other-model")
    return thread_id


def other_folder(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = server.start(home.cwd)
    server.turn(thread_id, "one")
    folder = home.cwd / "sub"
    folder.mkdir(exist_ok=True)
    server.turn(thread_id, "two", cwd=str(folder))
    return thread_id


def other_sandbox(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = server.start(home.cwd)
    server.turn(thread_id, "one")
    server.turn(thread_id, "two", sandboxPolicy={"type": "readOnly"}, approvalPolicy="on-request")
    return thread_id


def injected(home: PeerHome, server: Server, who: Who) -> str:
    thread_id = server.start(home.cwd)
    server.turn(thread_id, "one")
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "put in"}]}
    server.call("thread/inject_items", {"threadId": thread_id, "items": [item]})
    return thread_id


def project_rules(home: PeerHome, server: Server, who: Who) -> str:
    (home.cwd / "AGENTS.md").write_text("Project rule: be brief.\n")
    return plain(home, server, who)


def own_command(home: PeerHome, server: Server, who: Who) -> str:
    """Codex runs commands itself; only it can write such a log."""
    thread_id = server.start(home.cwd)
    home.mock.push({"call": "exec_command", "args": {"cmd": "echo hi"}})
    server.turn(thread_id, "run it")
    return thread_id


def legacy(operation: Operation) -> Operation:
    """The same on a thread whose log is in legacy mode."""

    def run(home: PeerHome, server: Server, who: Who) -> str:
        start = server.start

        def legacy_start(cwd: Any, **params: Any) -> str:
            return start(cwd, historyMode="legacy", **params)

        server.start = legacy_start  # type: ignore[method-assign]
        return operation(home, server, who)

    run.__name__ = f"legacy_{operation.__name__}"
    return run


def _fork(server: Server, thread_id: str, **params: Any) -> str:
    answer = server.call("thread/fork", {"threadId": thread_id, "excludeTurns": True, **params})
    return str(answer["thread"]["id"])


BY_BOTH: tuple[Operation, ...] = (
    plain,
    dynamic_tool,
    interrupted,
    failed,
    killed,
    compacted,
    compacted_last,
    reverted,
    forked,
    forked_twice,
    forked_untouched,
    other_model,
    other_folder,
    other_sandbox,
    injected,
    project_rules,
    legacy(plain),
    legacy(dynamic_tool),
    legacy(interrupted),
    legacy(compacted),
    legacy(forked),
)
"""What both servers can do."""

BY_OURS: tuple[Operation, ...] = (
    compacted_by_caller,
    rolled_back,
    rolled_back_then_turn,
    rolled_back_everything,
    rolled_back_and_undone,
    rolled_back_over_compaction,
    legacy(rolled_back),
    legacy(rolled_back_then_turn),
    legacy(rolled_back_and_undone),
    legacy(compacted_by_caller),
)
"""What only ours does."""

READ_DIFFERENTLY = legacy(rolled_back_over_compaction)
"""The one operation whose result the two read differently (03 §9.2)."""

BY_CODEX: tuple[Operation, ...] = (own_command,)
"""What only the real one does."""
