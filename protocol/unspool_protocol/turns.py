"""Turns as clients see them, and the notifications about turns and items (`wire` §4, §5).

Times of turns are seconds since the epoch, durations milliseconds; times of items are milliseconds since the epoch.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from unspool_protocol.base import ExtendedWireModel, OpenWireModel, WireModel
from unspool_protocol.items import ThreadItem


class TurnStatus(StrEnum):
    """Where a turn stands. A stored turn without an end is `INTERRUPTED` unless it runs in this process (05 §1)."""

    IN_PROGRESS = "inProgress"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class ItemsView(StrEnum):
    """How much of a turn's items it carries: none, first user message and last answer, or all."""

    NOT_LOADED = "notLoaded"
    SUMMARY = "summary"
    FULL = "full"


class TurnError(OpenWireModel):
    """Why a turn failed; `codex_error_info` is a word or an object with one key."""

    message: str
    codex_error_info: str | Mapping[str, Any] | None = None
    additional_details: str | None = None
    misalignment: Any = None


class Turn(WireModel):
    """One turn of a thread.

    Attributes:
        durability: Ours: `accepted` when the end of the turn could not be written yet; left out otherwise.
    """

    id: str
    root_turn_id: str | None = None
    items: tuple[ThreadItem, ...] = ()
    items_view: ItemsView = ItemsView.FULL
    status: TurnStatus = TurnStatus.IN_PROGRESS
    error: TurnError | None = None
    started_at: int | None = None
    completed_at: int | None = None
    duration_ms: int | None = None
    durability: Literal["accepted"] | None = None

    @model_serializer(mode="wrap")
    def _without_absent_durability(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shape: dict[str, Any] = handler(self)
        if shape.get("durability", "") is None:
            del shape["durability"]
        return shape


class TurnParams(WireModel):
    """`turn/started` and `turn/completed`."""

    thread_id: str
    turn: Turn


class ItemStartedParams(WireModel):
    """`item/started`."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    started_at_ms: int


class ItemCompletedParams(WireModel):
    """`item/completed`."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    content_token_count: int | None = None
    completed_at_ms: int


class ErrorParams(WireModel):
    """`error`: a failure of a turn's model call; with `will_retry` the turn goes on."""

    error: TurnError
    will_retry: bool = False
    thread_id: str
    turn_id: str


class TokenUsage(WireModel):
    """Tokens of one response or of a whole thread."""

    total_tokens: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0


class ThreadTokenUsage(WireModel):
    """`total` over the thread, `last` of the newest response; the window in tokens."""

    total: TokenUsage
    last: TokenUsage
    model_context_window: int | None = None


class TokenUsageParams(ExtendedWireModel):
    """`thread/tokenUsage/updated`.

    Attributes:
        inherited: Addition: how much of the total a fork had when it began; what is beyond was used by the fork itself.
    """

    additions: ClassVar[frozenset[str]] = frozenset({"inherited"})

    thread_id: str
    turn_id: str
    token_usage: ThreadTokenUsage
    inherited: TokenUsage | None = None


class ThreadNameParams(WireModel):
    """`thread/name/updated`."""

    thread_id: str
    thread_name: str | None = None


class ThreadRevertedParams(ExtendedWireModel):
    """`thread/reverted`; beside the thread's id everything is ours: why, the turns that went, those that came back."""

    additions: ClassVar[frozenset[str]] = frozenset({"restoredTurnIds"})

    thread_id: str
    reason: str | None = None
    turn_ids: tuple[str, ...] = ()
    restored_turn_ids: tuple[str, ...] | None = None


class QueuedTurn(WireModel):
    """An input that waits.

    Attributes:
        turn_id: The id that its turn will have.
        input: As the client gave it.
    """

    queue_id: str
    turn_id: str
    input: tuple[Mapping[str, Any], ...] = ()
    client_user_message_id: str | None = None


QueueChange = Literal["added", "updated", "moved", "removed", "started", "paused", "resumed"]
"""What happened to a queue."""


class ThreadQueueChanged(WireModel):
    """Addition: the queue of a thread has changed.

    Attributes:
        change: `started`: the input's turn has taken it in. `paused` and `resumed` are about the whole queue.
        queue_id: The input concerned.
        position: Its new place from the front, where it has one that is not the end.
        entry: The input as it is now, when it was added, updated or moved.
    """

    thread_id: str
    change: QueueChange
    queue_id: str | None = None
    position: int | None = None
    entry: QueuedTurn | None = None
