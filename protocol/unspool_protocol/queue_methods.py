"""Inputs that wait for a turn of their own: how clients list and change them (additions, except the list's name)."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StrictInt

from unspool_protocol.base import ExtendedWireModel, WireModel
from unspool_protocol.thread_changes import ThreadChangeParams
from unspool_protocol.turn_methods import TurnInput
from unspool_protocol.turns import QueuedTurn


class ThreadQueueListParams(WireModel):
    """`thread/queue/list`."""

    thread_id: str | None = None


class ThreadQueueListResult(ExtendedWireModel):
    """Addition: the waiting inputs, the next one first; everything is in one page.

    Attributes:
        paused: A turn was interrupted or failed: nothing of the queue runs before the next `turn/start` or
            `thread/queue/resume`. Left out when false.
    """

    additions: ClassVar[frozenset[str]] = frozenset({"paused"})

    data: tuple[QueuedTurn, ...] = ()
    next_cursor: str | None = None
    paused: Literal[True] | None = None


class ThreadQueueUpdateParams(ThreadChangeParams):
    """Addition `thread/queue/update`: change a waiting input, or move it.

    Attributes:
        input: In place of the old one.
        position: From the front, 0 for the next one; beyond the end is the end.
    """

    queue_id: str
    input: tuple[TurnInput, ...] | None = None
    position: Annotated[StrictInt, Field(ge=0)] | None = None


class ThreadQueueRemoveParams(ThreadChangeParams):
    """Addition `thread/queue/remove`: a waiting input is not to run."""

    queue_id: str


class ThreadQueueResumeParams(ThreadChangeParams):
    """Addition `thread/queue/resume`: go on with a paused queue."""


class ThreadQueueChangeResult(ThreadQueueListResult):
    """Addition: the queue after the change."""
