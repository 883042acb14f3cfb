"""Plan a rollback of whole turns, and its undo, on a thread whose log has legacy markers (04 §4; DESIGN §4, §5).

Paginated threads branch instead and need none of these records; the check of the number serves both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unspool_protocol.log import HistoryMode, NewRecord, Position, Record, RecordType

from ..errors import TurnsOutOfRange
from .boundaries import is_instruction_record
from .checkpoints import Restore
from .in_force import in_force, newest_cut, restore_fields
from .reconstruct import reconstruct
from .state import PreviousSettings, Reconstruction
from .survival import markers_of, rollback_fates, uncompacted_history


def check_num_turns(num_turns: object, available: int | None = None) -> int:
    """Return the number of turns to remove.

    Args:
        num_turns: As the client sent it.
        available: Visible turns with a boundary; None where the caller has not counted them yet.

    Raises:
        TurnsOutOfRange: No integer >= 1, or more than `available`; `data` has `numTurns` and `available`.
    """
    facts = {"field": "numTurns", "numTurns": num_turns, "available": available}
    if isinstance(num_turns, bool) or not isinstance(num_turns, int) or num_turns < 1:
        raise TurnsOutOfRange("numTurns must be an integer >= 1", data=facts)
    if available is not None and num_turns > available:
        raise TurnsOutOfRange(f"numTurns must be at most {available}, the number of turns the thread has", data=facts)
    return num_turns


def boundary_count(records: Sequence[Record], first: int) -> int:
    """The `num_turns` that makes a marker remove whole turns: it counts boundaries in the history, not turns (03 §9.3).

    Steered input is a boundary of its own and goes with its turn; what an earlier marker removed counts no more.

    Args:
        records: The whole log as far as it is in force; a bounded part would miss boundaries behind its checkpoint.
        first: Index of the first record of the oldest turn to be removed.
    """
    return sum(entry.source >= first and entry.boundary for entry in uncompacted_history(records).entries)


def turn_count(records: Sequence[Record], first: int) -> int:
    """How many turns with a boundary begin at or after an index and were not removed before."""
    fates = rollback_fates(records)
    count, counted = 0, False
    for index in range(first, len(records)):
        if records[index].event == "task_started":
            counted = False
        if fates[index] is None and not counted and is_instruction_record(records[index]):
            count, counted = count + 1, True
    return count


def legacy_marker(num_turns: int, turn_ids: Sequence[str], *, turns: int | None = None) -> NewRecord:
    """The old marker; beside its payload it says which turns it removed (DESIGN §4).

    Args:
        num_turns: Boundaries, as readers of the format count (`boundary_count`).
        turns: Whole turns with a boundary (`turn_count`). Where it is told, steered input does not make older turns
            lose their settings and checkpoints when the log is read again.
    """
    ours: dict[str, Any] = {"branch": "rollback", "turnIds": list(turn_ids)}
    if turns is not None:
        ours["turns"] = turns
    return NewRecord(
        RecordType.EVENT_MSG, {"type": "thread_rolled_back", "num_turns": num_turns}, extra={"unspool": ours}
    )


def rollback_marker(records: Sequence[Record], start: Position, turn_ids: Sequence[str]) -> NewRecord:
    """The marker that removes everything from a turn's start on.

    Args:
        records: The whole log.
        start: Position of the oldest removed turn's first record.
        turn_ids: All removed turns, oldest first; compactions between them included.

    Raises:
        ValueError: The record at that position is not among the records: they are a bounded part, read the whole log.
    """
    records = [records[index] for index in in_force(records)]
    first = _index_of(records, start)
    return legacy_marker(boundary_count(records, first), turn_ids, turns=turn_count(records, first))


def _index_of(records: Sequence[Record], start: Position) -> int:
    for index, record in enumerate(records):
        if record.position == start and index > 0:
            return index
    raise ValueError("the start of the removed turns is not among the records")


def legacy_undo_place(records: Sequence[Record]) -> int | None:
    """Where an undo on a legacy thread goes back to: before the newest rollback or restore in force, if there is one.

    What was recorded since goes out of force with it and can be restored.
    """
    return newest_cut(records, in_force(records), markers_of(records))


def legacy_restore(
    records: Sequence[Record],
    place: int,
    *,
    reason: str = "restore",
    turn_ids: Sequence[str] = (),
    restored_turn_ids: Sequence[str] = (),
    next_item: int | None = None,
    window_id: str | None = None,
) -> list[NewRecord]:
    """The records that make the thread what it was before the record at index `place` (DESIGN §4).

    A checkpoint with the history of that point: it opens a new window, keeps the previous settings and clears the
    baseline, so the next turn tells its context anew. Readers that only know the format see a compaction; ours also
    give the turns of that point back to clients (`in_force`).

    Args:
        records: The whole log, header in front.
        turn_ids: Visible turns that go; `restored_turn_ids` are those that come back.
        next_item: Number of the next made-up item id at that point, so that replays count on as live threads do.
        window_id: The new window's id (UUIDv7); left out where the caller has none.
    """
    before = reconstruct(records[:place], HistoryMode.LEGACY)
    number = max(before.window.number, reconstruct(records, HistoryMode.LEGACY).window.number) + 1
    last = records[-1]
    position = records[place].position if place < len(records) else Position(last.rollout_id, last.ordinal + 1)
    told = Restore(position, len(records) - place, reason, tuple(turn_ids), tuple(restored_turn_ids), next_item)
    extra = {"unspool": restore_fields(told)}
    return [NewRecord(RecordType.COMPACTED, _restoring(before, number, window_id), extra=extra)]


def _restoring(before: Reconstruction, number: int, window_id: str | None) -> dict[str, Any]:
    window = before.window
    ids = {
        "first_window_id": window.first_id or window.id,
        "previous_window_id": window.id,
        "window_id": window_id,
    }
    return {
        "message": "",
        "replacement_history": list(before.history),
        "window_number": number,
        **{name: value for name, value in ids.items() if value is not None},
        "resume_metadata": resume_metadata(before.previous_settings, before.last_started_turn_id),
    }


def resume_metadata(
    settings: PreviousSettings | Mapping[str, Any] | None, last_started_turn_id: str | None
) -> dict[str, Any]:
    """`resume_metadata` of a compaction (01 §3.3)."""
    if isinstance(settings, PreviousSettings):
        previous: Mapping[str, Any] | None = {
            "model": settings.model,
            "comp_hash": settings.comp_hash,
            "realtime_active": settings.realtime_active,
        }
    else:
        previous = settings
    return {"previous_turn_settings": previous, "last_started_turn_id": last_started_turn_id}
