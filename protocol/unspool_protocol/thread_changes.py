"""Methods that name, file away, compact, revert or extend an existing thread (`wire` §6), and our additions to them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt

from unspool_protocol.base import ExtendedWireModel, Flag, KeyedParams, WireModel
from unspool_protocol.settings import SandboxPolicy
from unspool_protocol.thread_object import ReadState, Thread, ThreadOverrides


class Empty(WireModel):
    """The answer `{}`."""


class ThreadIdParams(WireModel):
    """Parameters that only name a thread."""

    thread_id: str


class ThreadChangeParams(ThreadIdParams, KeyedParams):
    """Parameters of a call that changes a thread."""


class ThreadResult(WireModel):
    """An answer that only holds the thread."""

    thread: Thread


class ThreadNameSetParams(ThreadChangeParams):
    """`thread/name/set`; a blank name is refused."""

    name: str


class ThreadNameSetResult(Empty):
    """The name is recorded."""


class ThreadArchiveParams(ThreadChangeParams):
    """`thread/archive`."""


class ThreadArchiveResult(Empty):
    """The thread's files are in the archive."""


class ThreadUnarchiveParams(ThreadChangeParams):
    """`thread/unarchive`."""


class ThreadUnarchiveResult(ThreadResult):
    """The thread is back among the others, not loaded."""


class ThreadDeleteParams(ThreadChangeParams):
    """`thread/delete`.

    Attributes:
        dependents: Addition: what happens to threads whose history begins in this one. `refuse` (as without it): they
            keep it from being deleted. `cascade`: they are deleted as well, and theirs. `materialize`: they get a copy
            of what they inherited, and stay.
    """

    dependents: Literal["refuse", "cascade", "materialize"] = "refuse"


class ThreadDeleteResult(ExtendedWireModel):
    """The thread's files are gone. The additions are left out unless `dependents` asked for more than `refuse`.

    Attributes:
        deleted_thread_ids: All threads that were deleted, in order.
        materialized_thread_ids: Threads that stand on their own now.
    """

    additions = frozenset({"deletedThreadIds", "materializedThreadIds"})

    deleted_thread_ids: tuple[str, ...] | None = None
    materialized_thread_ids: tuple[str, ...] | None = None


class ThreadUnsubscribeParams(ThreadIdParams):
    """`thread/unsubscribe`."""


class ThreadUnsubscribeResult(WireModel):
    """What the connection's subscription was."""

    status: Literal["unsubscribed", "notSubscribed", "notLoaded"]


class ThreadInjectItemsParams(ThreadChangeParams):
    """`thread/inject_items`: raw items for the model's history. Their shape is checked by the handler, item by item."""

    items: tuple[Any, ...]


class ThreadInjectItemsResult(Empty):
    """The items are recorded."""


class ThreadCompactStartParams(ThreadChangeParams):
    """`thread/compact/start`; a running turn is interrupted first."""


class ThreadCompactStartResult(Empty):
    """Accepted; a turn of its own follows."""


class ThreadRevertParams(ThreadChangeParams):
    """`thread/revert`: drop this turn and all later ones."""

    before_turn_id: str


class ThreadRevertResult(ThreadResult):
    """The thread without turns, and the cursors of its new end."""

    turns_backwards_cursor: str | None = None
    items_backwards_cursor: str | None = None


class TransformParams(ThreadChangeParams):
    """What our own transformations have in common.

    Attributes:
        interrupt: Interrupt a running turn first; without it a busy thread is refused.
        exclude_turns: Leave `thread.turns` empty in the answer, which then costs nothing of the past; page instead.
    """

    interrupt: Flag = False
    exclude_turns: Flag = False


class ThreadCompactParams(TransformParams):
    """Addition `thread/compact`: put a caller's summary in place of the older history (04 §3.4).

    Attributes:
        summary: The text that stands for what is dropped.
        keep_last: How many of the newest boundaries stay, with all that follows them.
    """

    summary: str
    keep_last: Annotated[StrictInt, Field(ge=0)] = 0


class ThreadCompactResult(ThreadResult):
    """Addition: the thread after the compaction."""


class ThreadRollbackParams(TransformParams):
    """Addition `thread/rollback` (older versions of the reference have it): drop the newest turns.

    Attributes:
        num_turns: How many visible turns with a boundary go (DESIGN §5).
    """

    num_turns: Annotated[StrictInt, Field(ge=1)]


class ThreadRollbackResult(ThreadResult):
    """Addition: the thread with the turns that are left."""


class ThreadRollbackUndoParams(TransformParams):
    """Addition `thread/rollback/undo`: bring back what the newest rollback dropped."""


class ThreadRollbackUndoResult(ThreadResult):
    """Addition: the thread with its turns back."""


class GitInfoUpdate(WireModel):
    """Git facts to replace; absent members stay, null ones are cleared."""

    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class ThreadMetadataUpdateParams(ThreadIdParams):
    """`thread/metadata/update`."""

    git_info: GitInfoUpdate | None = None
    project_id: str | None = None


class ThreadMetadataUpdateResult(ThreadResult):
    """The thread with its new metadata."""


class ThreadReadStateUpdateParams(ThreadIdParams):
    """`thread/readState/update`; `operation` is `{"type": "read"}` and the like."""

    operation: Mapping[str, Any]
    expected_revision: str | None


class ThreadReadStateUpdateResult(WireModel):
    """The new read state."""

    read_state: ReadState


class ThreadGoalGetParams(ThreadIdParams):
    """`thread/goal/get`."""


class ThreadGoalGetResult(WireModel):
    """Goals are not kept here: always null."""

    goal: Mapping[str, Any] | None = None


class ThreadGoalSetParams(ThreadIdParams):
    """`thread/goal/set`; refused, whatever the goal is."""


class ThreadGoalSetResult(ThreadGoalGetResult):
    """Never given: goals are not kept here."""


class ThreadGoalClearParams(ThreadIdParams):
    """`thread/goal/clear`."""


class ThreadGoalClearResult(Empty):
    """There was none."""


class ThreadSettingsUpdateParams(ThreadOverrides, KeyedParams):
    """`thread/settings/update`: settings for the turns to come."""

    thread_id: str
    sandbox_policy: SandboxPolicy | None = None
    effort: str | None = None
    summary: str | None = None


class ThreadSettingsUpdateResult(Empty):
    """The settings are in force."""


class TurnSettingsUpdateParams(ThreadSettingsUpdateParams):
    """`turn/settings/update`: a running turn keeps its settings, the ones after it get these."""


class TurnSettingsUpdateResult(ThreadSettingsUpdateResult):
    """The settings are in force."""
