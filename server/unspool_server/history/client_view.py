"""The client's view of a thread: records in, turns and notifications out (05 §1, DESIGN §6).

One incremental fold serves live threads and replay alike, in both log modes. It never raises: ill-shaped payloads are
passed over. Recorded kinds: `turn/started`, `item/started` (user messages), `item/completed`, `error`,
`thread/tokenUsage/updated`, `turn/completed`, `thread/name/updated`, `thread/reverted`, `thread/queue/changed`.
Everything else that clients
see (deltas, status, starts of other items) is not in the log. Which records are in force is decided elsewhere (spans).
"""

from collections.abc import Callable, Mapping
from typing import Any

from unspool_protocol.base import WireModel
from unspool_protocol.cursors import EventCursor
from unspool_protocol.items import ReasoningItem, ThreadItem, UserMessageItem
from unspool_protocol.log import HistoryMode, Record, RecordType
from unspool_protocol.turns import (
    ErrorParams,
    ItemCompletedParams,
    ItemStartedParams,
    ItemsView,
    ThreadNameParams,
    ThreadRevertedParams,
    TokenUsage,
    TokenUsageParams,
    Turn,
    TurnParams,
    TurnStatus,
)

from .boundaries import is_instruction_boundary, starts_with_summary_prefix
from .checkpoints import checkpoint_of, rolled_back_turns
from .event_shapes import ClientEvent, inherited_usage, token_usage, turn_error
from .fields import EMPTY, count_of, list_of, object_of, role_of, text_of
from .item_shapes import wire_item
from .legacy_events import LEGACY_ITEM_EVENTS, REASONING_EVENTS, legacy_item
from .partial_items import grown
from .queue import queue_change
from .turn_draft import TurnDraft, epoch_ms
from .turn_ledger import TurnLedger
from .view_marks import BoundaryMarks

REVERTING_BRANCHES = frozenset({"rollback", "undo", "revert", "restore"})
"""Reasons of a branch that changes a thread's own past; a fork begins another thread."""

BEHIND_RECORD = 1 << 52
"""A cursor's counter behind every event of a record and every delta that was shown while it was the newest one."""

_HARMLESS_ERRORS = frozenset({"thread_rollback_failed", "active_turn_not_steerable"})
"""Errors about a request, not about the turn they were recorded in: its status stays."""


class ClientView:
    """Folds a thread's records, oldest first, into turns, and says what each record tells clients.

    Args:
        obeys_markers: Whether `thread_rolled_back` markers are carried out here, by counting boundaries as the model
            view does. False when the caller leaves out the records that such markers removed (`client_turns`).

    Attributes:
        placed: Turn and item ids of what the newest record put into turns.
    """

    def __init__(self, thread_id: str, mode: HistoryMode, *, obeys_markers: bool = True) -> None:
        self.thread_id = thread_id
        self.mode = mode
        self.current_draft: TurnDraft | None = None
        self.obeys_markers = obeys_markers
        self._ledger = TurnLedger()
        self._marks = BoundaryMarks()
        self._next_item = 1
        self._inherited: TokenUsage | None = None
        self._events: list[ClientEvent] = []
        self.placed: list[tuple[str, str]] = []
        self._record = Record("", 0, "", {})
        self._stand_behind(self._record)

    @property
    def turns(self) -> list[Turn]:
        """Finished turns and the current one, oldest first, with all items; forgotten ones are missing."""
        drafts = [*self._ledger.finished, *([self.current_draft] if self.current_draft else [])]
        return [draft.turn() for draft in drafts if not draft.is_void]

    @property
    def current(self) -> Turn | None:
        """The open turn with all its items, or None."""
        return self.current_draft.turn() if self.current_draft else None

    @property
    def next_item_id(self) -> str:
        """The id that the next recorded item without an id of its own will get."""
        return f"item-{self._next_item}"

    def begin_behind(self, header: Record) -> None:
        """Know what a header of the thread's own says, also where reading starts behind it. Tells nothing."""
        if header.payload.get("id") == self.thread_id:
            self._inherited = inherited_usage(header)

    def forget_finished(self) -> None:
        """Drop the items of finished turns. Of each turn only its id and item count stay, for markers still to come."""
        self._ledger.forget()

    def apply(self, record: Record) -> list[ClientEvent]:
        """Fold one record in and return its events, in order; their cursors count from 0.

        The end of a turn that was cut off comes first, with a cursor behind the record before this one (`settle`).
        """
        self._stand_behind(self._record)
        self._events, self._record, self.placed = [], record, []
        if (object_of(record.extra, "unspool") or EMPTY).get("opened") is True:
            self._finish()  # its writer found the turn open, and said so when the thread was loaded (`settle`)
        if record.type == RecordType.EVENT_MSG:
            self._apply_event(record.event or "", record.payload)
        elif record.type in (RecordType.RESPONSE_ITEM, RecordType.INTER_AGENT):
            self._note_boundary(record)
        elif record.type == RecordType.PARTIAL_MESSAGE:
            self._apply_partial(record.payload)
        elif record.type == RecordType.COMPACTED:
            self._apply_checkpoint(record)
        elif record.type == RecordType.SESSION_META:
            self._apply_header(record)
        if (change := queue_change(record, self.thread_id)) is not None:
            self._emit("thread/queue/changed", change)
        return self._events

    def settle(self) -> list[ClientEvent]:
        """The log was read to its end and no turn of it runs: end an open turn as cut off, and say so.

        The event's cursor lies behind everything that clients could see of the newest record, deltas included. A fold
        that goes on reading instead gives the same event when it meets the next turn.
        """
        self._stand_behind(self._record)
        self._events = []
        self._finish()
        return self._events

    def _stand_behind(self, record: Record) -> None:
        """Remember place and time of what a turn that is cut off ends with: both are those of its last record."""
        self._behind = EventCursor(record.rollout_id, record.ordinal, BEHIND_RECORD)
        self._behind_ms = epoch_ms(record.timestamp)

    # -- events of the log ---------------------------------------------------------------------------------------------

    def _apply_event(self, event: str, payload: Mapping[str, Any]) -> None:
        if event in LEGACY_ITEM_EVENTS:
            self._legacy_item(event, payload)
        elif (handler := _HANDLERS.get(event)) is not None:
            handler(self, payload)

    def _task_started(self, payload: Mapping[str, Any]) -> None:
        self._finish()
        self._marks.settle()
        turn_id = text_of(payload, "turn_id")
        draft = TurnDraft(turn_id or self._made_up_id(), explicit=turn_id is not None)
        draft.root_turn_id = text_of(payload, "root_turn_id")
        draft.started_at = count_of(payload, "started_at") or self._seconds()
        self._open(draft)

    def _task_complete(self, payload: Mapping[str, Any]) -> None:
        draft = self._ended(text_of(payload, "turn_id"))
        if draft is not None and draft.status is TurnStatus.IN_PROGRESS:
            draft.error = turn_error(object_of(payload, "error"))
            draft.status = TurnStatus.FAILED if draft.error else TurnStatus.COMPLETED
            self._close(draft, payload)
        elif draft is self.current_draft and draft is not None:
            self._close(draft, payload)

    def _turn_aborted(self, payload: Mapping[str, Any]) -> None:
        draft = self._ended(text_of(payload, "turn_id"))
        if draft is not None and (draft is self.current_draft or draft.status is not TurnStatus.INTERRUPTED):
            draft.status = TurnStatus.INTERRUPTED
            self._close(draft, payload)

    def _item_completed(self, payload: Mapping[str, Any]) -> None:
        recorded = object_of(payload, "item") or {}
        completed = count_of(payload, "completed_at_ms")
        if completed is None:
            completed = epoch_ms(self._record.timestamp)
        item = wire_item(recorded, count_of(payload, "started_at_ms") or completed, completed)
        if item is None or (item.type == "plan" and not getattr(item, "text", "")):
            return
        self._add(item, text_of(payload, "turn_id"))

    def _apply_partial(self, payload: Mapping[str, Any]) -> None:
        """Text of an item that is not whole yet; clients had it as deltas. They are told when its turn is cut off."""
        draft, item_id = self.current_draft, text_of(payload, "item_id") or ""
        if draft is None or draft.id != text_of(payload, "turn_id") or draft.holds(item_id):
            return
        item = grown(draft.partial.get(item_id), payload, epoch_ms(self._record.timestamp))
        if item is not None:
            draft.partial[item_id] = item
            self.placed.append((draft.id, item_id))

    def _legacy_item(self, event: str, payload: Mapping[str, Any]) -> None:
        item = legacy_item(payload, self.next_item_id, epoch_ms(self._record.timestamp))
        if item is None:
            return
        if event in REASONING_EVENTS and self._extends_reasoning(item, REASONING_EVENTS[event]):
            return
        current = self.current_draft
        if event == "user_message" and current and not current.explicit and (current.items or not current.compacted):
            self._finish()
        if item.id == self.next_item_id:
            self._next_item += 1
        self._add(item, text_of(payload, "turn_id"))

    def _extends_reasoning(self, item: ThreadItem, member: str) -> bool:
        """Join consecutive reasoning events in one item, which is then complete again with one part more."""
        last = self.current_draft.items[-1] if self.current_draft and self.current_draft.items else None
        if not isinstance(last, ReasoningItem) or not isinstance(item, ReasoningItem):
            return False
        parts = {member: (*getattr(last, member), *getattr(item, member)), "completed_at_ms": item.completed_at_ms}
        self._add(last.model_copy(update=parts), None)
        return True

    def _error(self, payload: Mapping[str, Any]) -> None:
        error = turn_error(payload)
        draft = self.current_draft
        if error is None or draft is None or text_of(payload, "codex_error_info") in _HARMLESS_ERRORS:
            return
        draft.status, draft.error = TurnStatus.FAILED, error
        self._emit("error", ErrorParams(error=error, thread_id=self.thread_id, turn_id=draft.id))

    def _token_count(self, payload: Mapping[str, Any]) -> None:
        info = object_of(payload, "info")
        turn_id = self._newest_turn_id()
        if info is None or turn_id is None:
            return
        usage = token_usage(info)
        if usage is not None:
            params = TokenUsageParams(
                thread_id=self.thread_id, turn_id=turn_id, token_usage=usage, inherited=self._inherited
            )
            self._emit("thread/tokenUsage/updated", params)

    def _name_updated(self, payload: Mapping[str, Any]) -> None:
        if text_of(payload, "thread_id") not in (None, self.thread_id):
            return  # its source's name, which a fork does not inherit
        name = text_of(payload, "thread_name") or text_of(payload, "name")
        self._emit("thread/name/updated", ThreadNameParams(thread_id=self.thread_id, thread_name=name))

    def _rolled_back(self, payload: Mapping[str, Any]) -> None:
        self._finish()
        removed: tuple[str, ...] = ()
        cut = self._marks.cut(rolled_back_turns(self._record)) if self.obeys_markers else None
        if cut is not None:
            removed = self._ledger.cut(*cut)
        self._next_item = self._ledger.item_count + 1
        ours = object_of(self._record.extra, "unspool") or object_of(payload, "unspool") or EMPTY
        self._tell_reverted(text_of(ours, "branch") or "rollback", _turn_ids(ours) or removed)

    # -- other records -------------------------------------------------------------------------------------------------

    def _note_boundary(self, record: Record) -> None:
        if record.type == RecordType.INTER_AGENT or is_instruction_boundary(record.payload):
            self._marks.model_item(self._here())
        elif role_of(record.payload) == "assistant":
            self._marks.settle()

    def _apply_checkpoint(self, record: Record) -> None:
        checkpoint = checkpoint_of(record)
        if checkpoint is None:
            return
        if checkpoint.restores is not None:
            restore = checkpoint.restores
            self._finish()
            self._next_item = restore.next_item or self._next_item
            self._tell_reverted(restore.reason, restore.turn_ids, restore.restored_turn_ids)
            return
        self._marks.settle()
        draft = self._ensure()
        draft.compacted = True
        if checkpoint.replacement is None and not starts_with_summary_prefix(checkpoint.message):
            self._marks.model_item(self._here())
            self._marks.settle()

    def _apply_header(self, record: Record) -> None:
        self.begin_behind(record)
        ours = object_of(record.extra, "unspool")
        reason = text_of(ours, "branch") if ours else None
        if ours is None or reason not in REVERTING_BRANCHES:
            return
        gone = _turn_ids(ours)
        if self.current_draft and self.current_draft.id in gone:
            self.current_draft = None
        self._finish()  # a turn that was cut off before the part that was left
        self._ledger.remove(gone)
        self._tell_reverted(reason, gone, _turn_ids(ours, "restoredTurnIds"))

    def _tell_reverted(self, reason: str | None, gone: tuple[str, ...], back: tuple[str, ...] = ()) -> None:
        params = ThreadRevertedParams(
            thread_id=self.thread_id, reason=reason, turn_ids=gone, restored_turn_ids=back or None
        )
        self._emit("thread/reverted", params)

    # -- turns ---------------------------------------------------------------------------------------------------------

    def _open(self, draft: TurnDraft) -> TurnDraft:
        self.current_draft = draft
        params = TurnParams(thread_id=self.thread_id, turn=draft.turn(ItemsView.NOT_LOADED))
        self._emit("turn/started", params)
        return draft

    def _ensure(self) -> TurnDraft:
        """The current turn; without one, a turn that this record opens."""
        return self.current_draft or self._open(TurnDraft(self._made_up_id(), explicit=False))

    def _finish(self) -> None:
        """End the current turn because something else begins."""
        draft = self.current_draft
        if draft is None:
            return
        draft.settle()
        self._retire(draft, self._behind)

    def _close(self, draft: TurnDraft, payload: Mapping[str, Any]) -> None:
        draft.started_at = draft.started_at or count_of(payload, "started_at")
        draft.completed_at = count_of(payload, "completed_at") or self._seconds()
        draft.duration_ms = count_of(payload, "duration_ms")
        self._retire(draft)

    def _retire(self, draft: TurnDraft, cursor: EventCursor | None = None) -> None:
        if draft is self.current_draft:
            self.current_draft = None
            if draft.is_void:
                return
            self._ledger.finished.append(draft)
        if draft.silent:
            return
        for item in draft.cut_off:
            self._tell_item(item, draft.id, cursor)
            cursor = cursor and EventCursor(cursor.rollout_id, cursor.ordinal, cursor.counter + 1)
        params = TurnParams(thread_id=self.thread_id, turn=draft.turn(ItemsView.SUMMARY))
        self._emit("turn/completed", params, cursor)

    def _ended(self, turn_id: str | None) -> TurnDraft | None:
        """The turn that an end record means: the one it names, else the current one."""
        current = self.current_draft
        if turn_id is None or (current and current.id == turn_id):
            return current
        return self._ledger.find(turn_id) or (None if self._ledger.knows(turn_id) else current)

    def _add(self, item: ThreadItem, turn_id: str | None) -> None:
        """Put an item into the turn it names, also a finished one, else into the current turn."""
        current = self.current_draft
        named = turn_id or (current.id if current else None)
        if named is None:
            draft: TurnDraft | None = self._ensure()
        elif current and current.id == named:
            draft = current
        else:
            draft = self._ledger.find(named)
            if draft is None and current is None and not self._ledger.knows(named):
                draft = self.current_draft = TurnDraft(named, explicit=True, silent=True)
        if isinstance(item, UserMessageItem) and draft is self.current_draft:
            self._marks.client_item(self._here())
        if draft is not None:
            draft.put(item)
            self.placed.append((draft.id, item.id))
        self._tell_item(item, draft.id if draft else str(named))

    def _tell_item(self, item: ThreadItem, turn_id: str, cursor: EventCursor | None = None) -> None:
        now = (epoch_ms(self._record.timestamp) if cursor is None else self._behind_ms) or 0
        started, completed = item.started_at_ms or now, item.completed_at_ms or now
        ids = {"thread_id": self.thread_id, "turn_id": turn_id}
        if isinstance(item, UserMessageItem):
            begun = item.model_copy(update={"completed_at_ms": None})
            self._emit("item/started", ItemStartedParams(item=begun, started_at_ms=started, **ids))
        self._emit("item/completed", ItemCompletedParams(item=item, completed_at_ms=completed, **ids), cursor)

    def _here(self) -> tuple[int, int]:
        return len(self._ledger), len(self.current_draft.items) if self.current_draft else 0

    def _newest_turn_id(self) -> str | None:
        current = self.current_draft
        return current.id if current and not current.silent else self._ledger.newest_id

    def _made_up_id(self) -> str:
        return f"rollout-{self._record.ordinal}"

    def _seconds(self) -> int | None:
        moment = epoch_ms(self._record.timestamp)
        return None if moment is None else moment // 1000

    def _emit(self, method: str, params: WireModel, cursor: EventCursor | None = None) -> None:
        own = sum(event.cursor.ordinal == self._record.ordinal for event in self._events)
        place = cursor or EventCursor(self._record.rollout_id, self._record.ordinal, own)
        self._events.append(ClientEvent(method, params, place))


_HANDLERS: Mapping[str, Callable[[ClientView, Mapping[str, Any]], None]] = {
    "task_started": ClientView._task_started,
    "turn_started": ClientView._task_started,
    "task_complete": ClientView._task_complete,
    "turn_complete": ClientView._task_complete,
    "turn_aborted": ClientView._turn_aborted,
    "item_completed": ClientView._item_completed,
    "error": ClientView._error,
    "token_count": ClientView._token_count,
    "thread_name_updated": ClientView._name_updated,
    "thread_rolled_back": ClientView._rolled_back,
}


def _turn_ids(ours: Mapping[str, Any], key: str = "turnIds") -> tuple[str, ...]:
    """The turns that a record of ours names."""
    return tuple(turn_id for turn_id in list_of(ours, key) or () if isinstance(turn_id, str))
