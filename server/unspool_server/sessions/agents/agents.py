"""Agents that threads start: a tree of threads, messages between them, and answers that come home once (03 §2).

An agent is a thread like any other. Where it stands in its tree is in its header, so a restart finds all of them again;
its answer is recorded in its parent under a mark with the agent's turn, so it is recorded once, whatever happens.
"""

import asyncio
import logging
import re
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from unspool_protocol.items import SubAgentActivityItem
from unspool_protocol.log import Record
from unspool_protocol.threads import ThreadResumeParams

from unspool_server.config import AgentOptions
from unspool_server.errors import LogMissing, UnspoolError
from unspool_server.history.calls import CallMark, marked
from unspool_server.sessions.agents.envelopes import Envelope, envelope_records
from unspool_server.sessions.agents.host import AgentError, NewAgent
from unspool_server.sessions.agents.tree import ROOT, Place, agents_of, place_of
from unspool_server.sessions.clock import new_id
from unspool_server.sessions.session import Session
from unspool_server.sessions.turns.turn import Turn, TurnPlan

if TYPE_CHECKING:
    from unspool_server.sessions.registry import Sessions

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9_]+")


class Agents:
    """See `AgentHost`."""

    def __init__(self, sessions: "Sessions") -> None:
        self._sessions = sessions
        self._trees: dict[str, dict[str, str]] = {}
        self._caught_up: WeakSet[Session] = WeakSet()
        self._owed: dict[str, list[Envelope]] = {}
        self._starting: set[str] = set()
        self._work: set[asyncio.Task[None]] = set()

    async def spawn(self, turn: Turn, wanted: NewAgent) -> tuple[str, str]:
        """See `AgentHost`."""
        parent, here = turn.session, _place(turn.session)
        tree, path = await self._tree(here.root_id), f"{here.path}/{wanted.name}"
        if path in tree and await self._is_gone(tree[path]):
            tree.pop(path, None)
        self._check(wanted, path, here, tree, parent.env.config.agents)
        planned = turn.plan.settings
        settings = replace(planned, model=wanted.model or planned.model, effort=wanted.effort or planned.effort)
        thread_id = tree[path] = new_id()
        self._starting.add(thread_id)
        try:
            header = _header(here, parent.thread_id, path, wanted.name)
            child = await self._sessions.spawn(parent, thread_id, header, settings, fork=wanted.fork)
            await _say(child, Envelope(here.path, path, wanted.task, "NEW_TASK", trigger=True))
        except UnspoolError as error:
            del tree[path]
            raise AgentError(f"the agent could not be started: {error}") from error
        finally:
            self._starting.discard(thread_id)
        return path, thread_id

    async def send(self, turn: Turn, target: str, text: str, *, trigger: bool) -> tuple[str, str]:
        """See `AgentHost`."""
        here = _place(turn.session)
        path, session = await self._reach(turn.session, target)
        if session is turn.session:
            raise AgentError("an agent cannot talk to itself")
        await _say(session, Envelope(here.path, path, text, "NEW_TASK" if trigger else "MESSAGE", trigger))
        return path, session.thread_id

    async def interrupt(self, turn: Turn, target: str) -> tuple[str, str, Any]:
        """See `AgentHost`."""
        path, session = await self._reach(turn.session, target)
        if session is turn.session:
            raise AgentError("an agent cannot interrupt itself")
        before = status_of(session)
        await session.step(partial(_interrupt, session))
        return path, session.thread_id, before

    def depth(self, session: Session) -> int:
        """See `AgentHost`."""
        return _place(session).depth

    def any_running(self, session: Session) -> bool:
        """See `AgentHost`."""
        tree = self._trees.get(_place(session).root_id, {})
        return any(self._is_running(other) for other in tree.values() if other != session.thread_id)

    async def statuses(self, session: Session) -> dict[str, Any]:
        """See `AgentHost`."""
        root_id = _place(session).root_id
        found: dict[str, Any] = {}
        for path, thread_id in {ROOT: root_id, **await self._tree(root_id)}.items():
            try:
                found[path] = status_of(await self._load(thread_id))
            except UnspoolError:
                found[path] = "not_found"
        return found

    async def catch_up(self, session: Session) -> None:
        """See `AgentHost`."""
        if session in self._caught_up or session.facts.ephemeral or not session.env.config.agents.enabled:
            return
        self._caught_up.add(session)
        here = _place(session)
        for path, thread_id in (await self._tree(here.root_id)).items():
            if path.rpartition("/")[0] != here.path:
                continue
            try:
                child = await self._load(thread_id)
            except UnspoolError as error:
                logger.info("agent %s could not be asked for its answer: %s", thread_id, type(error).__name__)
                continue
            if child.turn is None and (ended := last_end(child)) is not None:
                await session.step(partial(self._record, session, _answer(child, *ended)))

    def turn_ended(self, session: Session, turn_id: str, outcome: str, text: str | None) -> None:
        """See `AgentHost`."""
        for envelope in self._owed.pop(session.thread_id, ()):
            self._spawn(session.step(partial(self._record, session, envelope)))
        if _place(session).parent_id is not None and not self._sessions.closing and not session.closing:
            self._spawn(self._bring_home(session, turn_id, outcome, text))

    async def settled(self) -> None:
        """Let what is on its way arrive."""
        await asyncio.gather(*self._work, return_exceptions=True)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check(self, wanted: NewAgent, path: str, here: Place, tree: Mapping[str, str], options: AgentOptions) -> None:
        if not _NAME.fullmatch(wanted.name):
            raise AgentError("task_name must use only lowercase letters, digits, and underscores")
        if path in tree:
            raise AgentError(f"agent path `{path}` already exists")
        if here.depth >= options.max_depth:
            raise AgentError(f"agent depth limit reached (max {options.max_depth})")
        if sum(self._is_running(thread_id) for thread_id in tree.values()) >= options.max_threads:
            raise AgentError(f"agent thread limit reached (max {options.max_threads})")

    async def _bring_home(self, child: Session, turn_id: str, outcome: str, text: str | None) -> None:
        parent_id = str(_place(child).parent_id)
        if outcome == "interrupted":
            # Nothing to tell; but whoever waits for the agent shall look again.
            parent = self._sessions.get(parent_id)
            if parent is not None and parent.turn is not None:
                parent.turn.arrived.set()
            return
        try:
            parent = await self._load(parent_id)
            await parent.step(partial(self._record, parent, _answer(child, turn_id, outcome, text)))
        except UnspoolError as error:
            # The parent's next turn asks for it.
            if (live := self._sessions.get(parent_id)) is not None:
                self._caught_up.discard(live)
            logger.info("the answer of agent %s waits: %s", child.thread_id, type(error).__name__)

    async def _record(self, parent: Session, envelope: Envelope) -> None:
        """Hand an answer to a thread: into its running turn, or into its idle log. Runs inside a step."""
        mark = envelope.call
        if mark is None or await parent.calls.call(mark.id) is not None:
            return
        turn = parent.turn
        if turn is None:
            records = envelope_records(envelope, envelope.response_item)
            await parent.record_written(*marked(records, mark))
        elif turn.kind == "regular":
            parent.calls.accept(mark)
            turn.take_in(envelope)
        else:
            self._owed.setdefault(parent.thread_id, []).append(envelope)

    async def _reach(self, session: Session, target: str) -> tuple[str, Session]:
        here = _place(session)
        tree = {ROOT: here.root_id, **await self._tree(here.root_id)}
        path = target if target.startswith("/") else f"{here.path}/{target}"
        if path not in tree:
            path = next((known for known, thread_id in tree.items() if thread_id == target), path)
        if path not in tree:
            raise AgentError(f"live agent path `{path}` not found")
        try:
            return path, await self._load(tree[path])
        except UnspoolError as error:
            raise AgentError(f"agent `{path}` cannot be reached: {error}") from error

    async def _load(self, thread_id: str) -> Session:
        session = self._sessions.get(thread_id)
        if session is not None and not session.closing:
            return session
        return await self._sessions.resume(ThreadResumeParams(thread_id=thread_id))

    async def _tree(self, root_id: str) -> dict[str, str]:
        """Threads of a tree by their paths, the root left out; found in the logs the first time."""
        tree = self._trees.get(root_id)
        if tree is None:
            found = await agents_of(self._sessions.env, root_id)
            tree = self._trees.setdefault(root_id, found)
        return tree

    def _is_running(self, thread_id: str) -> bool:
        """Whether an agent works, or is about to: several may be started by one answer of the model."""
        session = self._sessions.get(thread_id)
        return thread_id in self._starting or (session is not None and session.turn is not None)

    async def _is_gone(self, thread_id: str) -> bool:
        """Whether an agent was deleted, so that another one may have its name, as after a restart."""
        if thread_id in self._starting:
            return False
        try:
            await self._sessions.info(thread_id)
        except LogMissing:
            return True
        return False

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="agents")
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("an agent's answer was not brought home", exc_info=error)


def last_end(session: Session) -> tuple[str, str, str | None] | None:
    """The newest turn of a thread if it has ended by itself: id, outcome, last words."""
    for record in _newest_first(session):
        if record.event in ("task_started", "turn_started", "turn_aborted"):
            return None
        if record.event in ("task_complete", "turn_complete"):
            return str(record.payload.get("turn_id")), *_outcome(record)
    return None


def status_of(session: Session) -> Any:
    """An agent's status as the reference words it."""
    if session.turn is not None:
        return "running"
    for record in _newest_first(session):
        if record.event in ("turn_aborted", "task_started", "turn_started"):
            return "interrupted"
        if record.event in ("task_complete", "turn_complete"):
            outcome, text = _outcome(record)
            return {"errored": text} if outcome == "failed" else {"completed": text}
    return "pending_init"


def _newest_first(session: Session) -> Iterator[Record]:
    """The thread's own records; what a fork has inherited tells of its parent."""
    own = session.log.info.rollout_id
    return (record for record in reversed(session.history.records) if record.rollout_id == own)


def _outcome(record: Record) -> tuple[str, str | None]:
    error = record.payload.get("error")
    if isinstance(error, Mapping):
        return "failed", str(error.get("message") or "")
    text = record.payload.get("last_agent_message")
    return "completed", text if isinstance(text, str) else None


def _answer(child: Session, turn_id: str, outcome: str, text: str | None) -> Envelope:
    place = _place(child)
    recipient = place.path.rpartition("/")[0]
    body = text or "" if outcome == "completed" else f"The agent failed: {text or 'no reason was told'}"
    activity = SubAgentActivityItem(
        id=f"subagent-completed-{turn_id}",
        kind="completed",
        agent_thread_id=child.thread_id,
        agent_path=place.path,
    )
    mark = CallMark(str(place.parent_id), "agent", "agent/answer", turn_id, child.thread_id)
    return Envelope(place.path, recipient, body, "FINAL_ANSWER", activity=activity, call=mark)


def _place(session: Session) -> Place:
    return place_of(session.history.header.payload, session.thread_id)


def _header(here: Place, parent_id: str, path: str, name: str) -> dict[str, Any]:
    spawn = {"parent_thread_id": parent_id, "depth": here.depth + 1, "agent_path": path}
    return {
        "session_id": here.root_id,
        "parent_thread_id": parent_id,
        "source": {"subagent": {"thread_spawn": {**spawn, "agent_nickname": name, "agent_role": None}}},
        "thread_source": "subagent",
        "agent_nickname": name,
        "agent_path": path,
    }


async def _say(session: Session, envelope: Envelope) -> None:
    await session.step(partial(_hear, session, envelope))


async def _hear(session: Session, envelope: Envelope) -> None:
    """Give an agent a message: into its running turn, a turn of its own, or its log. Runs inside a step."""
    turn = session.turn
    if turn is not None and turn.kind == "regular":
        turn.take_in(envelope)
    elif turn is not None:
        raise AgentError("the agent is compacting its context; try again")
    elif envelope.trigger:
        session.turn = Turn(session, TurnPlan(session.settings, [envelope]))
        session.turn.start()
        session.turn.release()
    else:
        await session.record_written(*envelope_records(envelope, envelope.response_item))


async def _interrupt(session: Session) -> None:
    if session.turn is not None:
        await session.turn.abort("interrupted")
