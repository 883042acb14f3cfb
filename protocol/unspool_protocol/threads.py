"""Methods on threads (`wire` §5, §6): start, resume, fork and the reading ones; the others are re-exported here.

The thread object is in `thread_object`; methods that change or file away an existing thread are in `thread_changes`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt

from unspool_protocol.base import Flag, KeyedParams, Limit, WireModel
from unspool_protocol.following import Replay
from unspool_protocol.items import ThreadItem
from unspool_protocol.positions import LogPosition
from unspool_protocol.settings import CollaborationMode, SortDirection, ThreadEnvironment
from unspool_protocol.thread_changes import (
    Empty,
    GitInfoUpdate,
    ThreadArchiveParams,
    ThreadArchiveResult,
    ThreadCompactParams,
    ThreadCompactResult,
    ThreadCompactStartParams,
    ThreadCompactStartResult,
    ThreadDeleteParams,
    ThreadDeleteResult,
    ThreadGoalClearParams,
    ThreadGoalClearResult,
    ThreadGoalGetParams,
    ThreadGoalGetResult,
    ThreadGoalSetParams,
    ThreadGoalSetResult,
    ThreadIdParams,
    ThreadInjectItemsParams,
    ThreadInjectItemsResult,
    ThreadMetadataUpdateParams,
    ThreadMetadataUpdateResult,
    ThreadNameSetParams,
    ThreadNameSetResult,
    ThreadReadStateUpdateParams,
    ThreadReadStateUpdateResult,
    ThreadResult,
    ThreadRevertParams,
    ThreadRevertResult,
    ThreadRollbackParams,
    ThreadRollbackResult,
    ThreadRollbackUndoParams,
    ThreadRollbackUndoResult,
    ThreadSettingsUpdateParams,
    ThreadSettingsUpdateResult,
    ThreadUnarchiveParams,
    ThreadUnarchiveResult,
    ThreadUnsubscribeParams,
    ThreadUnsubscribeResult,
    TransformParams,
    TurnSettingsUpdateParams,
    TurnSettingsUpdateResult,
)
from unspool_protocol.thread_object import (
    DynamicTool,
    FunctionTool,
    ReadState,
    Thread,
    ThreadOverrides,
    ThreadSetup,
    ToolNamespace,
)
from unspool_protocol.turns import ItemsView, Turn

__all__ = [
    "DynamicTool",
    "Empty",
    "FunctionTool",
    "GitInfoUpdate",
    "ReadState",
    "Replay",
    "Thread",
    "ThreadArchiveParams",
    "ThreadArchiveResult",
    "ThreadCompactParams",
    "ThreadCompactResult",
    "ThreadCompactStartParams",
    "ThreadCompactStartResult",
    "ThreadDeleteParams",
    "ThreadDeleteResult",
    "ThreadForkParams",
    "ThreadForkResult",
    "ThreadGoalClearParams",
    "ThreadGoalClearResult",
    "ThreadGoalGetParams",
    "ThreadGoalGetResult",
    "ThreadGoalSetParams",
    "ThreadGoalSetResult",
    "ThreadIdParams",
    "ThreadInjectItemsParams",
    "ThreadInjectItemsResult",
    "ThreadItemEntry",
    "ThreadItemsListParams",
    "ThreadItemsListResult",
    "ThreadListParams",
    "ThreadListResult",
    "ThreadLoadedListParams",
    "ThreadLoadedListResult",
    "ThreadMetadataUpdateParams",
    "ThreadMetadataUpdateResult",
    "ThreadNameSetParams",
    "ThreadNameSetResult",
    "ThreadOverrides",
    "ThreadReadParams",
    "ThreadReadResult",
    "ThreadReadStateUpdateParams",
    "ThreadReadStateUpdateResult",
    "ThreadResult",
    "ThreadResumeParams",
    "ThreadResumeResult",
    "ThreadRevertParams",
    "ThreadRevertResult",
    "ThreadRollbackParams",
    "ThreadRollbackResult",
    "ThreadRollbackUndoParams",
    "ThreadRollbackUndoResult",
    "ThreadSettingsUpdateParams",
    "ThreadSettingsUpdateResult",
    "ThreadSetup",
    "ThreadStartParams",
    "ThreadStartResult",
    "ThreadTurnsListParams",
    "ThreadTurnsListResult",
    "ThreadUnarchiveParams",
    "ThreadUnarchiveResult",
    "ThreadUnsubscribeParams",
    "ThreadUnsubscribeResult",
    "ToolNamespace",
    "TransformParams",
    "TurnSettingsUpdateParams",
    "TurnSettingsUpdateResult",
    "TurnsPage",
    "TurnsPageParams",
]


class ThreadStartParams(ThreadOverrides, KeyedParams):
    """`thread/start`. Experimental: `history_mode`, `dynamic_tools`, `environments`, `permissions`."""

    ephemeral: Flag = False
    service_name: str | None = None
    thread_source: str | None = None
    session_start_source: str | None = None
    history_mode: Literal["legacy", "paginated"] | None = None
    dynamic_tools: tuple[DynamicTool, ...] | None = None
    environments: tuple[ThreadEnvironment, ...] | None = None


class ThreadStartResult(ThreadSetup):
    """The new thread; its log appears with the first turn."""


class TurnsPageParams(WireModel):
    """`thread/resume.initialTurnsPage`; newest first and summaries where nothing is said."""

    limit: Limit | None = None
    sort_direction: SortDirection | None = None
    items_view: ItemsView | None = None


class ThreadResumeParams(ThreadOverrides):
    """`thread/resume`. Experimental: `initial_turns_page`, `history`, `path`. Addition: `replay`."""

    thread_id: str
    exclude_turns: Flag = False
    initial_turns_page: TurnsPageParams | None = None
    history: tuple[Any, ...] | None = None
    path: str | None = None
    replay: Replay | None = None


class TurnsPage(WireModel):
    """Some turns of a thread; cursors are opaque, null at the ends."""

    data: tuple[Turn, ...] = ()
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class ThreadResumeResult(ThreadSetup):
    """The thread, live; `thread.turns` is empty where they were excluded."""

    collaboration_mode: CollaborationMode | None = None
    initial_turns_page: TurnsPage | None = None
    turns_backwards_cursor: str | None = None
    items_backwards_cursor: str | None = None


class ThreadForkParams(ThreadOverrides, KeyedParams):
    """`thread/fork`: the child's history ends with `last_turn_id`, or before `before_turn_id`.

    Wherever it is cut, settings that the request does not name are those that the source has now.

    Additions: it ends `at` a position of any branch, never between a call and its output; and it begins so that the
    `last_n_boundaries` newest user messages and triggering agent messages are kept.
    """

    thread_id: str
    last_turn_id: str | None = None
    before_turn_id: str | None = None
    at: LogPosition | None = None
    last_n_boundaries: Annotated[StrictInt, Field(ge=1)] | None = None
    ephemeral: Flag = False
    exclude_turns: Flag = False
    path: str | None = None
    thread_source: str | None = None


class ThreadForkResult(ThreadSetup):
    """The child; its turns keep the ids they have in the parent."""


class ThreadReadParams(WireModel):
    """`thread/read`; works on unloaded and archived threads and subscribes nobody.

    Addition: `at` gives the thread as it was at a position of any of its branches.
    """

    thread_id: str
    include_turns: Flag = False
    at: LogPosition | None = None


class ThreadReadResult(WireModel):
    """The thread as stored."""

    thread: Thread
    read_state: ReadState | None = None


class ThreadTurnsListParams(WireModel):
    """`thread/turns/list`; newest first (`desc`) and `summary` where nothing is said.

    Addition: `at` gives the turns as they were at a position of any branch; give it with every page.
    """

    thread_id: str
    cursor: str | None = None
    limit: Limit | None = None
    sort_direction: SortDirection | None = None
    items_view: ItemsView | None = None
    at: LogPosition | None = None


class ThreadTurnsListResult(TurnsPage):
    """A page of turns."""


class ThreadItemsListParams(WireModel):
    """`thread/items/list`; oldest first (`asc`) where nothing is said. An unknown turn has no items.

    Addition: `at` gives the items as they were at a position of any branch; give it with every page.
    """

    thread_id: str
    turn_id: str | None = None
    cursor: str | None = None
    limit: Limit | None = None
    sort_direction: SortDirection | None = None
    at: LogPosition | None = None


class ThreadItemEntry(WireModel):
    """An item with the turn it belongs to; times are milliseconds since the epoch."""

    turn_id: str
    item: ThreadItem
    started_at_ms: int | None = None
    completed_at_ms: int | None = None


class ThreadItemsListResult(WireModel):
    """A page of items."""

    data: tuple[ThreadItemEntry, ...] = ()
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class ThreadListParams(WireModel):
    """`thread/list`. Null filters filter nothing; an empty list of providers or sources neither."""

    cursor: str | None = None
    limit: Limit | None = None
    sort_key: Literal["created_at", "updated_at", "recency_at", "section_position"] | None = None
    sort_direction: SortDirection | None = None
    model_providers: tuple[str, ...] | None = None
    source_kinds: tuple[str, ...] | None = None
    archived: Flag = False
    cwd: str | tuple[str, ...] | None = None
    search_term: str | None = None
    use_state_db_only: Flag = False
    current_account_only: Flag = False
    included_thread_ids: tuple[str, ...] | None = None
    excluded_thread_ids: tuple[str, ...] | None = None
    originators: tuple[str, ...] | None = None
    section_id: str | None = None
    parent_thread_id: str | None = None
    ancestor_thread_id: str | None = None
    attached_to_thread_id: str | None = None


class ThreadListResult(WireModel):
    """A page of threads without turns, each id once."""

    data: tuple[Thread, ...] = ()
    read_states: Mapping[str, ReadState] = Field(default_factory=dict)
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class ThreadLoadedListParams(WireModel):
    """`thread/loaded/list`."""

    cursor: str | None = None
    limit: Limit | None = None


class ThreadLoadedListResult(WireModel):
    """Ids of the threads that are live in this process."""

    data: tuple[str, ...] = ()
    next_cursor: str | None = None
