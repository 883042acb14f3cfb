"""Turns with their places in the log, for paging, rollback and fork cuts (05 §8, DESIGN §4).

`TurnGrouper` reads a paginated log backwards and yields whole turns, so that a page costs what it shows; legacy logs,
where turns may lack a start record and markers remove turns, are read as a whole (`turn_slices`). Owns no reading.
"""

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from unspool_protocol.items import UserMessageItem
from unspool_protocol.log import HistoryMode, Position, Record, RecordType
from unspool_protocol.turns import ItemsView, Turn

from .boundaries import is_fork_boundary
from .client_view import ClientView
from .event_shapes import TURN_ENDS, TURN_STARTS
from .fields import flag_of, role_of, text_of
from .state import Span
from .survival import client_survival
from .turn_draft import TurnDraft, first_input, last_answer
from .whole_view import ends_surviving_turn, restored_away, rolled_back_indices


@dataclass(frozen=True, slots=True)
class TurnSlice:
    """A turn and the records it is made of.

    Attributes:
        turn: With all its items; a turn without an end is shown interrupted.
        start: Before its first record: where a cut that removes the turn goes.
        end: Behind its last record: where a cut that keeps the turn goes.
        has_boundary: A user message or a triggering envelope started it; false for compactions and the like.
    """

    turn: Turn
    start: Position
    end: Position
    has_boundary: bool


class TurnGrouper:
    """Groups the records of a paginated log, given newest first, into turns, newest first.

    A turn reaches from its start record to the next one, so records between turns belong to the older turn (03 §3).
    Items and ends that name another turn are kept until that turn is complete; memory is one turn and such strays.
    """

    def __init__(self, thread_id: str, mode: HistoryMode) -> None:
        self._thread_id, self._mode = thread_id, mode
        self._newest_first: list[Record] = []
        self._strays: dict[str, list[Record]] = {}

    def feed(self, record: Record) -> list[TurnSlice]:
        """Take the next older record; returns the turn that it completes, if any."""
        self._newest_first.append(record)
        return self._group() if record.event in TURN_STARTS else []

    def finish(self) -> list[TurnSlice]:
        """The log begins here: returns what the records before the oldest start record show, newest first."""
        return self._group()

    def _group(self) -> list[TurnSlice]:
        records = self._newest_first[::-1]
        self._newest_first = []
        if not records:
            return []
        own = text_of(records[0].payload, "turn_id") if records[0].event in TURN_STARTS else None
        kept = records if own is None else [record for record in records if not self._strayed(record, own)]
        if own is not None:
            kept += self._strays.pop(own, ())[::-1]
        slices = _slices(kept, [], self._thread_id, self._mode)
        ends = _end_of(records)
        return [_stretched(part, records, ends) if own else part for part in reversed(slices)]

    def _strayed(self, record: Record, own: str) -> bool:
        """Set a record aside that belongs to another turn; newer strays come first, as everything here."""
        named = text_of(record.payload, "turn_id")
        if named is None or named == own or record.event not in _ROUTED:
            return False
        self._strays.setdefault(named, []).insert(0, record)
        return True


def turn_slices(
    records: Sequence[Record], thread_id: str, mode: HistoryMode, survival: Sequence[Span] | None = None
) -> list[TurnSlice]:
    """The turns of a whole log that clients see, oldest first; the only way for legacy logs.

    Args:
        survival: The fate of each record in the client's view; computed here when it is not at hand.
    """
    return _slices(records, client_survival(records, mode) if survival is None else survival, thread_id, mode)


def summary_view(turn: Turn) -> Turn:
    """The turn with its first user message and its final answer only."""
    items = (*first_input(turn.items), *last_answer(turn.items))
    return turn.model_copy(update={"items": items, "items_view": ItemsView.SUMMARY})


def without_items(turn: Turn) -> Turn:
    """The turn without its items."""
    return turn.model_copy(update={"items": (), "items_view": ItemsView.NOT_LOADED})


# -- grouping ----------------------------------------------------------------------------------------------------------

_ROUTED = TURN_ENDS | {"item_completed", "exec_command_end", "patch_apply_end", "dynamic_tool_call_response"}
"""Events that name the turn they belong to and may come late (05 §1)."""

_INPUT_ROLES = frozenset({"user", "developer"})


@dataclass(slots=True)
class _Extent:
    """Indices of a turn's first record and of the one behind its last; `ended` at its end record."""

    draft: TurnDraft
    start: int
    end: int
    has_boundary: bool = False
    ended: bool = False


def _slices(records: Sequence[Record], survival: Sequence[Span], thread_id: str, mode: HistoryMode) -> list[TurnSlice]:
    view = ClientView(thread_id, mode, obeys_markers=False)
    gone, forgotten = rolled_back_indices(survival), restored_away(records, survival)
    extents: list[_Extent] = []
    leaving: int | None = None
    for index, record in enumerate(records):
        leaving = None if index == leaving else leaving
        if index in gone and (index in forgotten or not ends_surviving_turn(view, record)):
            if record.event in TURN_STARTS:
                leaving = _put_out_by(survival, index)
            continue
        view.apply(record)
        draft = view.current_draft
        if draft is not None and (not extents or extents[-1].draft is not draft):
            start = index if draft.explicit else _input_start(records, index, gone)
            if extents:
                extents[-1].end = min(extents[-1].end, start)
            extents.append(_Extent(draft, start, index))
        if extents and leaving is None:
            _extend(extents[-1], index, record, view)
    if view.current_draft is not None:
        view.current_draft.settle()
    return [_slice(extent, records) for extent in extents if not extent.draft.is_void]


def _put_out_by(survival: Sequence[Span], index: int) -> int | None:
    """Which record put this one out. Context of a turn that is gone may stay; it belongs to no turn before it."""
    return survival[bisect_right(survival, index, key=lambda span: span.start) - 1].by


def _extend(extent: _Extent, index: int, record: Record, view: ClientView) -> None:
    if record.type == RecordType.SESSION_META or record.event == "thread_rolled_back":
        return
    extent.end = index + 1
    if not extent.ended:
        extent.has_boundary = extent.has_boundary or _begins_turn(record)
    extent.ended = extent.ended or view.current_draft is not extent.draft


def _begins_turn(record: Record) -> bool:
    if record.type == RecordType.INTER_AGENT_METADATA:
        return flag_of(record.payload, "trigger_turn") is True
    return is_fork_boundary(record)


def _input_start(records: Sequence[Record], index: int, gone: frozenset[int]) -> int:
    """Where a turn without start record begins: with the input and context items directly before its event."""
    start = index
    while start > 0 and start - 1 not in gone and _leads_in(records[start - 1]):
        start -= 1
    return start


def _leads_in(record: Record) -> bool:
    if record.type in (RecordType.TURN_CONTEXT, RecordType.WORLD_STATE):
        return True
    return record.type == RecordType.RESPONSE_ITEM and role_of(record.payload) in _INPUT_ROLES


def _slice(extent: _Extent, records: Sequence[Record]) -> TurnSlice:
    last = records[max(extent.end - 1, extent.start)]
    turn = extent.draft.turn()
    said = any(isinstance(item, UserMessageItem) for item in turn.items)
    end = Position(last.rollout_id, last.ordinal + 1)
    return TurnSlice(turn, records[extent.start].position, end, said or extent.has_boundary)


def _end_of(records: Sequence[Record]) -> Position:
    """Behind the last record that is no header: a branch begins a new rollout, not a part of the turn before it."""
    last = next((record for record in reversed(records) if record.type != RecordType.SESSION_META), records[-1])
    return Position(last.rollout_id, last.ordinal + 1)


def _stretched(part: TurnSlice, records: Sequence[Record], end: Position) -> TurnSlice:
    """A turn's slice ends with the group, also when its last records are strays of an older turn."""
    return TurnSlice(part.turn, records[0].position, end, part.has_boundary)


# -- cursors -----------------------------------------------------------------------------------------------------------


class PageScope(StrEnum):
    """What a page cursor counts."""

    TURNS = "turns"
    ITEMS = "itemsByCreatedAtOrdinal"


@dataclass(frozen=True, slots=True)
class PageCursor:
    """A place among a thread's turns or items (05 §8).

    It is a position in the log, so it stays valid when records are appended, the thread is branched or the daemon is
    restarted: paging goes on with what still lies before or behind it.

    Attributes:
        position: Start of the turn that is the anchor.
        item: Number of the anchor item in that turn, for items.
        include_anchor: Whether the page begins with the anchor itself.
    """

    thread_id: str
    position: Position
    include_anchor: bool = False
    scope: PageScope = PageScope.TURNS
    item: int = 0

    def encode(self) -> str:
        """The opaque text that clients keep: URL-safe, without padding."""
        place = self.position
        content = [self.thread_id, place.rollout_id, place.ordinal, self.include_anchor, self.scope.value, self.item]
        text = json.dumps(content, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, thread_id: str, scope: PageScope = PageScope.TURNS) -> Self:
        """The reverse of `encode`.

        Raises:
            ValueError: The text is no cursor of ours, or one of another thread or scope.
        """
        try:
            plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            content: Any = json.loads(plain)
            owner, rollout_id, ordinal, include_anchor, kind, item = content
            cursor = cls(owner, Position(rollout_id, ordinal), include_anchor, PageScope(kind), item)
        except (binascii.Error, UnicodeDecodeError, ValueError, TypeError, RecursionError) as error:
            raise ValueError("not a page cursor") from error
        if not cursor._is_sound():
            raise ValueError("not a page cursor")
        if cursor.thread_id != thread_id or cursor.scope is not scope:
            raise ValueError("a cursor of another thread or list")
        return cursor

    def _is_sound(self) -> bool:
        texts = (self.thread_id, self.position.rollout_id)
        numbers = (self.position.ordinal, self.item)
        return (
            all(isinstance(text, str) and text for text in texts)
            and all(type(number) is int and number >= 0 for number in numbers)
            and isinstance(self.include_anchor, bool)
        )
