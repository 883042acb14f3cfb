"""The settings in force for the next turn, and the newest token counts (07 §0, 03 §8).

Removing turns does not undo settings, so survival plays no part here: the newest record counts, also when its turn was
rolled back. What a log does not say is None, and then the configuration decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unspool_protocol.log import Record, RecordType

from .checkpoints import settings_of
from .fields import EMPTY, list_of, object_of, text_of


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """What the log says about the next turn.

    Attributes:
        approval_policy: A name or an object, as recorded.
        sandbox_policy: Raw, as old writers recorded it.
        permission_profile: Raw, as newer writers record it.
        turn_sandbox, turn_approval_policy: Raw, of the newest turn, where no applied settings were ever recorded. They
            never widen what the configuration allows, but they may narrow it.
        token_info: `info` of the newest `token_count` that has one: total and last usage, window.
        dynamic_tools: Tool declarations of the header, raw.
    """

    model: str | None = None
    model_provider: str | None = None
    cwd: str | None = None
    workspace_roots: tuple[str, ...] | None = None
    approval_policy: str | Mapping[str, Any] | None = None
    approvals_reviewer: str | None = None
    sandbox_policy: Mapping[str, Any] | None = None
    permission_profile: Mapping[str, Any] | None = None
    turn_sandbox: Mapping[str, Any] | None = None
    turn_approval_policy: str | Mapping[str, Any] | None = None
    effort: str | None = None
    reasoning_summary: str | None = None
    personality: str | None = None
    service_tier: str | None = None
    collaboration_mode: Mapping[str, Any] | None = None
    base_instructions: str | None = None
    dynamic_tools: tuple[Mapping[str, Any], ...] | None = None
    token_info: Mapping[str, Any] | None = None


def applied_settings(record: Record) -> Mapping[str, Any] | None:
    """The settings of a `thread_settings_applied` event, None for any other record."""
    return object_of(record.payload, "thread_settings") if record.event == "thread_settings_applied" else None


def turn_context_of(record: Record) -> Mapping[str, Any] | None:
    """The payload of a readable `turn_context`, None for any other record."""
    readable = record.type == RecordType.TURN_CONTEXT and settings_of(record.payload) is not None
    return record.payload if readable else None


def token_info_of(record: Record) -> Mapping[str, Any] | None:
    """The counts of a `token_count` event, None for any other record and for one without counts."""
    return object_of(record.payload, "info") if record.event == "token_count" else None


def effective_settings(records: Sequence[Record]) -> EffectiveSettings:
    """Read the state for the next turn (07 §0).

    The model comes from the newest of `turn_context` and applied settings; cwd and everything about permissions only
    from applied settings (the cwd of `turn_context` is not used), the cwd else from the header.

    Args:
        records: As for `reconstruct`: whole or bounded, the thread's own `session_meta` in front.
    """
    applied = context = token_info = newest = None
    for record in reversed(records):
        if applied is None and (applied := applied_settings(record)) is not None:
            newest = newest or applied
        if context is None and (context := turn_context_of(record)) is not None:
            newest = newest or context
        token_info = token_info if token_info is not None else token_info_of(record)
        if applied is not None and context is not None and token_info is not None:
            break
    header = records[0].payload if records and records[0].type == RecordType.SESSION_META else EMPTY
    return _combined(header, applied or EMPTY, context or EMPTY, newest or EMPTY, token_info)


def _combined(
    header: Mapping[str, Any],
    applied: Mapping[str, Any],
    context: Mapping[str, Any],
    newest: Mapping[str, Any],
    token_info: Mapping[str, Any] | None,
) -> EffectiveSettings:
    return EffectiveSettings(
        model=text_of(newest, "model") or text_of(applied, "model") or text_of(context, "model"),
        model_provider=text_of(applied, "model_provider_id") or text_of(header, "model_provider"),
        cwd=text_of(applied, "cwd") or text_of(header, "cwd"),
        workspace_roots=_texts(applied, "runtime_workspace_roots"),
        approval_policy=_policy(applied),
        approvals_reviewer=text_of(applied, "approvals_reviewer"),
        sandbox_policy=object_of(applied, "sandbox_policy"),
        permission_profile=object_of(applied, "permission_profile"),
        turn_sandbox=None if applied else _turn_sandbox(context),
        turn_approval_policy=None if applied else _policy(context),
        effort=text_of(newest, "effort") or text_of(newest, "reasoning_effort") or _mode_effort(newest),
        reasoning_summary=text_of(newest, "summary")
        or text_of(newest, "reasoning_summary")
        or text_of(context, "summary"),
        personality=text_of(newest, "personality") or text_of(context, "personality"),
        service_tier=text_of(newest, "service_tier"),
        collaboration_mode=object_of(newest, "collaboration_mode"),
        base_instructions=_instructions(header),
        dynamic_tools=_tools(header),
        token_info=token_info,
    )


def _turn_sandbox(context: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return object_of(context, "permission_profile") or object_of(context, "sandbox_policy")


def _mode_effort(source: Mapping[str, Any]) -> str | None:
    """Applied settings hold the effort in their collaboration mode only."""
    mode = object_of(source, "collaboration_mode") or EMPTY
    return text_of(object_of(mode, "settings") or EMPTY, "reasoning_effort")


def _texts(source: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    values = list_of(source, key)
    return None if values is None else tuple(value for value in values if isinstance(value, str))


def _policy(applied: Mapping[str, Any]) -> str | Mapping[str, Any] | None:
    return text_of(applied, "approval_policy") or object_of(applied, "approval_policy")


def _instructions(header: Mapping[str, Any]) -> str | None:
    held = object_of(header, "base_instructions")
    return text_of(header, "base_instructions") if held is None else text_of(held, "text")


def _tools(header: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...] | None:
    tools = list_of(header, "dynamic_tools")
    return None if tools is None else tuple(tool for tool in tools if isinstance(tool, Mapping))
