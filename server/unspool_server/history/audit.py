"""The audit view: what became of every line of a log, in each of the three views, and which record decided it.

A fold over what `reconstruct` and the client view say themselves (`explained`, `folded_view`), so that the audit cannot
tell another story than they do (DESIGN §1.2). Owns no rule about survival and no reading.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from unspool_protocol.log import HistoryMode, LineFault, Position, Record, RecordType

from .checkpoints import checkpoint_of, settings_of
from .client_view import REVERTING_BRANCHES, ClientView
from .event_shapes import ClientEvent
from .fields import list_of, object_of, text_of
from .in_force import restore_of
from .items import history_item
from .labels import label_of
from .reconstruct import explained
from .state import Origins, Out, Span
from .survival import client_survival
from .whole_view import folded_view


class Reason(StrEnum):
    """Why a record is not in force in a view; the last three mean that its kind never is."""

    ROLLBACK = "rollback"
    REVERT = "revert"
    RESTORE = "restore"
    BRANCH = "branch"
    FORK_CUT = "forkCut"
    COMPACTION = "compaction"
    SUPERSEDED = "superseded"
    LEGACY_RULE = "legacyRule"
    PATCH_WITHOUT_BASE = "patchWithoutBase"
    DAMAGE = "damage"
    NEVER_MODEL_INPUT = "neverModelInput"
    NEVER_SHOWN = "neverShown"
    NEVER_BASELINE = "neverBaseline"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a record in one view: in force (`reason` None), or out, and the place of what put it out."""

    reason: Reason | None = None
    by: Position | None = None


IN_FORCE = Verdict()


@dataclass(frozen=True, slots=True)
class Stretch:
    """The lines of one rollout on the way from a thread's beginning to the end of one of its branches.

    Attributes:
        lines: What the branch is made of, in file order; lines that are no record as the fault that was found.
        beyond: What stands behind the place where the branch leaves this rollout.
        left_by: Header of the rollout that begins at that place; None in the last one.
    """

    rollout_id: str
    lines: Sequence[Record | LineFault]
    beyond: Sequence[Record | LineFault] = ()
    left_by: Record | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of a log without its content.

    Attributes:
        number: Place among the lines of its rollout; does not change when more are written.
        type: None for a line that is no record.
        fault: Code of `LineFault`, also where a record could be read all the same.
        model: The model's history: whether an item of it came from here.
        client: What clients are shown; `items` are the turn and item ids that came from here.
        baseline: The context that the model counts as shown.
    """

    position: Position
    number: int
    timestamp: str
    type: str | None
    event: str | None
    label: str
    fault: str | None
    model: Verdict
    client: Verdict
    baseline: Verdict
    items: tuple[tuple[str, str], ...] = ()


def audit(stretches: Sequence[Stretch], thread_id: str, mode: HistoryMode) -> list[AuditEntry]:
    """Every line of the stretches, oldest rollout first, each in file order.

    Args:
        stretches: From the rollout that the thread's history begins in to the branch in question.
    """
    judged = _Judged.of(
        [line for part in stretches for line in part.lines if isinstance(line, Record)], thread_id, mode
    )
    entries: list[AuditEntry] = []
    index = 0
    for part in stretches:
        rows: list[tuple[Record | LineFault, _Verdicts]] = []
        for line in part.lines:
            if isinstance(line, Record):
                rows.append((line, judged.verdicts(index)))
                index += 1
            else:
                rows.append((line, _DAMAGED))
        rows += [(line, _left(part)) for line in part.beyond]
        entries += _entries(part.rollout_id, rows)
    return entries


@dataclass(frozen=True, slots=True)
class _Verdicts:
    model: Verdict
    client: Verdict
    baseline: Verdict
    items: tuple[tuple[str, str], ...] = ()


_DAMAGED = _Verdicts(Verdict(Reason.DAMAGE), Verdict(Reason.DAMAGE), Verdict(Reason.DAMAGE))

_OF_A_RECORD = frozenset({"ordinalMissing", "gluedRecords"})
"""Faults of a line whose records were read all the same; they are noted just before the first of these."""


def _entries(rollout_id: str, rows: Sequence[tuple[Record | LineFault, _Verdicts]]) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    fault: str | None = None
    for line, verdicts in rows:
        number = len(entries)
        if isinstance(line, LineFault):
            if line.code in _OF_A_RECORD:
                fault = line.code
                continue
            words = f"{line.code}: {line.detail}" if line.detail else line.code
            place = Position(rollout_id, line.line)
            entries.append(_entry(place, number, ("", None, None, words, line.code), verdicts))
            continue
        what = (line.timestamp, line.type, line.event, label_of(line), fault)
        entries.append(_entry(line.position, number, what, verdicts))
        fault = None
    return entries


def _entry(
    place: Position, number: int, what: tuple[str, str | None, str | None, str, str | None], verdicts: _Verdicts
) -> AuditEntry:
    return AuditEntry(place, number, *what, verdicts.model, verdicts.client, verdicts.baseline, verdicts.items)


def _left(part: Stretch) -> _Verdicts:
    """What stands behind a cut is out in every view, by the header of the rollout that begins there."""
    header = part.left_by
    verdict = Verdict(Reason.BRANCH) if header is None else Verdict(cut_reason(header), header.position)
    return _Verdicts(verdict, verdict, verdict)


def cut_reason(header: Record) -> Reason:
    """Why a rollout leaves its base where it does. Segments that the reference writes are reverts (07 §7)."""
    ours = object_of(header.extra, "unspool")
    word = text_of(ours, "branch") if ours else None
    match word:
        case "rollback":
            return Reason.ROLLBACK
        case "revert":
            return Reason.REVERT
        case "restore":
            return Reason.RESTORE
        case None:
            return Reason.REVERT if is_segment(header) else Reason.FORK_CUT
        case _:
            return Reason.BRANCH


def is_segment(header: Record) -> bool:
    """Whether a rollout goes on with its thread: its own id is not the thread's."""
    return header.rollout_id != header.payload.get("id")


# -- what the one reconstruction says ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Judged:
    """Verdicts on the records of a whole log."""

    records: Sequence[Record]
    origins: Origins
    model_spans: Sequence[Span]
    client_spans: Sequence[Span]
    sources: frozenset[int]
    shown: Mapping[int, Sequence[tuple[str, str]]]
    left: frozenset[tuple[str, str]]
    removed_by: Mapping[str, int]
    checkpoints: Sequence[int]

    @classmethod
    def of(cls, records: Sequence[Record], thread_id: str, mode: HistoryMode) -> "_Judged":
        state, origins = explained(records, mode)
        survival = client_survival(records, mode)
        shown: dict[int, Sequence[tuple[str, str]]] = {}
        removed_by: dict[str, int] = {}

        def watch(index: int, view: ClientView, events: Sequence[ClientEvent]) -> None:
            if events:
                shown[index] = tuple(view.placed)
            for turn_id in _removed_turns(records[index]):
                removed_by[turn_id] = index

        view = folded_view(records, thread_id, mode, survival, watch=watch)
        left = frozenset((turn.id, item.id) for turn in view.turns for item in turn.items)
        model_spans = _by_index(state.spans)
        checkpoints = [
            index
            for index, record in enumerate(records)
            if model_spans[index].out is not Out.ROLLBACK and checkpoint_of(record) is not None
        ]
        sources, client_spans = frozenset(origins.history), _by_index(survival)
        return cls(records, origins, model_spans, client_spans, sources, shown, left, removed_by, checkpoints)

    def verdicts(self, index: int) -> _Verdicts:
        items = tuple(pair for pair in self.shown.get(index, ()) if pair in self.left)
        return _Verdicts(self._model(index), self._client(index, items), self._baseline(index), items)

    def _model(self, index: int) -> Verdict:
        record, span = self.records[index], self.model_spans[index]
        if span.out is Out.ROLLBACK:
            return self._out(Reason.ROLLBACK, span.by)
        if span.out in (Out.DAMAGE, Out.LEGACY_RULE):
            return self._out(Reason(span.out.value), span.by)
        checkpoint = checkpoint_of(record)
        if checkpoint is None and history_item(record) is None:
            return Verdict(Reason.NEVER_MODEL_INPUT)
        if span.out is not None:
            return self._out(Reason(span.out.value), span.by)
        if index in self.sources or index == self.origins.base:
            return IN_FORCE
        # A replacement history behind the base belongs to a removed turn and is not installed (03 §5).
        return Verdict(Reason.LEGACY_RULE)

    def _client(self, index: int, items: Sequence[tuple[str, str]]) -> Verdict:
        span = self.client_spans[index]
        if index in self.shown:
            placed = self.shown[index]
            if items or not placed:
                return IN_FORCE
            return self._out(Reason.BRANCH, self.removed_by.get(placed[0][0]))
        if span.out is not None:
            return self._out(Reason(span.out.value), span.by)
        return Verdict(Reason.NEVER_SHOWN)

    def _baseline(self, index: int) -> Verdict:
        record, span = self.records[index], self.model_spans[index]
        if span.out is Out.ROLLBACK:
            return self._out(Reason.ROLLBACK, span.by)
        if record.type == RecordType.TURN_CONTEXT:
            return self._reference(index)
        return self._world(index) if record.type == RecordType.WORLD_STATE else Verdict(Reason.NEVER_BASELINE)

    def _reference(self, index: int) -> Verdict:
        origins = self.origins
        if index == origins.reference:
            return IN_FORCE
        if settings_of(self.records[index].payload) is None:
            return Verdict(Reason.DAMAGE)
        if origins.reference is not None and index < origins.reference:
            return self._out(Reason.SUPERSEDED, origins.reference)
        if origins.cleared is not None and index < origins.cleared:
            return self._out(Reason.LEGACY_RULE, origins.cleared)
        return self._cleared_by(index) or Verdict(Reason.LEGACY_RULE)

    def _world(self, index: int) -> Verdict:
        world, payload = self.origins.world, self.records[index].payload
        if index in world:
            return IN_FORCE
        if object_of(payload, "state") is None or not isinstance(payload.get("full"), bool):
            return Verdict(Reason.DAMAGE)
        if world and index < world[0]:
            return self._out(Reason.SUPERSEDED, world[0])
        cleared = self._cleared_by(index)
        if cleared is not None:
            return cleared
        return Verdict(Reason.LEGACY_RULE if payload["full"] else Reason.PATCH_WITHOUT_BASE)

    def _cleared_by(self, index: int) -> Verdict | None:
        """The first compaction in force behind a record: it made the model forget what it was shown."""
        place = bisect_right(self.checkpoints, index)
        return self._out(Reason.COMPACTION, self.checkpoints[place]) if place < len(self.checkpoints) else None

    def _out(self, reason: Reason, by: int | None) -> Verdict:
        if by is None:
            return Verdict(reason)
        if reason is Reason.ROLLBACK and restore_of(self.records[by]) is not None:
            reason = Reason.RESTORE
        return Verdict(reason, self.records[by].position)


def _by_index(spans: Sequence[Span]) -> list[Span]:
    """The span of each record."""
    return [span for span in spans for _ in range(span.start, span.end)]


def _removed_turns(record: Record) -> Sequence[str]:
    if record.type != RecordType.SESSION_META:
        return ()
    ours = object_of(record.extra, "unspool")
    if ours is None or text_of(ours, "branch") not in REVERTING_BRANCHES:
        return ()
    return [turn_id for turn_id in list_of(ours, "turnIds") or () if isinstance(turn_id, str)]
