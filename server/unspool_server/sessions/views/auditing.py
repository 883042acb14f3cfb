"""Pages of the audit view: which lines of which rollouts, and the fates that `history.audit` gives them.

Fates depend on the whole log, so the first page of a log reads all of it once; what is kept of it are places, labels
and verdicts without the records' content, for as long as no rollout of the path has changed. Further pages cost what
they show. Never loads a thread, writes nothing.
"""

import base64
import binascii
import json
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Self
from weakref import WeakKeyDictionary

from unspool_protocol import audit_methods as wire
from unspool_protocol.log import LineFault, Record
from unspool_protocol.positions import LogPosition

from unspool_server.errors import InvalidParams, LogMissing
from unspool_server.history.audit import AuditEntry, Stretch, Verdict, audit
from unspool_server.sessions.branches.rollout_path import Step, path_of
from unspool_server.store.contract import LogStore, ReadReport, RolloutInfo

DEFAULT_LIMIT = 100
"""Lines of a page where the caller does not say."""

MAX_LIMIT = 1000
"""Lines of a page at most; a larger limit is taken as this."""

KEPT_LOGS = 4
"""Audited logs that are remembered for their next pages."""

_Key = tuple[Any, ...]
_KEPT: WeakKeyDictionary[LogStore, "OrderedDict[_Key, list[AuditEntry]]"] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class AuditCursor:
    """A place among the lines of a branch; it stays valid while lines are added.

    Attributes:
        branch: The rollout whose views are told.
        rollout_id: The rollout that holds the anchor, `number` its place there.
        include: Whether a page begins with the anchor itself.
    """

    thread_id: str
    branch: str
    rollout_id: str
    number: int
    include: bool = False

    def encode(self) -> str:
        """The opaque text that clients keep."""
        content = [self.thread_id, self.branch, self.rollout_id, self.number, self.include]
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, thread_id: str) -> Self:
        """The reverse of `encode`. Raises InvalidParams for anything else, and for a cursor of another thread."""
        try:
            content = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
            owner, branch, rollout_id, number, include = content
        except (binascii.Error, UnicodeDecodeError, ValueError, TypeError, RecursionError):
            raise bad_cursor(text) from None
        sound = all(isinstance(part, str) for part in (owner, branch, rollout_id)) and isinstance(include, bool)
        if not sound or type(number) is not int or owner != thread_id:
            raise bad_cursor(text)
        return cls(owner, branch, rollout_id, number, include)


def bad_cursor(text: str) -> InvalidParams:
    """The refusal of a cursor that is none of ours or does not belong here."""
    return InvalidParams(f"invalid cursor: {text}", data={"reason": "cursorInvalid", "field": "cursor"})


async def audit_page(store: LogStore, present: RolloutInfo, params: wire.ThreadAuditParams) -> wire.ThreadAuditResult:
    """One page.

    Args:
        present: The thread's present rollout, which is looked at when neither `rolloutId` nor a cursor names another.

    Raises:
        InvalidParams: `rolloutId` is no rollout of the thread, or the cursor does not fit.
        LogCorrupt: The branch cannot be read as a whole.
    """
    anchor = AuditCursor.decode(params.cursor, present.thread_id) if params.cursor is not None else None
    if anchor is not None and params.rollout_id not in (None, anchor.branch):
        raise bad_cursor(str(params.cursor))
    info = await _branch(store, present, anchor.branch if anchor is not None else params.rollout_id)
    entries = await audited(store, info)
    shown, more = _cut(entries, anchor, _size(params.limit), descending=params.sort_direction == "desc")
    raw = await _raw_lines(store, shown) if params.include_raw else {}
    return wire.ThreadAuditResult(
        rollout_id=info.rollout_id,
        data=tuple(_wire_entry(entry, raw) for entry in shown),
        total=len(entries),
        next_cursor=_cursor(info, shown[-1], include=False) if shown and more else None,
        backwards_cursor=_cursor(info, shown[0], include=True) if shown else None,
    )


async def _branch(store: LogStore, present: RolloutInfo, rollout_id: str | None) -> RolloutInfo:
    if rollout_id is None or rollout_id == present.rollout_id:
        return present
    try:
        info = await store.rollout(rollout_id)
    except LogMissing:
        info = None
    if info is None or info.thread_id != present.thread_id:
        raise InvalidParams(
            f"no rollout {rollout_id} of thread {present.thread_id}",
            data={"reason": "rolloutNotFound", "field": "rolloutId"},
        )
    return info


def _size(limit: int | None) -> int:
    return max(1, min(DEFAULT_LIMIT if limit is None else limit, MAX_LIMIT))


def _cut(
    entries: Sequence[AuditEntry], anchor: AuditCursor | None, size: int, *, descending: bool
) -> tuple[list[AuditEntry], bool]:
    """The entries of a page, and whether there are more behind it."""
    step = -1 if descending else 1
    start = len(entries) - 1 if descending else 0
    if anchor is not None:
        place = next(
            (
                index
                for index, entry in enumerate(entries)
                if entry.number == anchor.number and entry.position.rollout_id == anchor.rollout_id
            ),
            None,
        )
        if place is None:
            raise bad_cursor(anchor.encode())
        start = place if anchor.include else place + step
    chosen = list(range(start, -1 if descending else len(entries), step))
    return [entries[index] for index in chosen[:size]], len(chosen) > size


def _cursor(info: RolloutInfo, entry: AuditEntry, *, include: bool) -> str:
    place = entry.position.rollout_id
    return AuditCursor(info.thread_id, info.rollout_id, place, entry.number, include).encode()


# -- reading -----------------------------------------------------------------------------------------------------------


async def audited(store: LogStore, info: RolloutInfo) -> list[AuditEntry]:
    """Every line of a branch with its fates; remembered until a rollout of the path changes. Raises LogCorrupt."""
    steps = await path_of(store, info)
    key = await _key(store, steps)
    kept = _KEPT.setdefault(store, OrderedDict())
    entries = kept.get(key)
    if entries is None:
        entries = audit(await _stretches(store, info, steps), info.thread_id, info.mode)
        kept[key] = entries
        while len(kept) > KEPT_LOGS:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return entries


async def _key(store: LogStore, steps: Sequence[Step]) -> _Key:
    marks: list[Any] = []
    for step in steps:
        rollout_id = step.info.rollout_id
        marks += [rollout_id, await store.fingerprint(rollout_id)]
        records = store.read_backward(rollout_id)
        async with aclosing(records):
            # Accepted records that are not written yet do not show in a fingerprint.
            async for record in records:
                marks.append(record.position)
                break
    return tuple(marks)


@dataclass(slots=True)
class _Sorter:
    """Records and faults in the order they were met; faults that were reported before a record come before it."""

    report: ReadReport = field(default_factory=ReadReport)
    lines: dict[str, list[Record | LineFault]] = field(default_factory=dict)
    _taken: int = 0

    def take(self, record: Record | None = None) -> None:
        for fault in self.report.faults[self._taken :]:
            self.lines.setdefault(fault.rollout_id, []).append(fault)
        self._taken = len(self.report.faults)
        if record is not None:
            self.lines.setdefault(record.rollout_id, []).append(record)


async def _read(store: LogStore, rollout_id: str, start: int = 0) -> dict[str, list[Record | LineFault]]:
    sorter = _Sorter()
    async with aclosing(store.read(rollout_id, start=start, report=sorter.report)) as records:
        async for record in records:
            sorter.take(record)
    sorter.take()
    return sorter.lines


async def _stretches(store: LogStore, info: RolloutInfo, steps: Sequence[Step]) -> list[Stretch]:
    path = await _read(store, info.rollout_id)
    stretches: list[Stretch] = []
    for step in steps:
        own = path.get(step.info.rollout_id, [])
        beyond: Sequence[Record | LineFault] = ()
        if step.cut is not None:
            own = [line for line in own if isinstance(line, Record) or line.line < step.cut]
            beyond = (await _read(store, step.info.rollout_id, step.cut)).get(step.info.rollout_id, [])
        stretches.append(Stretch(step.info.rollout_id, own, beyond, step.left_by))
    return stretches


async def _raw_lines(store: LogStore, entries: Sequence[AuditEntry]) -> dict[tuple[str, int], list[bytes]]:
    """The lines of a page by place; several for the records of a line that holds more than one."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for rollout_id in dict.fromkeys(entry.position.rollout_id for entry in entries):
        ordinals = [entry.position.ordinal for entry in entries if entry.position.rollout_id == rollout_id]
        stream = store.read(rollout_id, start=min(ordinals), end=max(ordinals) + 1)
        async with aclosing(stream) as records:
            async for record in records:
                if record.rollout_id == rollout_id:
                    found.setdefault((rollout_id, record.ordinal), []).append(record.raw)
    return found


# -- the wire ----------------------------------------------------------------------------------------------------------


def _wire_entry(entry: AuditEntry, raw: dict[tuple[str, int], list[bytes]]) -> wire.AuditEntry:
    place = entry.position
    lines = raw.get((place.rollout_id, place.ordinal), []) if entry.type is not None else []
    return wire.AuditEntry(
        rollout_id=place.rollout_id,
        ordinal=place.ordinal,
        timestamp=entry.timestamp,
        type=entry.type,
        event=entry.event,
        label=entry.label,
        fault=entry.fault,
        model=_fate(entry.model),
        client=_fate(entry.client),
        baseline=_fate(entry.baseline),
        turn_id=entry.items[0][0] if entry.items else None,
        item_ids=tuple(item_id for _, item_id in entry.items),
        raw=b"\n".join(lines).decode("utf-8", "replace") if lines else None,
    )


def _fate(verdict: Verdict) -> wire.AuditFate:
    if verdict.reason is None:
        return wire.AuditFate(in_force=True)
    by = verdict.by
    place = None if by is None else LogPosition(rollout_id=by.rollout_id, ordinal=by.ordinal)
    return wire.AuditFate(in_force=False, reason=verdict.reason.value, by=place)
