"""Additions that explain a thread's log: every record's fate, every rollout, and the tree of threads around it."""

from typing import Literal

from unspool_protocol.base import ExtendedWireModel, Flag, Limit, WireModel
from unspool_protocol.positions import LogPosition

AuditReason = Literal[
    "rollback",
    "revert",
    "restore",
    "branch",
    "forkCut",
    "compaction",
    "superseded",
    "legacyRule",
    "patchWithoutBase",
    "damage",
    "neverModelInput",
    "neverShown",
    "neverBaseline",
]
"""Why a record is out of a view. The three that begin with `never` are about its kind, not about this record."""


class AuditFate(ExtendedWireModel):
    """Addition: what became of a record in one view.

    Attributes:
        in_force: Whether the view has something of this record.
        reason: Why not; left out for records in force.
        by: The record that put it out (a marker, a checkpoint, the header of a branch), where one did.
    """

    additions = frozenset({"reason", "by"})

    in_force: bool
    reason: AuditReason | None = None
    by: LogPosition | None = None


class AuditEntry(ExtendedWireModel):
    """Addition: one line of a log and its fate in each view.

    Attributes:
        ordinal: Of the record; of a line that is no record the one it would have had (legacy logs: line index).
        type: Of the record; null for a line that is none.
        event: Name of an `event_msg`.
        label: What it is, in a few words for people.
        fault: What is wrong with the line, for example `invalidJson`.
        model: Whether the model's history has an item from it.
        client: Whether clients are shown something of it: an item, the start or end of a turn, a name.
        baseline: Whether it is part of the context that the model counts as shown.
        turn_id: The turn that shows its items to clients, and `item_ids` which items these are.
        raw: The line itself, when it was asked for; bytes that are no UTF-8 are replaced.
    """

    additions = frozenset({"event", "fault", "turnId", "raw"})

    rollout_id: str
    ordinal: int
    timestamp: str = ""
    type: str | None = None
    event: str | None = None
    label: str
    fault: str | None = None
    model: AuditFate
    client: AuditFate
    baseline: AuditFate
    turn_id: str | None = None
    item_ids: tuple[str, ...] = ()
    raw: str | None = None


class ThreadAuditParams(WireModel):
    """Addition `thread/audit`: every line of a thread's log and what became of it, a page at a time.

    Attributes:
        rollout_id: The branch to look at, any rollout of the thread (`thread/branches`); the present without it.
        cursor: From an earlier page; it keeps to the branch that page was of.
        limit: Lines of a page; 100 without it, at most 1000.
        sort_direction: Oldest first without it.
        include_raw: Also hand over the lines themselves.
    """

    thread_id: str
    rollout_id: str | None = None
    cursor: str | None = None
    limit: Limit | None = None
    sort_direction: Literal["asc", "desc"] | None = None
    include_raw: Flag = False


class ThreadAuditResult(WireModel):
    """Addition: a page of lines; `rollout_id` is the branch whose views are told, `total` counts all its lines."""

    rollout_id: str | None = None
    data: tuple[AuditEntry, ...] = ()
    total: int = 0
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class ThreadBranch(WireModel):
    """Addition: one rollout of a thread.

    Attributes:
        created_at: Seconds since the epoch.
        why: `start`, `fork`, `rollback`, `revert`, `undo`, `restore`, `materialize`, or another writer's word.
        turn_ids: The turns that it left behind, oldest first, where it did.
        base: Where its history begins in another rollout; null where it begins here.
        left: Where the thread's present ended when it was made; null for the first one.
        end_ordinal: Behind its last record.
        present: Whether it is the thread's present.
        on_path: Whether the present is built on it.
        reachable: Whether all that it is built on can still be read, so that it can be shown, forked and restored.
    """

    rollout_id: str
    created_at: int | None = None
    why: str
    turn_ids: tuple[str, ...] = ()
    base: LogPosition | None = None
    left: LogPosition | None = None
    end_ordinal: int
    present: bool
    on_path: bool
    reachable: bool
    archived: bool = False


class ThreadBranchesParams(WireModel):
    """Addition `thread/branches`."""

    thread_id: str


class ThreadBranchesResult(WireModel):
    """Addition: every rollout of the thread, oldest first."""

    data: tuple[ThreadBranch, ...] = ()


class LineageBoundary(WireModel):
    """Addition: a place where a thread can be cut.

    Attributes:
        kind: What starts there: input of the user, or a message of another agent that triggers a turn.
        turn_id: The turn that it belongs to, where the log tells.
        position: Of the record itself.
        cut: Where to cut so that it goes with what was recorded for it: its turn's start for the first one of a turn.
        preview: How its text begins.
    """

    kind: Literal["user", "agent"]
    turn_id: str | None = None
    position: LogPosition
    cut: LogPosition
    preview: str


class LineageThread(WireModel):
    """Addition: a thread of the tree.

    Attributes:
        missing: Others name it, but it has no log here.
        rollout_ids: Its log files, oldest first; the last one is its present.
        boundaries: Newest first, inherited ones included; `boundary_cursor` is null behind the oldest one.
    """

    thread_id: str
    name: str | None = None
    preview: str = ""
    created_at: int | None = None
    archived: bool = False
    loaded: bool = False
    missing: bool = False
    rollout_ids: tuple[str, ...] = ()
    boundaries: tuple[LineageBoundary, ...] = ()
    boundary_cursor: str | None = None


class LineageEdge(WireModel):
    """Addition: how one rollout came from another.

    Attributes:
        kind: `fork`, `subAgent` (spawned by a thread), or `segment` (a branch of the same thread).
        at: Where in its origin the newer one begins; null where the log does not tell.
    """

    kind: Literal["fork", "subAgent", "segment"]
    from_thread_id: str
    to_thread_id: str
    to_rollout_id: str
    at: LogPosition | None = None


class ThreadLineageParams(WireModel):
    """Addition `thread/lineage`.

    Attributes:
        boundary_limit: Boundaries of each thread; 20 without it, at most 1000, none with 0.
        cursor: A thread's `boundaryCursor`: the answer holds only that thread, with its next boundaries.
    """

    thread_id: str
    boundary_limit: Limit | None = None
    cursor: str | None = None


class ThreadLineageResult(WireModel):
    """Addition: all threads that are connected with one by forks or agents, oldest first, and how."""

    threads: tuple[LineageThread, ...] = ()
    edges: tuple[LineageEdge, ...] = ()
