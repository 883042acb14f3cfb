"""Where a thread can be cut: user messages and triggering agent messages, newest first, each with its turn."""

from typing import Any

from unspool_protocol.log import HistoryMode, Record
from unspool_server.history.labels import LABEL_CHARS, item_label, label_of, short
from unspool_server.history.lineage import Boundary, BoundaryScan, boundaries_of

from tests.history.rows import ROLLOUT_ID, message, parse_log


def scanned(records: list[Record]) -> list[Boundary]:
    scan = BoundaryScan()
    found = [one for record in reversed(records) for one in scan.feed(record)]
    return found + scan.finish()


def words(found: list[Boundary]) -> list[tuple[str | None, str, int, int]]:
    return [(one.turn_id, one.preview, one.position.ordinal, one.cut.ordinal) for one in found]


def test_the_first_input_of_a_turn_is_cut_with_its_turn_and_steered_input_alone() -> None:
    records = parse_log("TS(t1) UE(u1) U(u1) A(a1) UE(u2) U(u2) TE(t1) T(t2,u3,a3,m)", HistoryMode.PAGINATED)
    expected = [("t2", "u3", 11, 8), ("t1", "u2", 6, 6), ("t1", "u1", 3, 1)]
    assert words(scanned(records)) == expected
    assert words(boundaries_of(records, HistoryMode.PAGINATED)) == expected


def test_input_without_a_turn_is_cut_at_its_own_record() -> None:
    records = parse_log("U(u1) A(a1) E U(u2)", HistoryMode.LEGACY)
    assert words(boundaries_of(records, HistoryMode.LEGACY)) == [(None, "u2", 4, 4), (None, "u1", 1, 1)]


def test_rolled_back_input_is_no_place_to_cut() -> None:
    records = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m) RB(1) T(t3,u3,a3,m)", HistoryMode.LEGACY)
    assert [one.turn_id for one in boundaries_of(records, HistoryMode.LEGACY)] == ["t3", "t1"]


def record(kind: str, payload: dict[str, Any], ordinal: int = 2) -> Record:
    return Record(ROLLOUT_ID, ordinal, kind, payload)


def test_agent_messages_count_when_they_trigger_a_turn_in_each_of_their_spellings() -> None:
    envelope = '{"author": "/root", "recipient": "/a", "content": "old", "trigger_turn": %s}'
    metadata = "inter_agent_communication_metadata"
    text = {"type": "input_text", "text": "new"}
    agent = {"type": "agent_message", "author": "/root", "recipient": "/a", "content": [text]}
    records = [
        *parse_log("IA+(one) IA-(two)", HistoryMode.LEGACY),
        record("response_item", message("assistant", envelope % "true"), 3),
        record("response_item", message("assistant", envelope % "false"), 4),
        record(metadata, {"trigger_turn": True}, 5),
        record("response_item", agent, 6),
        record(metadata, {"trigger_turn": False}, 7),
        record("response_item", agent, 8),
    ]
    found = boundaries_of(records, HistoryMode.LEGACY)
    assert [(one.by_agent, one.preview, one.position.ordinal) for one in found] == [
        (True, "new", 5),
        (True, "old", 3),
        (True, "one", 1),
    ]


def test_labels_stay_short_and_on_one_line_whatever_a_record_holds() -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"type": 3},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a\n" * 9000}]},
        {"type": "function_call", "name": None, "arguments": 7},
        {"type": "function_call_output", "output": [{"text": "x\ty"}, 5]},
        {"type": "reasoning", "summary": "no list"},
    ]
    for payload in odd:
        for kind in ("response_item", "event_msg", "compacted", "turn_context", "session_meta", "world_state", "new"):
            label = label_of(record(kind, payload))
            assert label and len(label) <= LABEL_CHARS and "\n" not in label
    assert item_label(odd[3]) == "call ? "
    assert short("one\n two", 6) == "one t…"
