"""The audit tells of every line what reconstruction and the client view did with it, and nothing else."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unspool_protocol.log import HistoryMode, LineFault, Position, Record
from unspool_server.history.audit import AuditEntry, Reason, Stretch, audit, cut_reason
from unspool_server.history.checkpoints import checkpoint_of
from unspool_server.history.items import history_item
from unspool_server.history.reconstruct import explained
from unspool_server.history.state import Item
from unspool_server.history.whole_view import client_turns

from tests.history.logs import FixtureLog, fixture_logs
from tests.history.rows import ROLLOUT_ID, Row, our_rows, parse_log

ROWS = our_rows()
LOGS = list(fixture_logs())
THREAD = "0199-thread"


def audited(records: Sequence[Record], mode: HistoryMode, thread_id: str = THREAD) -> list[AuditEntry]:
    """The entries of a whole log, one for each record, as one stretch."""
    return audit([Stretch(ROLLOUT_ID, records)], thread_id, mode)


def brought(record: Record) -> list[Item]:
    """The items that a record in force in the model's view may bring."""
    item = history_item(record)
    if item is not None:
        return [item]
    checkpoint = checkpoint_of(record)
    return [] if checkpoint is None else list(checkpoint.replacement or ())


def check_views(records: Sequence[Record], mode: HistoryMode, thread_id: str = THREAD) -> list[AuditEntry]:
    """Hold the audit against both views of the same records."""
    entries = audited(records, mode, thread_id)
    assert [entry.position for entry in entries] == [record.position for record in records]
    state, origins = explained(records, mode)
    for item, source in zip(state.history, origins.history, strict=True):
        record = records[source]
        checkpoint = checkpoint_of(record)
        own = record.type != "response_item" or record.payload is item or history_item(record) == item
        trimmed = [part for part in brought(record) if part.get("role") == "developer"]
        assert own or trimmed, "an item comes from the record that is named, whole or without its model switch"
        assert record.type != "response_item" or checkpoint is None
    in_force = {index for index, entry in enumerate(entries) if entry.model.reason is None}
    with_items = {index for index in in_force if history_item(records[index]) is not None}
    assert with_items == {index for index in origins.history if history_item(records[index]) is not None}
    assert in_force - with_items <= {origins.base, *origins.history}
    turns = client_turns(records, thread_id, mode)
    shown = {pair for entry in entries if entry.client.reason is None for pair in entry.items}
    assert shown == {(turn.id, item.id) for turn in turns for item in turn.items}
    assert all(not entry.items for entry in entries if entry.client.reason is not None)
    told = [index for index, entry in enumerate(entries) if entry.baseline.reason is None]
    contexts = [records[index].payload for index in told if records[index].type == "turn_context"]
    assert contexts == ([] if state.reference_context is None else [state.reference_context])
    assert bool([1 for index in told if records[index].type == "world_state"]) == (state.world_state is not None)
    return entries


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
def test_a_scenario_is_told_alike_by_audit_and_views(row: Row) -> None:
    check_views(row.records, row.mode)


@pytest.mark.parametrize("log", LOGS, ids=str)
def test_a_captured_log_is_told_alike_by_audit_and_views(log: FixtureLog) -> None:
    entries = check_views(log.records, log.mode, log.thread_id)
    assert all(entry.label and len(entry.label) <= 120 and "\n" not in entry.label for entry in entries)


def _steps() -> Iterator[str]:
    yield from (
        "T(t{n},u{n},a{n},m)",
        "Tp(t{n},u{n},a{n},m)",
        "RB(1)",
        "RB(2)",
        "RB(3)",
        "TS(t{n}) CPL(s{n}) TE(t{n})",
        "CP[U(k{n}) U(s{n})]",
        "TS(t{n}) CP[U(k{n}) U(s{n})]w{n} TE(t{n})",
        "TS(t{n}) CP[U(k{n})]w{n}r TE(t{n})",
        "TS(t{n}) U(u{n}) CP[U(k{n}) U(s{n})] A(a{n}) TE(t{n})",
        "TS(t{n}) UE(u{n}) TC(t{n},m) U(u{n}) A(x{n}) UE(v{n}) U(v{n}) A(a{n}) TE(t{n})",
        "TS(t{n}) E UE(u{n}) TC(t{n},m) U(u{n}) AB TA(t{n})",
        "TS(t{n}) E WS UE(u{n}) TC(t{n},m) U(u{n}) A(a{n}) TE(t{n})",
        "TS(t{n}) WSp UE(u{n}) TC(t{n},m) U(u{n}) FC(c{n}) FO(c{n}) A(a{n}) TE(t{n})",
        "IA+(g{n}) A(b{n})",
        "U(u{n}) A(a{n})",
        "GS(x)",
        "BOGUS",
    )


@given(st.lists(st.sampled_from(list(_steps())), max_size=12), st.sampled_from(HistoryMode))
def test_any_life_of_a_thread_is_told_alike_by_audit_and_views(steps: list[str], mode: HistoryMode) -> None:
    log = " ".join(step.format(n=number) for number, step in enumerate(steps, start=1))
    check_views(parse_log(log, mode), mode)


def verdict(entries: Sequence[AuditEntry], index: int, view: str) -> tuple[Reason | None, int | None]:
    found = getattr(entries[index], view)
    return found.reason, None if found.by is None else found.by.ordinal


def test_rolled_back_records_name_their_marker_in_every_view() -> None:
    entries = audited(parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m) RB(1)", HistoryMode.LEGACY), HistoryMode.LEGACY)
    for index in range(7, 13):
        assert {verdict(entries, index, view) for view in ("model", "client", "baseline")} == {(Reason.ROLLBACK, 13)}
    assert verdict(entries, 13, "model") == (Reason.NEVER_MODEL_INPUT, None)
    assert verdict(entries, 13, "client") == (None, None)
    assert entries[13].label == "rollback of 1"


def test_a_compaction_puts_out_the_model_items_before_it_and_hides_nothing_from_clients() -> None:
    records = parse_log("T(t1,u1,a1,m) CP[U(SUM)]w1 T(t2,u2,a2,m)", HistoryMode.PAGINATED)
    entries = audited(records, HistoryMode.PAGINATED)
    texts = {entry.label: index for index, entry in enumerate(entries)}
    assert verdict(entries, texts["user: u1"], "model") == (Reason.COMPACTION, 7)
    assert verdict(entries, texts["user_message u1"], "client") == (None, None)
    assert verdict(entries, texts["user_message u1"], "model") == (Reason.NEVER_MODEL_INPUT, None)
    assert verdict(entries, 7, "model") == (None, None)
    assert verdict(entries, texts["context t1 m"], "baseline") == (Reason.SUPERSEDED, texts["context t2 m"])


def test_a_baseline_that_a_compaction_cleared_names_it() -> None:
    records = parse_log("TS(t1) WS UE(u1) TC(t1,m) U(u1) TE(t1) TS(t2) CP[U(SUM)]w1 TE(t2)", HistoryMode.PAGINATED)
    entries = audited(records, HistoryMode.PAGINATED)
    assert [verdict(entries, index, "baseline") for index in (2, 4)] == [(Reason.COMPACTION, 8)] * 2


def test_a_legacy_compaction_names_itself_as_what_rebuilt_the_history() -> None:
    entries = audited(parse_log("T(t1,u1,a1,m) CPL(LEGSUM)", HistoryMode.LEGACY), HistoryMode.LEGACY)
    assert verdict(entries, 4, "model") == (None, None)
    assert verdict(entries, 5, "model") == (Reason.LEGACY_RULE, 7)
    assert verdict(entries, 3, "baseline") == (Reason.LEGACY_RULE, 7)


def test_context_directly_behind_a_checkpoint_goes_with_the_turn_that_is_rolled_back() -> None:
    records = parse_log("TS(t1) CP[U(k) U(s)]w1 TE(t1) TS(t2) E UE(u2) TC(t2,m) U(u2) TE(t2) RB(3)", HistoryMode.LEGACY)
    check_views(records, HistoryMode.LEGACY)


def test_lines_that_are_no_record_are_entries_and_faults_stay_with_their_record() -> None:
    records = parse_log("U(u1) A(a1)", HistoryMode.LEGACY)
    torn = LineFault(ROLLOUT_ID, 3, "tornTail", "cut off")
    lines: list[Record | LineFault] = [records[0], LineFault(ROLLOUT_ID, 1, "gluedRecords", "2"), *records[1:], torn]
    entries = audit([Stretch(ROLLOUT_ID, lines)], THREAD, HistoryMode.LEGACY)
    assert [(entry.number, entry.type, entry.fault) for entry in entries] == [
        (0, "session_meta", None),
        (1, "response_item", "gluedRecords"),
        (2, "response_item", None),
        (3, None, "tornTail"),
    ]
    assert verdict(entries, 3, "model") == (Reason.DAMAGE, None)
    assert entries[3].label == "tornTail: cut off"


def header(payload: dict[str, object], word: str | None = None) -> Record:
    extra = {} if word is None else {"unspool": {"branch": word}}
    return Record("next", 2, "session_meta", payload, extra=extra)


def test_what_stands_behind_a_branch_is_out_by_its_header() -> None:
    records = parse_log("U(u1) A(a1) U(u2)", HistoryMode.PAGINATED)
    branch = header({"id": THREAD}, "rollback")
    chain = [Stretch(ROLLOUT_ID, records[:2], records[2:], branch), Stretch("next", [branch])]
    entries = audit(chain, THREAD, HistoryMode.PAGINATED)
    assert [entry.position for entry in entries] == [*(record.position for record in records), Position("next", 2)]
    assert {entry.model.reason for entry in entries[2:4]} == {Reason.ROLLBACK}
    assert {entry.client.by for entry in entries[2:4]} == {Position("next", 2)}
    assert [entry.number for entry in entries] == [0, 1, 2, 3, 0]


@pytest.mark.parametrize(
    ("branch", "reason"),
    [
        (header({"id": THREAD}, "rollback"), Reason.ROLLBACK),
        (header({"id": THREAD}, "revert"), Reason.REVERT),
        (header({"id": THREAD}, "restore"), Reason.RESTORE),
        (header({"id": THREAD}, "undo"), Reason.BRANCH),
        (header({"id": THREAD}), Reason.REVERT),
        (header({"id": "next", "forked_from_id": THREAD}), Reason.FORK_CUT),
    ],
)
def test_a_header_says_why_it_leaves_its_base(branch: Record, reason: Reason) -> None:
    assert cut_reason(branch) is reason
