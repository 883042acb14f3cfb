"""A thread's settings in force: where they come from and how records and answers show them.

Owns the live value only; which record tells them is `history.settings`, their spelling on the wire is the protocol's.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from unspool_protocol.log import NewRecord, RecordType
from unspool_protocol.settings import SandboxMode, SandboxPolicy
from unspool_protocol.settings import WorkspaceWrite as WritePolicy
from unspool_protocol.threads import ThreadOverrides
from unspool_protocol.turn_methods import TurnStartParams

from unspool_server.config import Config
from unspool_server.errors import InvalidParams
from unspool_server.history.settings import EffectiveSettings
from unspool_server.sessions.sandbox import (
    allowed_by_both,
    log_policy,
    permission_profile,
    policy_from_log,
    policy_of_mode,
)


@dataclass(frozen=True, slots=True)
class ThreadSettings:
    """Settings for the next turn. Paths are absolute; `approval_policy` is a word or the `granular` object."""

    model: str
    model_provider: str
    cwd: str
    workspace_roots: tuple[str, ...]
    approval_policy: str | Mapping[str, Any]
    approvals_reviewer: str
    sandbox: SandboxPolicy
    effort: str | None = None
    summary: str | None = None
    personality: str | None = None
    service_tier: str | None = None
    collaboration_mode: Mapping[str, Any] | None = None


def absolute_path(path: str, base: str) -> str:
    """A client's path as it is kept: joined to `base`, without `..` and trailing slash, links unresolved (07 §1)."""
    return os.path.normpath(os.path.join(base, path))  # noqa: PTH118 - text only, the path need not exist


def is_usable_cwd(path: str) -> bool:
    """Whether a recorded working directory is an absolute path on this system (a foreign one is not)."""
    return os.path.isabs(path)  # noqa: PTH117 - text only


def configured(config: Config, overrides: ThreadOverrides, server_cwd: str) -> ThreadSettings:
    """Settings of a new thread: the client's word, else the configuration's."""
    cwd = absolute_path(overrides.cwd or server_cwd, server_cwd)
    base = ThreadSettings(
        model=config.model,
        model_provider=config.model_provider,
        cwd=cwd,
        workspace_roots=(cwd,),
        approval_policy=config.approval_policy,
        approvals_reviewer=config.approvals_reviewer,
        sandbox=configured_sandbox(config),
        effort=config.model_reasoning_effort,
        summary=config.model_reasoning_summary,
        personality=config.personality,
        service_tier=config.service_tier,
    )
    return overridden(base, overrides, config, server_cwd)


def configured_sandbox(config: Config) -> SandboxPolicy:
    """The sandbox that the configuration asks for."""
    return policy_of_mode(config.sandbox_mode, _configured_write(config))


def _configured_write(config: Config) -> WritePolicy:
    write = config.sandbox_workspace_write
    return WritePolicy(
        writable_roots=write.writable_roots,
        network_access=write.network_access,
        exclude_tmpdir_env_var=write.exclude_tmpdir_env_var,
        exclude_slash_tmp=write.exclude_slash_tmp,
    )


def overridden(base: ThreadSettings, overrides: ThreadOverrides, config: Config, server_cwd: str) -> ThreadSettings:
    """`base` with what start, resume or fork asked to change. A new cwd takes its default workspace root along."""
    changes: dict[str, Any] = {
        key: value
        for key in (
            "model", "model_provider", "approval_policy", "approvals_reviewer", "service_tier", "personality"
        )
        if (value := getattr(overrides, key)) is not None
    }  # fmt: skip
    if "approval_policy" in changes:
        changes["approval_policy"] = plain(changes["approval_policy"])
    if overrides.permissions is not None:
        changes["sandbox"] = policy_of_mode(_mode_of_profile(overrides.permissions), _configured_write(config))
    if overrides.sandbox is not None:
        changes["sandbox"] = policy_of_mode(overrides.sandbox, _configured_write(config))
    changes |= _moved(base, overrides.cwd, overrides.runtime_workspace_roots, server_cwd)
    return replace(base, **changes)


_PROFILES: Mapping[str, SandboxMode] = {
    ":read-only": "read-only",
    ":workspace": "workspace-write",
    ":danger-full-access": "danger-full-access",
}
"""The built-in permission profiles, by the sandbox that each of them is."""


def _mode_of_profile(permissions: Any) -> SandboxMode:
    """A profile's sandbox. Raises InvalidParams for any other: it must not end in more freedom than was asked for."""
    try:
        return _PROFILES[permissions]
    except (KeyError, TypeError):
        names = ", ".join(f"`{name}`" for name in _PROFILES)
        text = f"Invalid request: unknown permission profile, expected one of {names}"
        raise InvalidParams(text, data={"field": "permissions"}) from None


def for_turn(base: ThreadSettings, params: TurnStartParams) -> ThreadSettings:
    """`base` with the overrides of one `turn/start`, which stay in force for later turns (`wire` §6)."""
    changes: dict[str, Any] = {
        key: value
        for key in ("model", "effort", "summary", "approvals_reviewer", "personality", "service_tier")
        if (value := getattr(params, key)) is not None
    }
    if params.approval_policy is not None:
        changes["approval_policy"] = plain(params.approval_policy)
    if params.sandbox_policy is not None:
        changes["sandbox"] = params.sandbox_policy
    if params.collaboration_mode is not None:
        changes["collaboration_mode"] = plain(params.collaboration_mode)
        changes["model"] = params.collaboration_mode.settings.model
    changes |= _moved(base, params.cwd, params.runtime_workspace_roots, base.cwd)
    return replace(base, **changes)


def _moved(base: ThreadSettings, cwd: str | None, roots: tuple[str, ...] | None, origin: str) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if cwd is not None:
        changes["cwd"] = absolute_path(cwd, origin)
        if base.workspace_roots == (base.cwd,):
            changes["workspace_roots"] = (changes["cwd"],)
    if roots is not None:
        changes["workspace_roots"] = tuple(absolute_path(root, origin) for root in roots)
    return changes


def recorded(config: Config, found: EffectiveSettings, server_cwd: str) -> ThreadSettings:
    """Settings of a thread as its log tells them; the configuration fills in only what was never recorded (07 §0)."""
    base = configured(config, ThreadOverrides(), server_cwd)
    cwd = found.cwd or base.cwd
    roots = tuple(found.workspace_roots) if found.workspace_roots else (cwd,)
    sandbox = policy_from_log(found.sandbox_policy or found.permission_profile, roots)
    if sandbox is None and (of_turn := policy_from_log(found.turn_sandbox, roots)) is not None:
        # Old writers recorded a turn's sandbox only. The configuration decides as in the reference, but it must not
        # give a thread more than its last turn had.
        sandbox = allowed_by_both(of_turn, base.sandbox)
    return ThreadSettings(
        model=found.model or base.model,
        model_provider=found.model_provider or base.model_provider,
        cwd=cwd,
        workspace_roots=roots,
        approval_policy=found.approval_policy or more_careful(found.turn_approval_policy, base.approval_policy),
        approvals_reviewer=found.approvals_reviewer or base.approvals_reviewer,
        sandbox=sandbox or base.sandbox,
        effort=found.effort,
        summary=found.reasoning_summary if found.reasoning_summary != "none" else None,
        personality=found.personality,
        service_tier=found.service_tier,
        collaboration_mode=found.collaboration_mode,
    )


_APPROVALS = ("untrusted", "on-request", "on-failure", "never")
"""Approval policies, the one that asks most first."""


def more_careful(recorded: str | Mapping[str, Any] | None, default: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
    """The recorded policy of an old log where it asks more often than the default.

    One that cannot be compared counts only where the default is never to ask.
    """
    if recorded is not None and recorded not in _APPROVALS and default == "never":
        return recorded if isinstance(recorded, Mapping) else _APPROVALS[0]
    known = [word for word in _APPROVALS if word in (recorded, default)]
    return known[0] if len(known) == 2 else default


def plain(value: Any) -> Any:
    """A protocol object as JSON would hold it; other values unchanged."""
    return value.model_dump(by_alias=True, mode="json") if hasattr(value, "model_dump") else value


def collaboration(settings: ThreadSettings) -> dict[str, Any]:
    """The collaboration mode that records show; its model and effort follow the settings."""
    given = dict(settings.collaboration_mode or {"mode": "default", "settings": {"developer_instructions": None}})
    inner = dict(given.get("settings") or {})
    inner |= {"model": settings.model, "reasoning_effort": settings.effort}
    inner.setdefault("developer_instructions", None)
    return {**given, "settings": {key: inner[key] for key in sorted(inner, key=_collaboration_order)}}


def _collaboration_order(key: str) -> int:
    order = ("model", "reasoning_effort", "developer_instructions")
    return order.index(key) if key in order else len(order)


def turn_context_record(settings: ThreadSettings, turn_id: str | None) -> NewRecord:
    """The record that claims these settings for a turn (01 §3.4).

    Args:
        turn_id: None outside a turn: an id of no turn would keep readers from seeing where the turn before it begins
            (03 §3, compatible ids).
    """
    payload: dict[str, Any] = {} if turn_id is None else {"turn_id": turn_id, "root_turn_id": turn_id}
    payload |= {
        "disabled_plugin_ids": [],
        "cwd": settings.cwd,
        "approval_policy": settings.approval_policy,
        "approvals_reviewer": settings.approvals_reviewer,
        "permission_profile": permission_profile(settings.sandbox, settings.workspace_roots),
        "model": settings.model,
    }
    if settings.effort is not None:
        payload["effort"] = settings.effort
    if settings.personality is not None:
        payload["personality"] = settings.personality
    payload |= {
        "collaboration_mode": collaboration(settings),
        "multi_agent_version": "disabled",
        "realtime_active": False,
        "summary": settings.summary or "none",
        "sandbox_policy": log_policy(settings.sandbox),
    }
    return NewRecord(RecordType.TURN_CONTEXT, payload)


def settings_record(settings: ThreadSettings, thread_id: str) -> NewRecord:
    """The `thread_settings_applied` event: settings for the turns to come."""
    values: dict[str, Any] = {
        "model": settings.model,
        "model_provider_id": settings.model_provider,
        "approval_policy": settings.approval_policy,
        "approvals_reviewer": settings.approvals_reviewer,
        "requested_approvals_reviewer": settings.approvals_reviewer,
        "permission_profile": permission_profile(settings.sandbox, settings.workspace_roots),
        "cwd": settings.cwd,
        "runtime_workspace_roots": list(settings.workspace_roots),
        "collaboration_mode": collaboration(settings),
        "disabled_plugin_ids": [],
    }
    if settings.service_tier is not None:
        values["service_tier"] = settings.service_tier
    payload = {"type": "thread_settings_applied", "thread_id": thread_id, "thread_settings": values}
    return NewRecord(RecordType.EVENT_MSG, payload)
