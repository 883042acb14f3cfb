"""How a session comes into being: a new thread, one read back from its log, or a fork (03 §8, 04 §6).

Owns no table of live threads (`registry.py`); what it returns is not live until the registry enters it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from unspool_protocol.log import HistoryMode
from unspool_protocol.thread_object import ThreadOverrides
from unspool_protocol.threads import ThreadForkParams, ThreadResumeParams, ThreadStartParams

from unspool_server.access.disguise import usual_spelling
from unspool_server.config import REACHES_OUT
from unspool_server.config_base import ConfigError
from unspool_server.config_file import override_config
from unspool_server.errors import InvalidParams, LogMissing, RequestError
from unspool_server.history.tenancy import tenant_member
from unspool_server.sessions.branches.forking import ForkPoint, fork_point, write_child
from unspool_server.sessions.clock import iso_now, new_id
from unspool_server.sessions.environment import BASE_INSTRUCTIONS, Environment
from unspool_server.sessions.gitinfo import git_facts
from unspool_server.sessions.loading import load
from unspool_server.sessions.memory import LiveHistory
from unspool_server.sessions.notes import counted, damage_notes, degradation_notes, header_note
from unspool_server.sessions.session import Session, ThreadFacts
from unspool_server.sessions.settings import ThreadSettings, configured, is_usable_cwd, overridden, plain, recorded
from unspool_server.sessions.tenants import tenant_of_log
from unspool_server.sessions.views.summaries import facts_of_log
from unspool_server.store.contract import Log, NewRollout, ReadReport, RolloutInfo

CLI_VERSION = "0.171.0"
"""The version of the reference whose format and protocol we speak (`wire` §3)."""


def check_thread_id(thread_id: str, what: str = "thread") -> str:
    """Refuse ids that are no UUID (`wire` §2); returns the id in its usual spelling.

    Raises:
        InvalidParams: `invalid thread id: …`.
    """
    found = usual_spelling(thread_id)
    if found is None:
        message = f"invalid {what} id: {thread_id!r} is not a UUID"
        raise InvalidParams(message, data={"field": "threadId"})
    return found


class Opener:
    """Builds sessions."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    async def start(
        self, params: ThreadStartParams, originator: str, tenant: str, thread_id: str | None = None
    ) -> Session:
        """A new thread; nothing is written before its first turn (02 §5), except for one that must have this id.

        Raises:
            RequestError: A bad provider. WriteFailed: A thread of that id could not be written; there is none.
        """
        env = self._configured(params, tenant)
        settings = configured(env.config, params, env.cwd)
        check_provider(env, settings)
        ephemeral = bool(params.ephemeral)
        mode = HistoryMode(params.history_mode or env.config.history.mode)
        reserved, thread_id = thread_id, thread_id or new_id()
        facts = ThreadFacts(
            base_instructions=params.base_instructions or env.config.instructions or BASE_INSTRUCTIONS,
            developer_instructions=_developer_instructions(env, params.developer_instructions),
            dynamic_tools=[plain(tool) for tool in params.dynamic_tools or ()],
            ephemeral=ephemeral,
            tenant=tenant,
        )
        header = _new_header(thread_id, settings, facts, originator, params.thread_source)
        extra = {"unspool": tenant_member(tenant)} if tenant else None
        log = await env.store_of(ephemeral=ephemeral).create(NewRollout(thread_id, thread_id, mode, header, extra))
        session = Session(env, log, LiveHistory.fresh(mode, header, thread_id), settings, facts)
        if reserved is not None:
            try:
                await session.record_written(*session.settings_to_record(settings))
            except BaseException:
                await log.discard()
                raise
        return session

    async def spawn(
        self, parent: Session, thread_id: str, header: Mapping[str, Any], settings: ThreadSettings, *, fork: bool
    ) -> Session:
        """A thread that another one starts: with the environment and instructions of its parent.

        Args:
            header: What its header says beside what every header does (01 §3.1).
            fork: It begins with what the parent's finished turns were; else with nothing.

        Raises:
            LogMissing: A fork of an ephemeral parent. RequestError: A bad provider.
        """
        env, facts = parent.env, parent.facts
        check_provider(env, settings)
        if fork and parent.turn is not None:
            params = ThreadForkParams(thread_id=parent.thread_id, before_turn_id=parent.turn.id)
            session = await self.fork(params, parent, facts.tenant, thread_id, header=header)
            session.settings = session.applied = settings
            return session
        own = ThreadFacts(
            base_instructions=facts.base_instructions,
            developer_instructions=facts.developer_instructions,
            ephemeral=facts.ephemeral,
            tenant=facts.tenant,
        )
        originator = str(parent.history.header.payload.get("originator") or "")
        payload = {**_new_header(thread_id, settings, own, originator, None), **header}
        store = env.store_of(ephemeral=facts.ephemeral)
        extra = {"unspool": tenant_member(facts.tenant)} if facts.tenant else None
        log = await store.create(NewRollout(thread_id, thread_id, parent.mode, payload, extra))
        return Session(env, log, LiveHistory.fresh(parent.mode, payload, thread_id), settings, own)

    async def resume(self, thread_id: str, params: ThreadResumeParams) -> Session:
        """A thread read back from its log; the lock is taken before anything is read (02 §7).

        Raises:
            LogMissing, WriterHeld, LogCorrupt, RequestError: nothing was loaded.
        """
        log = await self.env.store.open(thread_id)
        try:
            return await self._load(log, params)
        except BaseException:
            await log.close()
            raise

    async def _load(self, log: Log, params: ThreadResumeParams) -> Session:
        report = ReadReport()
        history = await load(self.env.store, log.info, report=report)
        tenant = await tenant_of_log(self.env.store, log.info) if params.config else ""
        env = self._configured(params, tenant)
        found = recorded(env.config, history.settings, env.cwd)
        settings = overridden(found, params, env.config, env.cwd)
        check_provider(env, settings)
        session = await self._session(env, log, history, settings, params)
        if history.settings.permission_profile is not None or history.settings.sandbox_policy is not None:
            session.applied = found
        await _note_overrides(session, params)
        session.load_notes = counted(_load_notes(session, found, report), "load", session.thread_id)
        return session

    async def fork(
        self,
        params: ThreadForkParams,
        source: Session | None,
        tenant: str,
        thread_id: str | None = None,
        *,
        header: Mapping[str, Any] | None = None,
    ) -> Session:
        """A new thread whose history begins in another one; `source` is its live session, if it has one.

        Args:
            thread_id: The id that it must have; None for a fresh one.
            header: Further members of its header.

        Raises:
            LogMissing: No such source, an archived one, an ephemeral one, or one that never ran.
            RequestError: A bad cut, or an ephemeral fork of a paginated thread that wants its turns.
        """
        source_id = check_thread_id(params.thread_id)
        info, end, running = await self._source(source_id, source)
        ephemeral = bool(params.ephemeral)
        if ephemeral and info.mode == HistoryMode.PAGINATED and not params.exclude_turns:
            raise RequestError("ephemeral paginated thread/fork requires `excludeTurns: true`")
        point = await fork_point(
            self.env.store,
            info,
            last_turn_id=params.last_turn_id,
            before_turn_id=params.before_turn_id,
            running_turn_id=running,
            end_ordinal=end,
            at=params.at,
        )
        point = replace(point, last_boundaries=params.last_n_boundaries, header=header or {})
        env = self._configured(params, tenant)
        settings = overridden(await self._present_settings(env, point, source), params, env.config, env.cwd)
        check_provider(env, settings)
        target = self.env.store_of(ephemeral=ephemeral)
        log = await write_child(
            target,
            self.env.store,
            point,
            settings,
            tenant=tenant,
            thread_id=thread_id,
            ephemeral=ephemeral,
            thread_source=params.thread_source,
        )
        child = await load(target, log.info)
        session = await self._session(env, log, child, settings, params, ephemeral=ephemeral)
        session.facts.forked_from_id = source_id
        session.applied = settings
        return session

    async def _present_settings(self, env: Environment, point: ForkPoint, live: Session | None) -> ThreadSettings:
        """What a fork takes over, wherever it is cut: settings are not undone, and nothing regains a wider sandbox."""
        if live is not None:
            return live.settings
        present = (
            point.history if point.end is None else await load(env.store, await env.store.find(point.info.thread_id))
        )
        return recorded(env.config, present.settings, env.cwd)

    async def _source(self, source_id: str, live: Session | None) -> tuple[RolloutInfo, int | None, str | None]:
        """The source's rollout, where it ends now, and its running turn."""
        if live is not None:
            return await live.step(partial(_live_source, live))
        info = await self.env.store.find(source_id)
        if info.archived:
            raise LogMissing(source_id, archived=True)
        return info, None, None

    async def _session(
        self,
        env: Environment,
        log: Log,
        history: LiveHistory,
        settings: ThreadSettings,
        given: ThreadOverrides,
        *,
        ephemeral: bool = False,
    ) -> Session:
        facts = await facts_of_log(env, env.store_of(ephemeral=ephemeral), log.info, history)
        facts.ephemeral = ephemeral
        facts.base_instructions = given.base_instructions or history.settings.base_instructions or BASE_INSTRUCTIONS
        facts.developer_instructions = _developer_instructions(env, given.developer_instructions)
        facts.dynamic_tools = history.settings.dynamic_tools or ()
        return Session(env, log, history, settings, facts)

    def _configured(self, given: ThreadOverrides, tenant: str) -> Environment:
        """The shared environment, with what the client's `config` says for this thread. Raises RequestError."""
        if not given.config:
            return self.env
        if not self.env.config.runs_commands_for(tenant):
            _check_reach(given.config)
        try:
            own = override_config(self.env.config, given.config)
            return replace(self.env, config=self.env.config.for_thread(own))
        except ConfigError as error:
            raise _bad_config(error, error.key or "config") from error


def _check_reach(asked: Mapping[str, Any]) -> None:
    for key in asked:
        if key.partition(".")[0] in REACHES_OUT:
            data = {"reason": "configRefused", "field": f"config.{key}"}
            raise RequestError(f"`{key}` cannot be set for a thread of this tenant", data=data)


def _developer_instructions(env: Environment, given: str | None) -> str | None:
    text = given if given is not None else env.config.developer_instructions
    return text if text is not None and text.strip() else None


def check_provider(env: Environment, settings: ThreadSettings) -> None:
    """Refuse settings that name a model provider that nobody configured. Raises RequestError."""
    try:
        env.config.provider(settings.model_provider)
    except ConfigError as error:
        raise _bad_config(error, "modelProvider") from error


def _bad_config(error: ConfigError, field: str) -> RequestError:
    return RequestError(
        f"failed to load configuration: {error.message}", data={"reason": "unknownProvider", "field": field}
    )


def _new_header(
    thread_id: str, settings: ThreadSettings, facts: ThreadFacts, originator: str, thread_source: str | None
) -> dict[str, Any]:
    header: dict[str, Any] = {
        "session_id": thread_id,
        "id": thread_id,
        "timestamp": iso_now(),
        "cwd": settings.cwd,
        "runtime_workspace_roots": list(settings.workspace_roots),
        "originator": originator or "unspool",
        "cli_version": CLI_VERSION,
        "source": "vscode",
        "model_provider": settings.model_provider,
        "base_instructions": {"text": facts.base_instructions, "provenance": {"type": "custom"}},
        "context_window": {"window_id": new_id()},
    }
    if thread_source is not None:
        header["thread_source"] = thread_source
    if facts.dynamic_tools:
        header["dynamic_tools"] = list(facts.dynamic_tools)
    if (git := git_facts(settings.cwd)) is not None:
        header["git"] = git
    return header


async def _live_source(session: Session) -> tuple[RolloutInfo, int | None, str | None]:
    """Flush a live source and say where it ends (04 §6). Raises LogMissing for one without a log."""
    if session.facts.ephemeral or session.log.deferred:
        raise LogMissing(session.thread_id)
    await session.log.flush()
    running = session.turn.id if session.turn is not None and session.turn.announced else None
    return session.log.info, session.log.next_ordinal, running


async def _note_overrides(session: Session, overrides: ThreadOverrides) -> None:
    """A changed model or cwd is recorded at once, so that a later plain resume keeps it (07 §0)."""
    if overrides.model is not None or overrides.cwd is not None:
        session.take_in(await session.log.add(session.settings_to_record(session.settings)))


def _load_notes(session: Session, found: ThreadSettings, report: ReadReport) -> list[dict[str, Any]]:
    """What clients must be told about a thread as it was loaded (DESIGN §4; 03 §8)."""
    notes: list[dict[str, Any]] = []
    previous = session.history.state.previous_settings
    if previous is not None and previous.model != session.settings.model:
        message = (
            f"This session was recorded with model `{previous.model}` but is resuming with "
            f"`{session.settings.model}`. Consider switching back to `{previous.model}` as it may affect performance."
        )
        notes.append({"message": message, "code": "modelMismatch"})
    if not is_usable_cwd(found.cwd):
        message = "The recorded working directory is no path of this system."
        notes.append(
            {"message": message, "code": "cwdMissing", "effect": "Give a cwd when you resume or start a turn."}
        )
    notes += header_note(session.log.info.header, session.thread_id)
    notes += degradation_notes(session.history.state.degradations)
    return notes + damage_notes(report.faults, partly=True)
