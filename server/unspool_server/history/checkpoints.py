"""Records that replace history: what a `compacted` record says, and the other records that count as checkpoints.

Sources: 01 §3.3, 03 §4, 00 row 25. Decides nothing about survival.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unspool_protocol.log import Position, Record, RecordType

from .fields import EMPTY, count_of, list_of, object_of, text_of
from .items import is_kept_item
from .state import Item, PreviousSettings, Window

SNAPSHOT_TYPES = (RecordType.ROLLED_BACK, "forked")
"""Records of other writers that carry a whole replacement history; without one they mean nothing (00 row 25)."""

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Restore:
    """What a restoring checkpoint of a legacy thread goes back to (DESIGN §4).

    Attributes:
        position: Just before the record at this line of the log that it was written to.
        back: The same as a distance in records, for copies of that log.
        reason: `restore`, or `undo` where it undoes a cut.
        turn_ids: Visible turns that go; `restored_turn_ids` are those that come back.
        next_item: Number of the next item that needs a made-up id; None where the record does not say.
    """

    position: Position
    back: int
    reason: str = "restore"
    turn_ids: tuple[str, ...] = ()
    restored_turn_ids: tuple[str, ...] = ()
    next_item: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A record that replaces history.

    Attributes:
        replacement: The new history; None for a legacy compaction, which only brings `message`.
        window: The window it opens; None where it has no `window_number`.
        resume: `resume_metadata`; its presence marks the newer contract.
        restores: For a restore on a legacy thread: the point that it goes back to.
        compaction: False for a snapshot of another writer (`SNAPSHOT_TYPES`).
    """

    replacement: tuple[Item, ...] | None
    message: str = ""
    window: Window | None = None
    resume: Mapping[str, Any] | None = None
    restores: Restore | None = None
    compaction: bool = True

    @property
    def complete(self) -> bool:
        """Whether it can be installed without reading older records (03 §4)."""
        return self.compaction and self.replacement is not None and self.window is not None


def checkpoint_of(record: Record) -> Checkpoint | None:
    """What a checkpoint record says; None for every other record and for an invalid one (01 §3.3)."""
    if record.type not in (RecordType.COMPACTED, *SNAPSHOT_TYPES):
        return None
    payload = record.payload
    entries = payload.get("replacement_history")
    metadata = payload.get("replacement_history_metadata")
    if entries is not None and not isinstance(entries, list | tuple):
        return None
    if metadata is not None and (
        entries is None or not isinstance(metadata, list | tuple) or len(metadata) != len(entries)
    ):
        return None
    replacement = None if entries is None else tuple(entry for entry in entries if is_kept_item(entry))
    if record.type != RecordType.COMPACTED:
        return None if replacement is None else Checkpoint(replacement, compaction=False)
    if replacement is None and not isinstance(payload.get("message"), str):
        return None
    return Checkpoint(
        replacement,
        text_of(payload, "message") or "",
        window_of(payload),
        object_of(payload, "resume_metadata"),
        _restores_of(record),
    )


def is_invalid_checkpoint(record: Record) -> bool:
    """Whether a record wants to be a checkpoint but cannot be read as one."""
    return record.type in (RecordType.COMPACTED, *SNAPSHOT_TYPES) and checkpoint_of(record) is None


def window_of(payload: Mapping[str, Any]) -> Window | None:
    """The window a compaction opens; a numeric `window_id` is an old spelling of `window_number` (01 §3.3)."""
    number = count_of(payload, "window_number")
    if number is None:
        number = count_of(payload, "window_id")
    if number is None:
        return None
    window_id = uuid7_of(payload, "window_id")
    first_id = uuid7_of(payload, "first_window_id") or window_id
    return Window(number, first_id, uuid7_of(payload, "previous_window_id"), window_id)


def uuid7_of(source: Mapping[str, Any], key: str) -> str | None:
    """The member when it is the text of a version 7 UUID; other ids are ignored (01 §3.3)."""
    value = text_of(source, key)
    return value if value is not None and _UUID7.fullmatch(value) else None


def settings_of(source: Mapping[str, Any]) -> PreviousSettings | None:
    """Turn settings as `turn_context` and `resume_metadata.previous_turn_settings` hold them (01 §1)."""
    model = text_of(source, "model")
    if model is None:
        return None
    realtime = source.get("realtime_active")
    return PreviousSettings(model, text_of(source, "comp_hash"), realtime if isinstance(realtime, bool) else None)


def resume_settings(resume: Mapping[str, Any] | None) -> PreviousSettings | None:
    """The previous turn settings kept beside a checkpoint, or None."""
    return settings_of(object_of(resume or EMPTY, "previous_turn_settings") or EMPTY)


def rolled_back_turns(record: Record) -> int:
    """The count of a legacy rollback marker; 0 for every other record."""
    if record.event != "thread_rolled_back":
        return 0
    return count_of(record.payload, "num_turns") or 0


def rolled_back_segments(record: Record) -> int:
    """How many user turns a marker removes. Ours say it; foreign ones only count boundaries, steered input included."""
    boundaries = rolled_back_turns(record)
    ours = object_of(record.extra, "unspool") if boundaries else None
    turns = count_of(ours, "turns") if ours is not None else None
    return turns or boundaries


def _restores_of(record: Record) -> Restore | None:
    ours = object_of(record.extra, "unspool")
    restores = object_of(ours, "restores") if ours is not None else None
    if restores is None:
        return None
    rollout_id, ordinal, back = (
        text_of(restores, "rolloutId"),
        count_of(restores, "ordinal"),
        count_of(restores, "back"),
    )
    if rollout_id is None or ordinal is None or back is None:
        return None
    return Restore(
        Position(rollout_id, ordinal),
        back,
        text_of(restores, "reason") or "restore",
        _texts(restores, "turnIds"),
        _texts(restores, "restoredTurnIds"),
        count_of(restores, "nextItem"),
    )


def _texts(source: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(one for one in list_of(source, key) or () if isinstance(one, str))
