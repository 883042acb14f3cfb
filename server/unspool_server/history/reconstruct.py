"""From records to the thread's model side: history, settings, baselines, window (03; corrected by 07 §10).

A reverse scan finds the newest surviving checkpoint and what surviving turns say; a forward replay appends what
came after it. A pure function that never raises: what it cannot read is passed over and reported as a degradation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unspool_protocol.log import HistoryMode, Record, RecordType

from .checkpoints import (
    Checkpoint,
    checkpoint_of,
    is_invalid_checkpoint,
    resume_settings,
    rolled_back_turns,
    uuid7_of,
)
from .fields import EMPTY, object_of, text_of
from .in_force import in_force, restore_of, spread
from .items import history_item
from .replay import ReplayedHistory
from .segments import ReverseScan, WorldStep
from .state import Degradation, Origins, Out, Reconstruction, Window
from .survival import Fate, markers_of, rollback_fates, spans_of


@dataclass(slots=True)
class _Found:
    """The result of the reverse scan: where to begin (`base` -1: at the start, with nothing) and what turns say."""

    scan: ReverseScan
    base: int = -1
    checkpoint: Checkpoint | None = None
    at_once: bool = False


@dataclass(slots=True)
class _Replayed:
    """The result of the forward replay."""

    history: ReplayedHistory = field(default_factory=ReplayedHistory)
    rebuilt_at: list[int] = field(default_factory=list)
    outdated: dict[int, int] = field(default_factory=dict)
    invalid: list[int] = field(default_factory=list)
    dropped: dict[int, int] = field(default_factory=dict)


def reconstruct(records: Sequence[Record], mode: HistoryMode) -> Reconstruction:
    """Rebuild the model side of a thread.

    Args:
        records: The whole log, or a bounded part (`bounded.BoundedScan`), oldest first, with the thread's own
            `session_meta` in front. Later ones belong to sources of copies and mean nothing here (01 §2).
        mode: The thread's mode; paginated threads need less for the input checkpoint (03 §4).
    """
    return explained(records, mode)[0]


def explained(records: Sequence[Record], mode: HistoryMode) -> tuple[Reconstruction, Origins]:
    """`reconstruct`, and which records what it yields came from; for those who account for every record."""
    kept = in_force(records)
    if len(kept) == len(records):
        return _reconstruct(records, mode)
    state, origins = _reconstruct([records[index] for index in kept], mode)
    return replace(state, spans=spread(state.spans, kept, len(records))), origins.moved(kept)


def _reconstruct(records: Sequence[Record], mode: HistoryMode) -> tuple[Reconstruction, Origins]:
    found = _find(records, mode)
    replayed = _replay(records, found)
    scan = found.scan
    world, orphans = merge_world(reversed(scan.world))
    resume = found.checkpoint.resume if found.at_once and found.checkpoint is not None else None
    state = Reconstruction(
        history=replayed.history.items,
        previous_settings=scan.settings or resume_settings(resume),
        reference_context=None if replayed.rebuilt_at else scan.reference,
        world_state=world,
        window=scan.window or _first_window(records),
        last_started_turn_id=scan.last_started or text_of(resume or EMPTY, "last_started_turn_id"),
        open_turn_id=open_turn(records),
        degradations=_degradations(records, replayed, orphans),
        spans=spans_of(_fates(records, found, replayed)),
    )
    reference = None if replayed.rebuilt_at else scan.reference_key
    sources = tuple(entry.source for entry in replayed.history.entries)
    cleared = replayed.rebuilt_at[-1] if replayed.rebuilt_at else None
    world_from = tuple(world_sources(reversed(scan.world)))
    return state, Origins(sources, reference, world_from, cleared, found.base if found.base >= 0 else None)


def _find(records: Sequence[Record], mode: HistoryMode) -> _Found:
    """Choose the base: the newest complete compaction at once, unless a later marker reaches behind it (03 §9.2)."""
    newest = _newest_complete(records, mode)
    markers = markers_of(records)
    if newest is None or (markers and markers[-1] > newest[0]):
        found = _scan_all(records)
        if newest is None or found.base != newest[0]:
            return found
    index, checkpoint = newest
    scan = ReverseScan()
    for key in range(len(records) - 1, index, -1):
        scan.feed(key, records[key])
    scan.finish(base=checkpoint)
    scan.window = checkpoint.window
    return _Found(scan, index, checkpoint, at_once=True)


def _newest_complete(records: Sequence[Record], mode: HistoryMode) -> tuple[int, Checkpoint] | None:
    """The newest checkpoint if it can be installed at once (03 §4); an older complete one may not stand in for it."""
    for index in range(len(records) - 1, -1, -1):
        checkpoint = checkpoint_of(records[index])
        if checkpoint is not None:
            return (index, checkpoint) if installs_at_once(checkpoint, mode) else None
    return None


def installs_at_once(checkpoint: Checkpoint, mode: HistoryMode) -> bool:
    """Whether the newest checkpoint makes everything before it irrelevant (03 §4)."""
    return checkpoint.complete and (checkpoint.resume is not None or mode is HistoryMode.PAGINATED)


def _scan_all(records: Sequence[Record]) -> _Found:
    scan = ReverseScan()
    for key in range(len(records) - 1, -1, -1):
        scan.feed(key, records[key])
    scan.finish()
    base = -1 if scan.checkpoint is None else scan.checkpoint
    return _Found(scan, base, None if base < 0 else checkpoint_of(records[base]))


def _replay(records: Sequence[Record], found: _Found) -> _Replayed:
    """Apply the records after the base. A replacement history met here belongs to a removed turn: not installed."""
    replayed = _Replayed()
    if found.checkpoint is not None and found.checkpoint.replacement is not None:
        replayed.history.install(found.checkpoint.replacement, found.base)
    for index in range(found.base + 1, len(records)):
        record = records[index]
        item = history_item(record)
        if item is not None:
            replayed.history.append(item, index)
        elif record.type == RecordType.EVENT_MSG:
            _drop(replayed, index, rolled_back_turns(record))
        else:
            _replay_checkpoint(replayed, index, record)
    return replayed


def _drop(replayed: _Replayed, marker: int, turns: int) -> None:
    if not turns:
        return
    before = [entry.source for entry in replayed.history.entries]
    replayed.history.drop_last(turns)
    left = {entry.source for entry in replayed.history.entries}
    replayed.dropped |= {source: marker for source in before if source not in left}


def _replay_checkpoint(replayed: _Replayed, index: int, record: Record) -> None:
    checkpoint = checkpoint_of(record)
    if checkpoint is not None and checkpoint.replacement is None:
        replayed.rebuilt_at.append(index)
        for source in replayed.history.rebuild(checkpoint.message, index):
            replayed.outdated.setdefault(source, index)
    elif is_invalid_checkpoint(record):
        replayed.invalid.append(index)


def _degradations(records: Sequence[Record], replayed: _Replayed, orphans: Sequence[int]) -> tuple[Degradation, ...]:
    """What made the result less than perfect; only records that matter to the result are named."""
    causes = (
        ("legacyCompaction", replayed.rebuilt_at, "History was rebuilt from user messages and the stored summary."),
        ("invalidCheckpoint", replayed.invalid, "A compaction that cannot be read was passed over."),
        ("patchWithoutBase", orphans, "Changes to an unknown environment state were passed over."),
    )
    return tuple(
        Degradation(code, tuple(records[index].ordinal for index in indices), effect)
        for code, indices, effect in causes
        if indices
    )


def merge_world(steps: Any) -> tuple[Mapping[str, Any] | None, list[int]]:
    """Replay changes of the environment baseline, oldest first (03 §5, 01 §3.5).

    Returns:
        The baseline, and the keys of trailing patches that had nothing to apply to.
    """
    world: Mapping[str, Any] | None = None
    orphans: list[int] = []
    step: WorldStep
    for step in steps:
        if step.state is None or step.full:
            world, orphans = step.state, []
        elif world is None:
            orphans.append(step.key)
        else:
            world = merge_patch(world, step.state)
    return world, orphans


def world_sources(steps: Iterable[WorldStep]) -> list[int]:
    """Keys of the steps that `merge_world` builds the baseline from: the newest whole state and its patches."""
    keys: list[int] = []
    known = False
    for step in steps:
        if step.state is None or step.full:
            known = step.state is not None
            keys = [step.key] if known else []
        elif known:
            keys.append(step.key)
    return keys


def merge_patch(target: Any, patch: Any, depth: int = 0) -> Any:
    """RFC 7396: null removes a member, objects merge, everything else replaces. Absurd depths replace as well."""
    if not isinstance(patch, Mapping) or depth > 200:
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value, depth + 1)
    return merged


def _first_window(records: Sequence[Record]) -> Window:
    """The window where no surviving compaction names one: the thread's first, or as many as there were (03 §5)."""
    checkpoints = [checkpoint for record in records if (checkpoint := checkpoint_of(record)) is not None]
    compactions = [checkpoint for checkpoint in checkpoints if checkpoint.compaction]
    if all(checkpoint.window is not None for checkpoint in compactions):
        own = records[0].payload if records and records[0].type == RecordType.SESSION_META else EMPTY
        window_id = uuid7_of(object_of(own, "context_window") or EMPTY, "window_id")
        if window_id is not None:
            return Window(0, window_id, None, window_id)
    return Window(len(compactions))


def open_turn(records: Sequence[Record]) -> str | None:
    """The explicit turn that was running where the log ends; markers are only written when none was."""
    for record in reversed(records):
        match record.event:
            case "task_started":
                return text_of(record.payload, "turn_id")
            case "task_complete" | "turn_aborted":
                return None
            case "thread_rolled_back" if rolled_back_turns(record):
                return None
            case None if restore_of(record) is not None:
                return None
            case _:
                pass
    return None


def _fates(records: Sequence[Record], found: _Found, replayed: _Replayed) -> Sequence[Fate]:
    """The fate of every record for the model: rolled back, behind the base, rebuilt away, or unreadable."""
    fates = rollback_fates(records)
    for index, marker in replayed.dropped.items():
        # Also context directly behind a checkpoint, which goes with the turn only because the replay begins there.
        if index > found.base and fates[index] is None:
            fates[index] = (Out.ROLLBACK, marker)
    for index, record in enumerate(records):
        if fates[index] is not None:
            continue
        if index < found.base and record.type != RecordType.SESSION_META:
            fates[index] = (Out.COMPACTION, found.base)
        elif index in replayed.outdated:
            fates[index] = (Out.LEGACY_RULE, replayed.outdated[index])
        elif _is_damaged(record):
            fates[index] = (Out.DAMAGE, None)
        elif record.type == RecordType.RESPONSE_ITEM and history_item(record) is None:
            fates[index] = (Out.LEGACY_RULE, None)
    return fates


def _is_damaged(record: Record) -> bool:
    if record.type == RecordType.RESPONSE_ITEM:
        return text_of(record.payload, "type") is None
    return is_invalid_checkpoint(record)
