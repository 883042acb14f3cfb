"""Sources that nobody would expect: every value of every line may be anything."""

import copy
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unspool_server.importers import Outcome, import_paths
from unspool_server.importers.tree import Node, plan

from tests.examples import examples
from tests.importers.foreign import Claude, Pi, text, use, write

JUNK = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2**70,
        1.5,
        "",
        "x",
        "a1",
        "u1",
        [],
        [None],
        {},
        {"type": "text"},
        [{"type": "tool_use"}],
        "\ud800",
    ]
)


def claude_lines() -> list[Any]:
    """A session with everything in it."""
    made = Claude()
    made.user("u1", [text("hello"), {"type": "image", "source": {"type": "base64", "data": "QQ=="}}])
    made.said("a1", {"type": "thinking", "thinking": "hm"}, use("c1", "Bash", command="ls"), text("so"))
    made.result("r1", "c1", [text("out")])
    made.entry("system", "b1", subtype="compact_boundary", compactMetadata={"preservedMessages": {"uuids": ["a1"]}})
    made.user("s1", "summary", isCompactSummary=True)
    made.entry("attachment", "q1", attachment={"type": "queued_command", "prompt": [text("more")]})
    made.user("x1", "side", isSidechain=True, parent=None)
    made.said("x2", text("answer"), isSidechain=True, agentId="g")
    made.lines.append({"type": "custom-title", "customTitle": "T"})
    return made.lines


def pi_lines() -> list[Any]:
    """A session with everything in it."""
    made = Pi()
    made.entry("model_change", "m1", modelId="x")
    made.message("u1", "user", [text("hello"), {"type": "image", "data": "QQ==", "mimeType": "image/png"}])
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}}
    made.message("a1", "assistant", [{"type": "thinking", "thinking": "hm"}, call], stopReason="toolUse")
    made.message("r1", "toolResult", [text("out")], toolCallId="c1", isError=True)
    made.message("s1", "bashExecution", command="ls", output="x", exitCode=0)
    made.entry("compaction", "k1", summary="sum", firstKeptEntryId="a1")
    made.entry("branch_summary", "b1", parent="u1", summary="other")
    made.entry("custom_message", "x1", content="note")
    made.entry("session_info", "i1", name="T")
    return made.lines


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


SOURCES = {"claude": claude_lines(), "pi": pi_lines()}


@pytest.mark.parametrize("form", ["claude", "pi"])
@settings(max_examples=examples(100))
@given(data=st.data())
def test_any_value_anywhere_is_imported_or_reported_and_importing_again_agrees(form: Any, data: st.DataObject) -> None:
    lines = copy.deepcopy(SOURCES[form])
    for place in data.draw(st.lists(st.sampled_from(list(places(lines))), min_size=1, max_size=4)):
        junk = data.draw(JUNK)
        holder: Any = lines
        try:
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = junk
        except (KeyError, IndexError, TypeError):
            continue
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        first, second = (import_paths([source], Path(folder) / "home", form=form).files[0] for _ in range(2))
        assert (second.threads, second.losses) == (first.threads, first.losses)
        assert second.outcome is (Outcome.UNCHANGED if first.outcome is Outcome.IMPORTED else first.outcome)


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(-1, 12), st.booleans()), min_size=1, max_size=12))
def test_every_weighty_node_is_its_own_in_exactly_one_branch(shape: list[tuple[int, bool]]) -> None:
    count = len(shape)
    nodes = [
        Node(index, str(index), 0, index, parent=parent if 0 <= parent < count else None, weighty=weighty)
        for index, (parent, weighty) in enumerate(shape)
    ]
    branches = plan(nodes, nodes[-1])
    owned = [node.index for branch in branches for node in branch.own]
    assert len(owned) == len(set(owned))
    reachable = {node.index for node in nodes if node.weighty}
    assert reachable <= set(owned)
    for branch in branches[1:]:
        assert branch.base_branch is None or branch.base in branches[branch.base_branch].own


def test_absurd_depths_and_numbers_are_no_crash(tmp_path: Path) -> None:
    made = Claude()
    deep: Any = 2**80
    for _ in range(600):
        deep = [deep]
    made.user("u1", "go")
    made.said("a1", use("c1", "Tool", value=deep), use("c2", "Tool", value=2**80))
    made.user("u2", "on", parent="a1")
    made.user("u3", "other", parent="a1")
    write(tmp_path / "in.jsonl", made.lines)
    report = import_paths([tmp_path / "in.jsonl"], tmp_path / "home")
    assert report.files[0].outcome is Outcome.IMPORTED
    assert len(report.files[0].threads) == 2
