"""The pure comparison of two points: by identity of records, never by text."""

from collections.abc import Sequence
from dataclasses import replace

from unspool_protocol.log import HistoryMode, Position, Record
from unspool_server.history.diff import Difference, DiffSide, PlacedItem, copied_places, difference
from unspool_server.history.turn_pages import turn_slices

from tests.history.rows import parse_log, render_history


def side(records: Sequence[Record], end: int | None = None, mode: HistoryMode = HistoryMode.LEGACY) -> DiffSide:
    part = list(records[:end])
    turns = [one.turn for one in turn_slices(part, "th", mode)]
    return DiffSide(part, mode, [record.position for record in part], turns)


def shown(items: Sequence[PlacedItem]) -> str:
    return render_history([one.item for one in items])


def both_ways(old: DiffSide, new: DiffSide) -> Difference:
    """The difference, after a look at the way back: what one direction adds the other removes."""
    there, back = difference(old, new), difference(new, old)
    assert there.kept == back.kept
    assert there.turns_added == back.turns_removed and there.turns_removed == back.turns_added
    assert there.settings == {name: pair[::-1] for name, pair in (back.settings or {}).items()}
    return there


def test_a_point_does_not_differ_from_itself() -> None:
    log = side(parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m)", HistoryMode.LEGACY))
    found = difference(log, log)
    assert found == Difference(kept=4, settings={}, windows=found.windows)
    assert found.windows[0] == found.windows[1]


def test_later_turns_are_added_and_their_settings_told() -> None:
    records = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m2)", HistoryMode.LEGACY)
    found = both_ways(side(records, 7), side(records))
    assert (shown(found.added), shown(found.removed), found.replaced, found.kept) == ("U(u2) A(a2)", "(empty)", (), 2)
    assert (found.turns_added, found.turns_removed, found.turns_changed) == (("t2",), (), ())
    assert found.settings == {"model": ("m", "m2")}


def test_a_rollback_removes_and_settings_stay() -> None:
    records = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m2) RB(1)", HistoryMode.LEGACY)
    found = both_ways(side(records, len(records) - 1), side(records))
    assert (shown(found.added), shown(found.removed), found.kept) == ("(empty)", "U(u2) A(a2)", 2)
    assert (found.turns_removed, found.settings) == (("t2",), {})


def test_equal_texts_of_different_records_are_different_items() -> None:
    records = parse_log("T(t1,same,ok,m) RB(1) T(t2,same,ok,m)", HistoryMode.LEGACY)
    found = both_ways(side(records, 7), side(records))
    assert (shown(found.added), shown(found.removed), found.kept) == ("U(same) A(ok)", "U(same) A(ok)", 0)


def test_a_compaction_replaces_what_stood_before_it() -> None:
    records = parse_log("T(t1,u1,a1,m) TS(c) CP[U(u1) U(S)]w1r TE(c) T(t2,u2,a2,m)", HistoryMode.LEGACY)
    found = difference(side(records, 7), side(records))
    assert (shown(found.added), shown(found.removed)) == ("U(u2) A(a2)", "(empty)")
    (one,) = found.replaced
    assert one.by == records[8].position
    assert (shown(one.removed), shown(one.added)) == ("U(u1) A(a1)", "U(u1) U(S)")
    assert [window.number for window in found.windows] == [0, 1]


def test_behind_a_common_compaction_only_the_tail_differs() -> None:
    records = parse_log("T(t1,u1,a1,m) TS(c) CP[U(S)]w1r TE(c) T(t2,u2,a2,m) T(t3,u3,a3,m)", HistoryMode.LEGACY)
    found = both_ways(side(records, 16), side(records))
    assert (shown(found.added), shown(found.removed), found.replaced, found.kept) == ("U(u3) A(a3)", "(empty)", (), 3)


def test_a_turn_that_went_on_is_changed() -> None:
    records = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m)", HistoryMode.LEGACY)
    found = both_ways(side(records, len(records) - 1), side(records))
    assert (found.turns_added, found.turns_changed) == ((), ("t2",))


def test_copies_of_a_fork_stand_for_the_lines_of_their_source() -> None:
    source = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m)", HistoryMode.LEGACY)
    source = [replace(record, raw=f"line {index}".encode()) for index, record in enumerate(source)]
    copies = [source[0], *source[:7]]
    child = [replace(record, rollout_id="child", ordinal=index) for index, record in enumerate(copies)]
    child += [
        replace(record, rollout_id="child", ordinal=len(child) + index)
        for index, record in enumerate(parse_log("T(t3,u3,a3,m)", HistoryMode.LEGACY)[1:])
    ]
    places = copied_places(child, source, [record.position for record in source])
    assert places[0] == Position("child", 0)
    assert places[1:8] == [record.position for record in source[:7]]
    assert places[8] == Position("child", 8)
    mine = DiffSide(child, HistoryMode.LEGACY, places)
    found = difference(side(source), mine)
    assert (shown(found.added), shown(found.removed), found.kept) == ("U(u3) A(a3)", "U(u2) A(a2)", 2)
