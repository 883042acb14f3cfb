"""Notifications that the server sends: one model per method, and the table of all of them (`wire` §4).

Who is subscribed to what is decided by `events/`; the table only says what kind of event each one is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import StrictInt

from unspool_protocol.base import ExtendedWireModel, WireModel
from unspool_protocol.following import ThreadReplayCompletedNotification
from unspool_protocol.settings import ThreadSettings, ThreadStatus
from unspool_protocol.threads import ReadState, Thread
from unspool_protocol.turns import (
    ErrorParams,
    ItemCompletedParams,
    ItemStartedParams,
    ThreadNameParams,
    ThreadQueueChanged,
    TokenUsageParams,
    TurnParams,
)


class ThreadStartedNotification(WireModel):
    """A thread was started or forked; its turns are left out."""

    thread: Thread


class ThreadStatusChangedNotification(WireModel):
    """A thread was loaded, became active or idle, failed, or was unloaded."""

    thread_id: str
    status: ThreadStatus


class _ThreadNotification(WireModel):
    thread_id: str


class ThreadArchivedNotification(_ThreadNotification):
    """A thread went to the archive."""


class ThreadUnarchivedNotification(_ThreadNotification):
    """A thread came back from the archive."""


class ThreadDeletedNotification(_ThreadNotification):
    """A thread's files are gone."""


class ThreadClosedNotification(_ThreadNotification):
    """A thread was unloaded; nothing more comes for it until somebody resumes it."""


class ThreadGoalClearedNotification(_ThreadNotification):
    """A thread has no goal; told after every `thread/resume`."""


class ThreadNameUpdatedNotification(ThreadNameParams):
    """A thread got a name."""


class ThreadReadStateChangedNotification(WireModel):
    """What of a thread counts as read has changed."""

    thread_id: str
    read_state: ReadState


class ThreadRevertedNotification(ExtendedWireModel):
    """A thread's present moved to another branch; clients read its turns anew.

    Attributes:
        reason: Addition: which operation it was.
        turn_ids: Addition: the turns that went.
        restored_turn_ids: Addition: the turns that came back, by an undo or a restore.
    """

    additions: ClassVar[frozenset[str]] = frozenset({"reason", "turnIds", "restoredTurnIds"})

    thread_id: str
    reason: Literal["rollback", "undo", "revert", "restore"] | None = None
    turn_ids: tuple[str, ...] | None = None
    restored_turn_ids: tuple[str, ...] | None = None


class ThreadQueueChangedNotification(ThreadQueueChanged):
    """Addition: the inputs that wait for a turn of their own have changed."""


class ThreadSettingsUpdatedNotification(WireModel):
    """Settings for the next turns have changed."""

    thread_id: str
    thread_settings: ThreadSettings


class ThreadTokenUsageUpdatedNotification(TokenUsageParams):
    """Tokens used so far."""


class TurnStartedNotification(TurnParams):
    """A turn began; `turn.started_at` is set."""


class TurnCompletedNotification(TurnParams):
    """A turn ended; it carries its last agent message only. `turn.durability` is an addition."""


class ItemStartedNotification(ItemStartedParams):
    """An item began."""


class ItemCompletedNotification(ItemCompletedParams):
    """An item is whole and recorded."""


class _DeltaNotification(WireModel):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class ItemAgentMessageDeltaNotification(_DeltaNotification):
    """More text of the agent message that is being written."""


class ItemCommandExecutionOutputDeltaNotification(_DeltaNotification):
    """More output of the command that is running."""


class ItemCommandExecutionTerminalInteractionNotification(WireModel):
    """The model wrote to a running command."""

    thread_id: str
    turn_id: str
    item_id: str
    process_id: str
    stdin: str


class ItemReasoningSummaryPartAddedNotification(WireModel):
    """Another part of a reasoning summary begins."""

    thread_id: str
    turn_id: str
    item_id: str
    summary_index: int


class ItemReasoningSummaryTextDeltaNotification(_DeltaNotification):
    """More text of a reasoning summary."""

    summary_index: int = 0


class ItemReasoningTextDeltaNotification(_DeltaNotification):
    """More raw reasoning text."""

    content_index: int = 0


class ItemMcpToolCallProgressNotification(WireModel):
    """What an MCP server says while it works on a call."""

    thread_id: str
    turn_id: str
    item_id: str
    message: str


class McpServerStartupStatusUpdatedNotification(WireModel):
    """How the start of an MCP server goes that the thread uses; `error` says why it failed."""

    thread_id: str | None = None
    name: str
    environment_id: str | None = None
    status: Literal["starting", "ready", "failed", "cancelled"]
    error: str | None = None
    failure_reason: str | None = None


class ErrorNotification(ErrorParams):
    """A turn's model call failed."""


class WarningNotification(ExtendedWireModel):
    """Something is less than perfect; the thread goes on.

    Attributes:
        thread_id: The thread concerned.
        code: Addition: stable, for programs (DESIGN §4).
        rollout_id: Addition: the log file concerned.
        ordinals: Addition: the records concerned (legacy logs: line indices), at most 50.
        effect: Addition: what it means for the thread, in one sentence.
    """

    additions: ClassVar[frozenset[str]] = frozenset({"code", "rolloutId", "ordinals", "effect"})

    thread_id: str | None = None
    message: str
    code: str | None = None
    rollout_id: str | None = None
    ordinals: tuple[int, ...] | None = None
    effect: str | None = None


class DeprecationNoticeNotification(WireModel):
    """The client uses something that has a better replacement."""

    summary: str
    details: str | None = None


class ServerRequestResolvedNotification(WireModel):
    """A request of the server was answered or withdrawn; nobody needs to answer it any more."""

    thread_id: str
    request_id: StrictInt | str


class AccountRateLimitsUpdatedNotification(WireModel):
    """Rate limits of the model service, where it tells them."""

    rate_limits: Mapping[str, Any]


class RemoteControlStatusChangedNotification(WireModel):
    """Told once after `initialize`: remote control does not exist here, so it is always `disabled`.

    Attributes:
        installation_id: Names this process, not the machine; it changes with every start.
    """

    status: str = "disabled"
    server_name: str = "unspool"
    installation_id: str
    environment_id: str | None = None


class ServerDrainingNotification(WireModel):
    """Addition: the server is about to end; it lets no new turn begin.

    Attributes:
        deadline_ms: Milliseconds from now until turns that still run are interrupted.
    """

    deadline_ms: int


class ConnectionClosingNotification(WireModel):
    """Addition: the last message of a connection that the server ends; the client may come back.

    Attributes:
        reason: `shutdown`: the server ends, or is started anew. `slowClient`: the client is too far behind and asked to
            be disconnected then.
        cursors: For each thread that the client follows, the newest event that it was sent: `replay.after` of its next
            `thread/resume`.
    """

    reason: Literal["shutdown", "slowClient"]
    cursors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NotificationKind:
    """One row of the table.

    Attributes:
        recorded: It follows from a log record, so it can be replayed after a restart; others are ephemeral.
        broadcast: Every initialised connection gets it, subscribed or not.
    """

    name: str
    params: type[WireModel]
    recorded: bool
    broadcast: bool = False

    @property
    def ephemeral(self) -> bool:
        """It exists in memory only."""
        return not self.recorded


_Group = Mapping[str, type[WireModel]]


def _kinds() -> tuple[NotificationKind, ...]:
    recorded: _Group = {
        "turn/started": TurnStartedNotification,
        "turn/completed": TurnCompletedNotification,
        "item/started": ItemStartedNotification,
        "item/completed": ItemCompletedNotification,
        "thread/tokenUsage/updated": ThreadTokenUsageUpdatedNotification,
        "thread/reverted": ThreadRevertedNotification,
        "thread/queue/changed": ThreadQueueChangedNotification,
        "error": ErrorNotification,
    }
    recorded_broadcast: _Group = {
        "thread/name/updated": ThreadNameUpdatedNotification,
    }
    ephemeral: _Group = {
        "item/agentMessage/delta": ItemAgentMessageDeltaNotification,
        "item/commandExecution/outputDelta": ItemCommandExecutionOutputDeltaNotification,
        "item/reasoning/summaryPartAdded": ItemReasoningSummaryPartAddedNotification,
        "item/commandExecution/terminalInteraction": ItemCommandExecutionTerminalInteractionNotification,
        "item/reasoning/summaryTextDelta": ItemReasoningSummaryTextDeltaNotification,
        "item/reasoning/textDelta": ItemReasoningTextDeltaNotification,
        "item/mcpToolCall/progress": ItemMcpToolCallProgressNotification,
        "mcpServer/startupStatus/updated": McpServerStartupStatusUpdatedNotification,
        "thread/settings/updated": ThreadSettingsUpdatedNotification,
        "warning": WarningNotification,
        "deprecationNotice": DeprecationNoticeNotification,
        "serverRequest/resolved": ServerRequestResolvedNotification,
        "account/rateLimits/updated": AccountRateLimitsUpdatedNotification,
        "thread/goal/cleared": ThreadGoalClearedNotification,
        "thread/replay/completed": ThreadReplayCompletedNotification,
    }
    ephemeral_broadcast: _Group = {
        "thread/started": ThreadStartedNotification,
        "thread/status/changed": ThreadStatusChangedNotification,
        "thread/readState/changed": ThreadReadStateChangedNotification,
        "thread/archived": ThreadArchivedNotification,
        "thread/unarchived": ThreadUnarchivedNotification,
        "thread/deleted": ThreadDeletedNotification,
        "thread/closed": ThreadClosedNotification,
        "server/draining": ServerDrainingNotification,
        "connection/closing": ConnectionClosingNotification,
        "remoteControl/status/changed": RemoteControlStatusChangedNotification,
    }
    groups = (
        (recorded, True, False),
        (recorded_broadcast, True, True),
        (ephemeral, False, False),
        (ephemeral_broadcast, False, True),
    )
    return tuple(
        NotificationKind(name, model, rec, all_) for models, rec, all_ in groups for name, model in models.items()
    )


NOTIFICATIONS: Mapping[str, NotificationKind] = {kind.name: kind for kind in _kinds()}
"""Every notification by method name, in step with the recorded kinds of `history/`.

`item/started` counts as recorded although only that of a user message follows from a record; other items are known to
the log by their end alone.
"""
