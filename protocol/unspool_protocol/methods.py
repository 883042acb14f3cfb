"""The one table of methods: names, shapes, and which need the experimental capability (`wire` §6).

Handlers are registered against it; the schema command and the client read it. A method outside it is unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from unspool_protocol import (
    audit_methods,
    command_methods,
    findings,
    following,
    mcp_methods,
    queue_methods,
    server_methods,
    startup,
    threads,
    time_travel,
    turn_methods,
)
from unspool_protocol.base import WireModel


@dataclass(frozen=True, slots=True)
class Method:
    """One method.

    Attributes:
        params: None where `params` may be missing or null (`configRequirements/read`).
        experimental: Refused without `capabilities.experimentalApi`.
        ours: An addition to the reference's protocol.
    """

    name: str
    params: type[WireModel] | None
    result: type[WireModel]
    experimental: bool = False
    ours: bool = False
    doc: str = ""


_STARTUP = (
    Method("initialize", startup.InitializeParams, startup.InitializeResult, doc="Introduce the client."),
    Method("model/list", startup.ModelListParams, startup.ModelListResult, doc="List models."),
    Method("account/read", startup.AccountReadParams, startup.AccountReadResult, doc="Tell that no login is needed."),
    Method("config/read", startup.ConfigReadParams, startup.ConfigReadResult, doc="Read the settings in force."),
    Method("configRequirements/read", None, startup.ConfigRequirementsReadResult, doc="Read settings set from above."),
    Method("getAuthStatus", startup.AnyParams, startup.GetAuthStatusResult, doc="Tell that nobody needs to log in."),
    Method(
        "account/bedrock/checkGovCloudRequirements",
        startup.AnyParams,
        startup.CheckGovCloudRequirementsResult,
        doc="Nothing to warn of.",
    ),
    Method(
        "mcpServerStatus/list",
        mcp_methods.McpServerStatusListParams,
        mcp_methods.McpServerStatusListResult,
        doc="List MCP servers with their tools; servers that do not run are started.",
    ),
    Method(
        "config/mcpServer/reload",
        startup.AnyParams,
        mcp_methods.McpServerReloadResult,
        doc="End all MCP servers; turns start them anew.",
    ),
    Method(
        "rpc.discover",
        None,
        startup.DiscoverResult,
        ours=True,
        doc="Addition: describe all methods as an OpenRPC document.",
    ),
    Method("plugin/list", startup.AnyParams, startup.PluginListResult, doc="List no plugins."),
    Method("plugin/installed", startup.AnyParams, startup.PluginInstalledResult, doc="List no plugins."),
    Method(
        "account/rateLimits/read",
        startup.AnyParams,
        startup.RateLimitsReadResult,
        doc="Refused: there is no account that could have limits.",
    ),
)

_THREADS = (
    Method("thread/start", threads.ThreadStartParams, threads.ThreadStartResult, doc="Start a thread."),
    Method("thread/resume", threads.ThreadResumeParams, threads.ThreadResumeResult, doc="Open a thread and follow it."),
    Method(
        "thread/fork", threads.ThreadForkParams, threads.ThreadForkResult, doc="Start a thread from another's past."
    ),
    Method("thread/read", threads.ThreadReadParams, threads.ThreadReadResult, doc="Read a thread without opening it."),
    Method(
        "thread/turns/list", threads.ThreadTurnsListParams, threads.ThreadTurnsListResult, doc="Page through turns."
    ),
    Method(
        "thread/items/list", threads.ThreadItemsListParams, threads.ThreadItemsListResult, doc="Page through items."
    ),
    Method("thread/list", threads.ThreadListParams, threads.ThreadListResult, doc="List and search threads."),
    Method(
        "thread/loaded/list", threads.ThreadLoadedListParams, threads.ThreadLoadedListResult, doc="List live threads."
    ),
)

_CHANGES = (
    Method("thread/name/set", threads.ThreadNameSetParams, threads.ThreadNameSetResult, doc="Name a thread."),
    Method(
        "thread/archive",
        threads.ThreadArchiveParams,
        threads.ThreadArchiveResult,
        doc="Put a thread into the archive.",
    ),
    Method(
        "thread/unarchive",
        threads.ThreadUnarchiveParams,
        threads.ThreadUnarchiveResult,
        doc="Take a thread out of the archive.",
    ),
    Method(
        "thread/delete",
        threads.ThreadDeleteParams,
        threads.ThreadDeleteResult,
        doc="Remove a thread's files.",
    ),
    Method(
        "thread/unsubscribe",
        threads.ThreadUnsubscribeParams,
        threads.ThreadUnsubscribeResult,
        doc="Stop following a thread.",
    ),
    Method(
        "thread/inject_items",
        threads.ThreadInjectItemsParams,
        threads.ThreadInjectItemsResult,
        doc="Append raw items to the model's history.",
    ),
    Method(
        "thread/compact/start",
        threads.ThreadCompactStartParams,
        threads.ThreadCompactStartResult,
        doc="Let the model summarise the history.",
    ),
    Method(
        "thread/revert",
        threads.ThreadRevertParams,
        threads.ThreadRevertResult,
        doc="Drop a turn and all later ones.",
    ),
    Method(
        "thread/compact",
        threads.ThreadCompactParams,
        threads.ThreadCompactResult,
        ours=True,
        doc="Addition: put a given summary in place of the older history.",
    ),
    Method(
        "thread/rollback",
        threads.ThreadRollbackParams,
        threads.ThreadRollbackResult,
        ours=True,
        doc="Addition: drop the newest turns, by number.",
    ),
    Method(
        "thread/rollback/undo",
        threads.ThreadRollbackUndoParams,
        threads.ThreadRollbackUndoResult,
        ours=True,
        doc="Addition: bring back what the newest rollback dropped.",
    ),
    Method(
        "thread/subscribe",
        following.ThreadSubscribeParams,
        following.ThreadSubscribeResult,
        ours=True,
        doc="Addition: watch a thread without loading it or keeping it loaded.",
    ),
    Method(
        "thread/replay/next",
        following.ThreadReplayNextParams,
        following.ThreadReplayNextResult,
        ours=True,
        doc="Addition: let a stepwise replay go on.",
    ),
    Method(
        "thread/verify",
        findings.ThreadVerifyParams,
        findings.ThreadVerifyResult,
        ours=True,
        doc="Addition: check a thread's log for damage.",
    ),
    Method(
        "thread/restore",
        time_travel.ThreadRestoreParams,
        time_travel.ThreadRestoreResult,
        ours=True,
        doc="Addition: make an earlier point of any branch the present again.",
    ),
    Method(
        "thread/context",
        time_travel.ThreadContextParams,
        time_travel.ThreadContextResult,
        ours=True,
        doc="Addition: read exactly what the model sees, at any point.",
    ),
    Method(
        "thread/diff",
        time_travel.ThreadDiffParams,
        time_travel.ThreadDiffResult,
        ours=True,
        doc="Addition: compare two points of a thread, or of two related threads.",
    ),
    Method(
        "thread/audit",
        audit_methods.ThreadAuditParams,
        audit_methods.ThreadAuditResult,
        ours=True,
        doc="Addition: page through every line of a log with what became of it.",
    ),
    Method(
        "thread/branches",
        audit_methods.ThreadBranchesParams,
        audit_methods.ThreadBranchesResult,
        ours=True,
        doc="Addition: list every rollout of a thread and why it exists.",
    ),
    Method(
        "thread/lineage",
        audit_methods.ThreadLineageParams,
        audit_methods.ThreadLineageResult,
        ours=True,
        doc="Addition: show the tree of forks, agents and branches around a thread.",
    ),
    Method(
        "thread/metadata/update",
        threads.ThreadMetadataUpdateParams,
        threads.ThreadMetadataUpdateResult,
        doc="Change git facts or the project.",
    ),
    Method(
        "thread/readState/update",
        threads.ThreadReadStateUpdateParams,
        threads.ThreadReadStateUpdateResult,
        doc="Mark a thread as read or unread.",
    ),
    Method(
        "thread/goal/get",
        threads.ThreadGoalGetParams,
        threads.ThreadGoalGetResult,
        doc="Tell that a thread has no goal.",
    ),
    Method("thread/goal/set", threads.ThreadGoalSetParams, threads.ThreadGoalSetResult, doc="Refused: no goals here."),
    Method(
        "thread/goal/clear",
        threads.ThreadGoalClearParams,
        threads.ThreadGoalClearResult,
        doc="Clear what is not there.",
    ),
    Method(
        "thread/settings/update",
        threads.ThreadSettingsUpdateParams,
        threads.ThreadSettingsUpdateResult,
        doc="Change settings for the turns to come.",
    ),
)

_COMMANDS = (
    Method(
        "thread/shellCommand",
        command_methods.ThreadShellCommandParams,
        command_methods.ThreadShellCommandResult,
        doc="Run a command of the user's own.",
    ),
    Method(
        "thread/backgroundTerminals/list",
        command_methods.ThreadBackgroundTerminalsListParams,
        command_methods.ThreadBackgroundTerminalsListResult,
        doc="List commands that are still running.",
    ),
    Method(
        "thread/backgroundTerminals/clean",
        command_methods.ThreadBackgroundTerminalsCleanParams,
        command_methods.ThreadBackgroundTerminalsCleanResult,
        doc="End all of them.",
    ),
    Method(
        "thread/backgroundTerminals/terminate",
        command_methods.ThreadBackgroundTerminalsTerminateParams,
        command_methods.ThreadBackgroundTerminalsTerminateResult,
        doc="End one of them.",
    ),
)

_TURNS = (
    Method("turn/start", turn_methods.TurnStartParams, turn_methods.TurnStartResult, doc="Run a turn, or join one."),
    Method(
        "turn/steer", turn_methods.TurnSteerParams, turn_methods.TurnSteerResult, doc="Add input to a running turn."
    ),
    Method(
        "turn/settings/update",
        threads.TurnSettingsUpdateParams,
        threads.TurnSettingsUpdateResult,
        doc="Change settings for the turns to come.",
    ),
    Method(
        "turn/interrupt", turn_methods.TurnInterruptParams, turn_methods.TurnInterruptResult, doc="Stop a running turn."
    ),
    Method(
        "thread/queue/list",
        queue_methods.ThreadQueueListParams,
        queue_methods.ThreadQueueListResult,
        doc="List the inputs that wait for a turn of their own.",
    ),
    Method(
        "thread/queue/update",
        queue_methods.ThreadQueueUpdateParams,
        queue_methods.ThreadQueueChangeResult,
        ours=True,
        doc="Addition: change a waiting input, or move it.",
    ),
    Method(
        "thread/queue/remove",
        queue_methods.ThreadQueueRemoveParams,
        queue_methods.ThreadQueueChangeResult,
        ours=True,
        doc="Addition: take a waiting input out.",
    ),
    Method(
        "thread/queue/resume",
        queue_methods.ThreadQueueResumeParams,
        queue_methods.ThreadQueueChangeResult,
        ours=True,
        doc="Addition: go on with a paused queue.",
    ),
)

EMPTY_LISTS = (
    "hooks/list",
    "skills/list",
    "collaborationMode/list",
    "app/list",
    "experimentalFeature/list",
    "permissionProfile/list",
    "project/list",
    "threadSection/list",
)
"""Lists of things that this server does not have; the answer is an empty page."""

_EMPTY = tuple(
    Method(
        name,
        startup.AnyParams,
        startup.EmptyListResult,
        experimental=name == "collaborationMode/list",
        doc="List nothing.",
    )
    for name in EMPTY_LISTS
)

_SERVER = (
    Method(
        "server/diagnostics",
        server_methods.ServerDiagnosticsParams,
        server_methods.ServerDiagnosticsResult,
        ours=True,
        doc="Addition: tell who the server is and how it does.",
    ),
    Method(
        "server/shutdown",
        None,
        server_methods.ServerShutdownResult,
        ours=True,
        doc="Addition: end the server in order.",
    ),
)

METHODS: Mapping[str, Method] = {
    method.name: method for method in (*_STARTUP, *_THREADS, *_CHANGES, *_COMMANDS, *_TURNS, *_SERVER, *_EMPTY)
}
"""Every method by name."""

EXPERIMENTAL_FIELDS: Mapping[str, frozenset[str]] = {
    "thread/start": frozenset({"dynamicTools", "historyMode", "environments", "permissions"}),
    "thread/resume": frozenset({"initialTurnsPage", "history", "path", "permissions"}),
    "thread/fork": frozenset({"path", "permissions"}),
}
"""Fields that are refused without the experimental capability, unless null (`wire` §2).

Only those that the reference is known to refuse or that its documentation marks; refusing more would break clients.
"""


def experimental_field(method: str, params: Mapping[str, object]) -> str | None:
    """The first member of `params` that needs the experimental capability, None where there is none."""
    gated = EXPERIMENTAL_FIELDS.get(method, frozenset())
    return next((name for name, value in params.items() if value is not None and name in gated), None)
