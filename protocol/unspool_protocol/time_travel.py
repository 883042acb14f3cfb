"""Additions that look at, compare and bring back earlier points of a thread."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from unspool_protocol.base import WireModel
from unspool_protocol.positions import LogPosition
from unspool_protocol.thread_changes import ThreadResult, TransformParams


class ThreadPosition(WireModel):
    """A place in the log of a thread, written out in full; `thread_id` is the thread whose file it is."""

    thread_id: str
    rollout_id: str
    ordinal: int


class ThreadContextParams(WireModel):
    """Addition `thread/context`: what the model would be sent now, or would have been sent at a position."""

    thread_id: str
    at: LogPosition | None = None


class ContextItem(WireModel):
    """One model-visible item.

    Attributes:
        item: Exactly as a request holds it.
        tokens: The estimate: UTF-8 bytes of its texts by four, rounded up.
        position: The record that brought it (a checkpoint for items of a compaction); null for an output that is only
            put in because its call has none.
    """

    item: Mapping[str, Any]
    tokens: int
    position: ThreadPosition | None = None


class ContextWindow(WireModel):
    """The context window in force: how many compactions lie before it, and the ids where the log tells them."""

    number: int = 0
    first_id: str | None = None
    previous_id: str | None = None
    id: str | None = None


class ContextBaseline(WireModel):
    """What the model was already shown, so that the next turn only tells what changed; null parts are told anew."""

    turn_context: Mapping[str, Any] | None = None
    world_state: Mapping[str, Any] | None = None


class ThreadContextResult(WireModel):
    """The exact model-visible items of a thread.

    Attributes:
        at: The position that was asked for, resolved to the file that holds it; the present end without one.
        base_instructions: The leading developer item, which is not part of the recorded history.
        items: The history as the next request would hold it, without the context that the next turn may add.
        total_tokens: Estimate of base instructions and items together.
        settings: Settings in force for the next turn.
        previous_turn_settings: Settings of the newest turn that counts (`model`, …).
        open_turn_id: The turn that was running at that point.
    """

    thread_id: str
    at: ThreadPosition
    base_instructions: ContextItem
    items: tuple[ContextItem, ...] = ()
    total_tokens: int = 0
    settings: Mapping[str, Any] = Field(default_factory=dict)
    previous_turn_settings: Mapping[str, Any] | None = None
    window: ContextWindow = ContextWindow()
    baseline: ContextBaseline = ContextBaseline()
    open_turn_id: str | None = None


class ThreadDiffParams(WireModel):
    """Addition `thread/diff`: what differs between two points of one thread, or of two threads of one lineage.

    Attributes:
        from_: Where to start in this thread (`from` on the wire); its present end without one.
        to: Where to end, in the other thread if one is named; the present end without one.
        other_thread_id: A thread that shares a part of its past with this one.
    """

    thread_id: str
    from_: LogPosition | None = Field(default=None, alias="from")
    to: LogPosition | None = None
    other_thread_id: str | None = None


class DiffItem(WireModel):
    """One item of the raw history and the record that brought it."""

    item: Mapping[str, Any]
    position: ThreadPosition


class ReplacedItems(WireModel):
    """What one record (a compaction) took out of the history, and what it put there.

    Attributes:
        by: The record.
        removed: Items of the first point that are gone because of it.
        added: Items that came with it.
    """

    by: ThreadPosition
    removed: tuple[DiffItem, ...] = ()
    added: tuple[DiffItem, ...] = ()


class ItemsDiff(WireModel):
    """Items by identity of their records, not by text; in the order of the history they are part of."""

    added: tuple[DiffItem, ...] = ()
    removed: tuple[DiffItem, ...] = ()
    replaced: tuple[ReplacedItems, ...] = ()
    kept: int = 0


class SettingChange(WireModel):
    """One setting that differs; null means: not set."""

    name: str
    old: Any = None
    new: Any = None


class TurnsDiff(WireModel):
    """Ids of visible turns; `changed` ones are part of both points, with other items or another status."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class ThreadDiffResult(WireModel):
    """The difference between two points.

    Attributes:
        from_, to: The points, resolved.
        common_ancestor: The newest point that both have in their past; null where a fork copied and shares no record.
        window: `number` of the context window, old and new, where it differs.
    """

    from_: ThreadPosition = Field(alias="from")
    to: ThreadPosition
    common_ancestor: ThreadPosition | None = None
    items: ItemsDiff = ItemsDiff()
    settings: tuple[SettingChange, ...] = ()
    turns: TurnsDiff = TurnsDiff()
    window: SettingChange | None = None


class ThreadRestoreParams(TransformParams):
    """Addition `thread/restore`: make an earlier point of any branch of the thread its present again.

    Attributes:
        at: The point; a rollout that was left by a rollback or a revert may be named.
    """

    at: LogPosition


class ThreadRestoreResult(ThreadResult):
    """Addition: the thread as it is now, with its turns."""
