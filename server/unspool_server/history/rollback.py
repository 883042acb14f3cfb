"""Plan a rollback of whole turns, and its undo, on a thread whose log has legacy markers (04 §4; DESIGN §4, §5).

Paginated threads branch instead and need none of these records; the check of the number serves both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unspool_protocol.log import HistoryMode, NewRecord, Position, Record, RecordType

from ..errors import TurnsOutOfRange
from .boundaries import is_instruction_record
from .checkpoints import checkpoint_of, rolled_back_turns
from .fields import EMPTY, list_of, object_of, text_of
from .reconstruct import reconstruct, reconstruct_with
from .state import PreviousSettings, Reconstruction
from .survival import restored_markers, rollback_fates, uncompacted_history


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
        records: The whole log; a bounded part would miss boundaries behind its checkpoint.
        first: Index of the first record of the oldest turn to be removed.
    """
    return sum(entry.source >= first and entry.boundary for entry in uncompacted_history(records).entries)


def turn_count(records: Sequence[Record], first: int) -> int:
    """How many turns with a boundary begin at or after an index and were not removed before."""
    fates = rollback_fates(records, restored_markers(records))
    count, counted = 0, False
    for index in range(first, len(records)):
        if records[index].event == "task_started":
            counted = False
        if fates[index] is None and not counted and is_instruction_record(records[index]):
            count, counted = count + 1, True
    return count


def marker_turns(records: Sequence[Record], start: Position) -> int:
    """`boundary_count` from a position on.

    Raises:
        ValueError: The record at that position is not among the records: they are a bounded part, read the whole log.
    """
    return boundary_count(records, _index_of(records, start))


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
        ValueError: As `marker_turns`.
    """
    first = _index_of(records, start)
    return legacy_marker(boundary_count(records, first), turn_ids, turns=turn_count(records, first))


def _index_of(records: Sequence[Record], start: Position) -> int:
    for index, record in enumerate(records):
        if record.position == start and index > 0:
            return index
    raise ValueError("the start of the removed turns is not among the records")


def legacy_restore(records: Sequence[Record], *, window_id: str | None = None) -> list[NewRecord] | None:
    """The undo of the newest rollback in force on a legacy thread: a checkpoint with the history from before it.

    It opens a new window, keeps the previous settings and clears the baseline, so the next turn tells its context anew.
    Readers that only know the format see a compaction; ours also give the turns back to clients. Turns that came after
    the rollback are removed by a marker of their own, which can be undone in turn.

    Args:
        records: The whole log, header in front.
        window_id: The new window's id (UUIDv7); left out where the caller has none.

    Returns:
        The records to append as one unit; None when there is nothing to undo.
    """
    markers = [index for index, record in enumerate(records) if rolled_back_turns(record)]
    restored = restored_markers(records)
    live = [index for index in markers if index not in restored]
    if not live:
        return None
    target = live[-1]
    removal = _removal_after(records, target)
    state = _state_without(records, target, removal)
    number = max(state.window.number, reconstruct(records, HistoryMode.LEGACY).window.number) + 1
    ours = object_of(records[target].extra, "unspool") or EMPTY
    back = len(markers) - markers.index(target) + len(removal)
    restores = {"marker": back, "turnIds": list(list_of(ours, "turnIds") or ())}
    checkpoint = _restoring(state, number, window_id)
    return [*removal, NewRecord(RecordType.COMPACTED, checkpoint, extra={"unspool": {"restores": restores}})]


def _removal_after(records: Sequence[Record], marker: int) -> list[NewRecord]:
    """A marker that removes the turns that came after another one; nothing where there are none."""
    first = marker + 1
    boundaries = boundary_count(records, first)
    if not boundaries:
        return []
    return [legacy_marker(boundaries, _turn_ids(records, first), turns=turn_count(records, first))]


def _state_without(records: Sequence[Record], marker: int, removal: Sequence[NewRecord]) -> Reconstruction:
    """What the log says when a marker means nothing and `removal` is appended.

    Checkpoints of other undos hold states in which the marker was in force, so those after it are passed over.
    """
    whole = list(records)
    for index in range(marker, len(records)):
        checkpoint = checkpoint_of(records[index])
        if checkpoint is not None and checkpoint.restores is not None:
            whole[index] = replace(records[index], type="undo", payload=EMPTY)
    whole += [Record("", len(whole), new.type, new.payload, extra=new.extra or {}) for new in removal]
    return reconstruct_with(whole, HistoryMode.LEGACY, restored_markers(records) | {marker})


def _turn_ids(records: Sequence[Record], first: int) -> list[str]:
    fates = rollback_fates(records, restored_markers(records))
    started = [
        text_of(records[index].payload, "turn_id")
        for index in range(first, len(records))
        if fates[index] is None and records[index].event == "task_started"
    ]
    return [turn_id for turn_id in started if turn_id is not None]


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
