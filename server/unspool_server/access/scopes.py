"""Which scope each method takes. A method without a row takes the highest, and a test fails until it has one."""

from collections.abc import Mapping
from typing import Any

from unspool_protocol.methods import EMPTY_LISTS
from unspool_protocol.thread_object import ThreadOverrides

from unspool_server.access.principal import Principal, Scope
from unspool_server.errors import Forbidden, OwnersOnly

_READ = (
    "model/list",
    "account/read",
    "config/read",
    "configRequirements/read",
    "getAuthStatus",
    "account/bedrock/checkGovCloudRequirements",
    "plugin/list",
    "plugin/installed",
    "mcpServerStatus/list",
    "rpc.discover",
    "thread/resume",
    "thread/read",
    "thread/turns/list",
    "thread/items/list",
    "thread/list",
    "thread/loaded/list",
    "thread/unsubscribe",
    "thread/subscribe",
    "thread/replay/next",
    "thread/verify",
    "thread/context",
    "thread/diff",
    "thread/audit",
    "thread/branches",
    "thread/lineage",
    "thread/readState/update",
    "thread/goal/get",
    "account/rateLimits/read",
    "thread/backgroundTerminals/list",
    "thread/queue/list",
    *EMPTY_LISTS,
)
_WRITE = (
    "thread/goal/set",
    "thread/goal/clear",
    "turn/settings/update",
    "thread/start",
    "thread/fork",
    "thread/name/set",
    "thread/archive",
    "thread/unarchive",
    "thread/inject_items",
    "thread/compact/start",
    "thread/compact",
    "thread/revert",
    "thread/rollback",
    "thread/rollback/undo",
    "thread/restore",
    "thread/metadata/update",
    "thread/settings/update",
    "thread/shellCommand",
    "thread/backgroundTerminals/clean",
    "thread/backgroundTerminals/terminate",
    "thread/queue/update",
    "thread/queue/remove",
    "thread/queue/resume",
    "turn/start",
    "turn/steer",
    "turn/interrupt",
)
_ADMIN = ("thread/delete", "config/mcpServer/reload", "server/diagnostics", "server/shutdown")

METHOD_SCOPES: Mapping[str, Scope] = {
    **dict.fromkeys(_READ, Scope.READ),
    **dict.fromkeys(_WRITE, Scope.WRITE),
    **dict.fromkeys(_ADMIN, Scope.ADMIN),
}
"""Every method but `initialize`, which needs none."""

OWNERS_ONLY = frozenset({"config/mcpServer/reload", "server/diagnostics", "server/shutdown"})
"""About the server as a whole, and so about every tenant's threads: no token of a named tenant may do these."""

CHANGING_FIELDS: Mapping[str, frozenset[str]] = {
    "thread/resume": frozenset(field.alias or name for name, field in ThreadOverrides.model_fields.items()),
}
"""Members that make a method of readers one of writers: following a thread is not changing its settings."""


def scope_of(method: str, params: Any) -> Scope:
    """What a request takes; `params` as they came."""
    scope = METHOD_SCOPES.get(method, Scope.ADMIN)
    changing = CHANGING_FIELDS.get(method, frozenset())
    given = params if isinstance(params, Mapping) else {}
    if scope is Scope.READ and any(given.get(name) is not None for name in changing):
        return Scope.WRITE
    return scope


def check_scope(principal: Principal, method: str, params: Any) -> None:
    """Raises Forbidden, which names the scope that is missing, or says that no scope of a named tenant will do."""
    scope = scope_of(method, params)
    if not principal.may(scope):
        raise Forbidden(method, scope)
    if principal.tenant and method in OWNERS_ONLY:
        raise OwnersOnly(method)
