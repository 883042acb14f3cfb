"""Threads as lists and answers show them (`wire` §5), from a live session or from the catalogue."""

from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any

from unspool_protocol.log import Record, ThreadSummary
from unspool_protocol.settings import NOT_LOADED, GitInfo, ThreadEnvironment
from unspool_protocol.settings import ThreadSettings as WireSettings
from unspool_protocol.thread_object import Thread, ThreadSetup
from unspool_protocol.turns import Turn

from unspool_server.errors import LogMissing
from unspool_server.history.summary import PREVIEW_CHARACTERS, epoch_seconds
from unspool_server.history.tenancy import tenant_of
from unspool_server.history.user_texts import user_text
from unspool_server.sessions.clock import now_s
from unspool_server.sessions.environment import Environment
from unspool_server.sessions.memory import LiveHistory
from unspool_server.sessions.session import Session, ThreadFacts
from unspool_server.sessions.settings import ThreadSettings, collaboration
from unspool_server.store.contract import LogStore, RolloutInfo

_HEAD_RECORDS = 64
"""How far into a log its first user message is looked for."""


async def facts_of_log(env: Environment, store: LogStore, info: RolloutInfo, history: LiveHistory) -> ThreadFacts:
    """What a thread's log says of it beside history and settings, for the price of the log's two ends.

    A name given before the part that `history` holds comes from where the catalogue keeps names.
    """
    known = await env.catalogue.known(info)
    born = await _first_rollout(store, info)
    newest = history.records[-1]
    return ThreadFacts(
        base_instructions="",
        name=_newest_name(history, info.thread_id) or known.name,
        preview=known.preview or await first_text(store, info) or "",
        created_at=seconds_of(born.header),
        updated_at=int(epoch_seconds(newest.timestamp)) or seconds_of(info.header),
        forked_from_id=_fork_of(born),
        tenant=tenant_of(info.header) or tenant_of(born.header),
    )


async def _first_rollout(store: LogStore, info: RolloutInfo) -> RolloutInfo:
    """The rollout that a thread began with: its header tells when, and from which other thread."""
    if info.rollout_id == info.thread_id:
        return info
    rollouts = await store.rollouts(info.thread_id)
    return rollouts[0] if rollouts else info


def _newest_name(history: LiveHistory, thread_id: str) -> str | None:
    for record in reversed(history.records):
        if record.event == "thread_name_updated" and record.payload.get("thread_id") in (None, thread_id):
            return _text(record.payload.get("thread_name"))
    return None


async def first_text(store: LogStore, info: RolloutInfo) -> str | None:
    """The first user message near the log's beginning; None when it may come later, empty when there is none."""
    seen = 0
    async with aclosing(store.read(info.rollout_id)) as records:
        async for record in records:
            text = user_text(record)
            if text is not None and text.strip():
                return text.strip()[:PREVIEW_CHARACTERS]
            seen += 1
            if seen >= _HEAD_RECORDS:
                return None
    return ""


def _fork_of(info: RolloutInfo) -> str | None:
    found = info.header.payload.get("forked_from_id") if info.header is not None else None
    return found if isinstance(found, str) else None


def seconds_of(header: Record | None) -> int:
    """When a log was begun, in seconds; now where its header does not tell."""
    text = header.payload.get("timestamp") if header is not None else None
    try:
        return int(datetime.fromisoformat(str(text)).timestamp())
    except ValueError:
        return now_s()


def live_thread(session: Session, turns: tuple[Turn, ...] = ()) -> Thread:
    """A loaded thread."""
    facts, settings, info = session.facts, session.settings, session.log.info
    header = session.history.header.payload
    return Thread(
        id=session.thread_id,
        environments=(ThreadEnvironment(cwd=settings.cwd, runtime_workspace_roots=settings.workspace_roots),),
        session_id=str(header.get("session_id") or session.thread_id),
        forked_from_id=facts.forked_from_id,
        parent_thread_id=_text(header.get("parent_thread_id")),
        preview=facts.preview,
        ephemeral=facts.ephemeral,
        history_mode=session.mode.value,
        model_provider=settings.model_provider,
        model=settings.model,
        reasoning_effort=settings.effort,
        created_at=facts.created_at,
        updated_at=facts.updated_at,
        recency_at=facts.updated_at,
        status=session.status,
        path=info.path,
        cwd=settings.cwd,
        cli_version=str(header.get("cli_version") or ""),
        originator=_text(header.get("originator")),
        source=told_source(header.get("source") or "unknown"),
        agent_nickname=_text(header.get("agent_nickname")),
        can_accept_direct_input=True,
        thread_source=_text(header.get("thread_source")),
        project_id=session.marks.project_id,
        git_info=_git(session.marks.git or header.get("git")),
        name=facts.name,
        turns=turns,
    )


def stored_thread(summary: ThreadSummary, path: str | None, turns: tuple[Turn, ...] = ()) -> Thread:
    """A thread that is not loaded."""
    return Thread(
        id=summary.thread_id,
        session_id=summary.session_id or summary.thread_id,
        forked_from_id=summary.forked_from_id,
        parent_thread_id=summary.parent_thread_id,
        preview=summary.preview,
        ephemeral=False,
        history_mode=summary.mode.value,
        model_provider=summary.model_provider,
        model=summary.model,
        created_at=int(summary.created_at),
        updated_at=int(summary.updated_at),
        recency_at=int(summary.updated_at),
        status=NOT_LOADED,
        path=path,
        cwd=summary.cwd,
        cli_version=summary.cli_version,
        originator=summary.originator,
        source=told_source(summary.source),
        thread_source=summary.thread_source,
        agent_nickname=_nickname(summary.source),
        project_id=summary.marks.project_id,
        git_info=_git(summary.marks.git or summary.git),
        name=summary.name,
        turns=turns,
    )


def told_source(source: Any) -> Any:
    """A recorded source as clients see it: the log says `subagent`, the wire `subAgent`."""
    if isinstance(source, Mapping) and "subagent" in source:
        return {"subAgent": source["subagent"]}
    return source


def _nickname(source: Any) -> str | None:
    for name in ("subagent", "thread_spawn"):
        source = source.get(name) if isinstance(source, Mapping) else None
    return _text(source.get("agent_nickname")) if isinstance(source, Mapping) else None


async def summary_of(env: Environment, thread_id: str) -> ThreadSummary:
    """A stored thread's summary. Raises LogMissing."""
    summary = await env.catalogue.get(thread_id)
    if summary is None:
        raise LogMissing(thread_id)
    return summary


def setup_fields(session: Session) -> dict[str, Any]:
    """The members that start, resume and fork answer beside the thread (`wire` §5)."""
    settings = session.settings
    return {
        "model": settings.model,
        "model_provider": settings.model_provider,
        "service_tier": settings.service_tier,
        "cwd": settings.cwd,
        "runtime_workspace_roots": settings.workspace_roots,
        "approval_policy": settings.approval_policy,
        "approvals_reviewer": settings.approvals_reviewer,
        "sandbox": settings.sandbox,
        "reasoning_effort": settings.effort,
    }


def settings_told(settings: ThreadSettings) -> dict[str, Any]:
    """The settings as `thread/settings/updated` tells them (`wire` §6, turn/start)."""
    place = ThreadEnvironment(cwd=settings.cwd, runtime_workspace_roots=settings.workspace_roots)
    told = WireSettings.model_validate(
        {
            "cwd": settings.cwd,
            "environments": (place,),
            "approval_policy": settings.approval_policy,
            "approvals_reviewer": settings.approvals_reviewer,
            "sandbox_policy": settings.sandbox,
            "model": settings.model,
            "model_provider": settings.model_provider,
            "service_tier": settings.service_tier,
            "effort": settings.effort,
            "summary": settings.summary,
            "collaboration_mode": collaboration(settings),
            "personality": settings.personality,
        }
    )
    return told.model_dump(by_alias=True, mode="json")


def _git(found: Any) -> GitInfo | None:
    if not isinstance(found, dict):
        return None
    return GitInfo(
        sha=_text(found.get("commit_hash")),
        branch=_text(found.get("branch")),
        origin_url=_text(found.get("repository_url")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


__all__ = ["ThreadSetup", "facts_of_log", "live_thread", "setup_fields", "stored_thread", "summary_of"]
