"""A turn while it is being put together from records, and the times in records (05 §1)."""

from dataclasses import dataclass, field
from datetime import datetime

from unspool_protocol.items import AgentMessageItem, ThreadItem, UserMessageItem
from unspool_protocol.turns import ItemsView, Turn, TurnError, TurnStatus

from .partial_items import is_partial


@dataclass(slots=True)
class TurnDraft:
    """A turn under construction.

    Attributes:
        explicit: It has a start record; otherwise its id is made up from the record that opened it.
        compacted: A checkpoint stands in it, so that it counts even without an item.
        silent: Its start was not among the records, only something that names it: clients are not told that it began.
        partial: Text of items that are not whole yet, by item id. It counts as no item; a turn that comes to its own
            good end leaves it behind, any other shows it last.
    """

    id: str
    explicit: bool
    root_turn_id: str | None = None
    status: TurnStatus = TurnStatus.IN_PROGRESS
    items: list[ThreadItem] = field(default_factory=list)
    error: TurnError | None = None
    started_at: int | None = None
    completed_at: int | None = None
    duration_ms: int | None = None
    compacted: bool = False
    silent: bool = False
    partial: dict[str, ThreadItem] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    @property
    def is_void(self) -> bool:
        """True for a turn that nobody started and nothing happened in: it is not shown."""
        return not self.items and not self.explicit and not self.compacted

    def put(self, item: ThreadItem) -> None:
        """Add an item, or replace the one that has its id, or take the place of its partial text."""
        self.partial.pop(item.id, None)
        if item.id in self._seen:
            for index in range(len(self.items) - 1, -1, -1):
                if self.items[index].id == item.id:
                    self.items[index] = item
                    return
        self._seen.add(item.id)
        self.items.append(item)

    def holds(self, item_id: str) -> bool:
        """Whether the turn has this item, whole."""
        return item_id in self._seen

    @property
    def cut_off(self) -> tuple[ThreadItem, ...]:
        """The partial texts that the turn shows."""
        return () if self.status is TurnStatus.COMPLETED else tuple(self.partial.values())

    def settle(self) -> None:
        """Give a turn that just stops its status: an explicit one was cut off, an implicit one never had an end."""
        if self.status is TurnStatus.IN_PROGRESS:
            self.status = TurnStatus.INTERRUPTED if self.explicit else TurnStatus.COMPLETED

    def turn(self, view: ItemsView = ItemsView.FULL) -> Turn:
        """The turn as it stands, with all its items, with none, or with its last answer (`turn/completed`)."""
        shown: tuple[ThreadItem, ...] = (*self.items, *self.cut_off) if view is ItemsView.FULL else ()
        if view is ItemsView.SUMMARY:
            shown = last_answer(self.items)
            view = ItemsView.SUMMARY if shown else ItemsView.NOT_LOADED
        return Turn(
            id=self.id,
            root_turn_id=self.root_turn_id or self.id,
            items=shown,
            items_view=view,
            status=self.status,
            error=self.error,
            started_at=self.started_at,
            completed_at=self.completed_at,
            duration_ms=self.duration_ms,
        )


def last_answer(items: list[ThreadItem] | tuple[ThreadItem, ...]) -> tuple[ThreadItem, ...]:
    """The last assistant message of a turn's items, as a tuple of at most one; one that was cut off is no answer."""
    whole = (item for item in reversed(items) if isinstance(item, AgentMessageItem) and not is_partial(item))
    return next(((item,) for item in whole), ())


def first_input(items: list[ThreadItem] | tuple[ThreadItem, ...]) -> tuple[ThreadItem, ...]:
    """The first user message of a turn's items, as a tuple of at most one."""
    return next(((item,) for item in items if isinstance(item, UserMessageItem)), ())


def epoch_ms(timestamp: str) -> int | None:
    """A record's timestamp in milliseconds since the epoch; None where it is none."""
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return round(moment.timestamp() * 1000)
