"""The method table: every wire method and the function that serves it. `initialize` is the connection's own."""

from collections.abc import Mapping

from unspool_protocol.methods import EMPTY_LISTS, METHODS

from unspool_server.handlers import (
    auditing,
    changing,
    commands,
    keeping,
    mcp,
    opening,
    queueing,
    reading,
    replaying,
    server,
    startup,
    time_travel,
    turns,
    verifying,
)
from unspool_server.handlers.context import Endpoint, Handler

ENDPOINTS: Mapping[str, Endpoint] = {
    "thread/start": opening.thread_start,
    "thread/resume": opening.thread_resume,
    "thread/fork": opening.thread_fork,
    "thread/subscribe": replaying.thread_subscribe,
    "thread/replay/next": replaying.thread_replay_next,
    "thread/read": reading.thread_read,
    "thread/turns/list": reading.thread_turns_list,
    "thread/items/list": reading.thread_items_list,
    "thread/verify": verifying.thread_verify,
    "thread/list": reading.thread_list,
    "thread/loaded/list": reading.thread_loaded_list,
    "thread/compact/start": changing.thread_compact_start,
    "thread/compact": changing.thread_compact,
    "thread/rollback": changing.thread_rollback,
    "thread/rollback/undo": changing.thread_rollback_undo,
    "thread/restore": changing.thread_restore,
    "thread/context": time_travel.thread_context,
    "thread/diff": time_travel.thread_diff,
    "thread/revert": changing.thread_revert,
    "thread/inject_items": changing.thread_inject_items,
    "thread/name/set": changing.thread_name_set,
    "thread/archive": keeping.thread_archive,
    "thread/unarchive": keeping.thread_unarchive,
    "thread/delete": keeping.thread_delete,
    "thread/unsubscribe": keeping.thread_unsubscribe,
    "thread/goal/get": keeping.goal_get,
    "thread/readState/update": keeping.read_state_update,
    "thread/audit": auditing.thread_audit,
    "thread/branches": auditing.thread_branches,
    "thread/lineage": auditing.thread_lineage,
    "thread/metadata/update": keeping.metadata_update,
    "thread/settings/update": changing.thread_settings_update,
    "thread/shellCommand": commands.shell_command,
    "thread/backgroundTerminals/list": commands.terminals_list,
    "thread/backgroundTerminals/clean": commands.terminals_clean,
    "thread/backgroundTerminals/terminate": commands.terminals_terminate,
    "thread/queue/list": queueing.queue_list,
    "thread/queue/update": queueing.queue_update,
    "thread/queue/remove": queueing.queue_remove,
    "thread/queue/resume": queueing.queue_resume,
    "turn/start": turns.turn_start,
    "turn/steer": turns.turn_steer,
    "turn/interrupt": turns.turn_interrupt,
    "model/list": startup.model_list,
    "account/read": startup.account_read,
    "config/read": startup.config_read,
    "configRequirements/read": startup.config_requirements_read,
    "getAuthStatus": startup.auth_status,
    "account/bedrock/checkGovCloudRequirements": startup.gov_cloud,
    "mcpServerStatus/list": mcp.mcp_server_status_list,
    "config/mcpServer/reload": mcp.mcp_server_reload,
    "rpc.discover": startup.discover,
    "plugin/list": startup.no_plugins,
    "plugin/installed": startup.no_plugins,
    "server/diagnostics": server.server_diagnostics,
    "server/shutdown": server.server_shutdown,
    **dict.fromkeys(EMPTY_LISTS, startup.empty_list),
}


def build() -> Mapping[str, Handler]:
    """Every method with the model of its parameters, as the protocol's table names them."""
    return {name: Handler(name, METHODS[name].params, call) for name, call in ENDPOINTS.items()}
