"""Following a thread: how its past is told, and watching it without keeping it loaded (DESIGN §6); all of it ours."""

from typing import Annotated, Literal

from pydantic import Field, StrictInt

from unspool_protocol.base import WireModel
from unspool_protocol.settings import ThreadStatus
from unspool_protocol.thread_object import Thread

ReplayFactor = Annotated[float, Field(gt=0, le=1_000_000, strict=True)]
"""How many times as fast as it happened."""


class Replay(WireModel):
    """Addition: how a resuming client wants to catch up (DESIGN §6).

    Attributes:
        after: The newest event the client has seen; null asks for everything.
        mode: `events`: the events after the cursor follow the answer, marked as replayed. `snapshot`: the answer
            holds the turns, the running one with its text so far, and the stream goes on after `result.cursor`.
        item_kinds: Types of items (`agentMessage`, `commandExecution`, …) whose `item/…` events the replayed part
            brings; events about turns and the thread always come, and so does everything that happens from now on.
        speed: How fast the replayed part comes. `max`: as fast as the client reads. A number: so many times as fast as
            it happened (`real` is 1), never waiting longer than 5 seconds at once. `step`: each event waits until
            `thread/replay/next` grants it. What happens meanwhile waits in the log and nobody else waits. Where a speed
            is given, `thread/replay/completed` follows the last replayed event.
    """

    after: str | None = None
    mode: Literal["events", "snapshot"] = "events"
    item_kinds: tuple[str, ...] | None = None
    speed: Literal["max", "real", "step"] | ReplayFactor | None = None


class ThreadSubscribeParams(WireModel):
    """`thread/subscribe`: watch a thread, loaded or not, without loading it or keeping it loaded.

    The subscription outlives the thread's unloading and loading and ends with `thread/unsubscribe`, with the connection
    or with the thread. It takes no writer lock and gets no server requests. What another process appends to the log is
    told when it is read: at this call, and when this server loads the thread; it is not followed as it happens. A turn
    without an end in the log of a thread that is not loaded counts as cut off, as it does for `thread/read`.

    Attributes:
        after: Short for `replay.after`; left out together with `replay`, only what happens from now on is told.
    """

    thread_id: str
    after: str | None = None
    replay: Replay | None = None


class ThreadSubscribeResult(WireModel):
    """Where the thread stands; events follow this answer.

    Attributes:
        cursor: The thread's newest event; of a snapshot: the place that it shows, after which the stream goes on.
        thread: With `replay.mode` `snapshot`: the thread with its turns, the running one with its text so far.
    """

    cursor: str
    status: ThreadStatus
    thread: Thread | None = None


class ThreadReplayNextParams(WireModel):
    """`thread/replay/next`: let a replay with `speed: "step"` go on by `count` events."""

    thread_id: str
    count: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = 1


class ThreadReplayNextResult(WireModel):
    """How many events were granted: 0 when the replay is over already."""

    granted: int


class ThreadReplayCompletedNotification(WireModel):
    """Addition: the replay that this connection asked for with a `speed` is over; what follows is new."""

    thread_id: str
    cursor: str | None = None
