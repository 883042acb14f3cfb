"""`thread/subscribe`, `thread/replay/next`, and the options of a replay, which `thread/resume` shares (DESIGN §6)."""

from dataclasses import dataclass

from unspool_protocol.cursors import EventCursor
from unspool_protocol.following import (
    Replay,
    ThreadReplayNextParams,
    ThreadReplayNextResult,
    ThreadSubscribeParams,
    ThreadSubscribeResult,
)
from unspool_protocol.turns import Turn

from unspool_server.errors import InvalidParams, LogMissing, StoreClosed, ThreadNotFound
from unspool_server.events.pacing import ReplayOptions
from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.services import services
from unspool_server.sessions.opening import check_thread_id
from unspool_server.sessions.session import LAST_COUNTER, Session
from unspool_server.sessions.views.pages import Shelf, all_turns, log_end
from unspool_server.sessions.views.summaries import live_thread, stored_thread, summary_of


def replay_cursor(replay: Replay | None) -> EventCursor | None:
    """The place after which events shall be told; None for all of them, and where none are asked for.

    Raises:
        InvalidParams: Reason `cursorInvalid`: the text is no cursor of ours.
    """
    if replay is None or replay.after is None or replay.mode != "events":
        return None
    try:
        return EventCursor.decode(replay.after)
    except ValueError:
        raise InvalidParams(
            f"invalid cursor: {replay.after}", data={"reason": "cursorInvalid", "field": "replay.after"}
        ) from None


def replay_options(replay: Replay) -> ReplayOptions:
    """How the replayed part shall come."""
    factors = {"real": 1.0, "max": None, "step": None, None: None}
    return ReplayOptions(
        item_kinds=None if replay.item_kinds is None else frozenset(replay.item_kinds),
        factor=replay.speed if isinstance(replay.speed, float | int) else factors[replay.speed],
        stepwise=replay.speed == "step",
        announced=replay.speed is not None,
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller of `thread/subscribe` wants."""

    thread_id: str
    replay: Replay | None
    after: EventCursor | None

    @property
    def snapshot(self) -> bool:
        """Whether the answer shows the thread, and the events go on from there."""
        return self.replay is not None and self.replay.mode == "snapshot"


async def thread_subscribe(ctx: RequestContext, params: ThreadSubscribeParams) -> ThreadSubscribeResult:
    """Watch a thread, loaded or not; the answer says where it stands, its events follow."""
    shared, thread_id, replay = services(ctx), check_thread_id(params.thread_id), params.replay
    if params.after is not None:
        replay = (replay or Replay()).model_copy(update={"after": params.after})
    asked = Asked(thread_id, replay, replay_cursor(replay))
    shared.hub.check_room(ctx.peer, thread_id)
    session = shared.sessions.get(thread_id)
    if session is not None and not session.closing:
        try:
            return await _watch_live(ctx, session, asked)
        except StoreClosed:
            pass  # it was unloaded meanwhile, and is read from its log then
    # It cannot be loaded, moved or deleted before the subscription stands.
    async with shared.sessions.alone(thread_id):
        session = shared.sessions.get(thread_id)
        if session is not None:
            return await _watch_live(ctx, session, asked)
        return await _watch_stored(ctx, asked)


async def _watch_live(ctx: RequestContext, session: Session, asked: Asked) -> ThreadSubscribeResult:
    """One step of the thread, so that the snapshot and the place in the stream belong together."""
    hub = services(ctx).hub
    if asked.after is not None:
        await hub.check_cursor(asked.thread_id, asked.after)

    async def step() -> ThreadSubscribeResult:
        turns: tuple[Turn, ...] = ()
        if asked.snapshot and not session.log.deferred:
            turns = tuple(await all_turns(Shelf(session.store, session.log.info, session), partial=True))
        thread = live_thread(session, turns)
        place = hub.position(session.thread_id) or session.end_cursor
        _follow(ctx, place, asked)
        return ThreadSubscribeResult(
            cursor=place.encode(), status=thread.status, thread=thread if asked.snapshot else None
        )

    return await session.step(step)


async def _watch_stored(ctx: RequestContext, asked: Asked) -> ThreadSubscribeResult:
    shared, thread_id = services(ctx), asked.thread_id
    try:
        info = await shared.env.store.find(thread_id)
    except LogMissing:
        raise ThreadNotFound(f"thread not found: {thread_id}", data={"threadId": thread_id}) from None
    if asked.after is not None:
        await shared.hub.check_cursor(thread_id, asked.after)
    end = await log_end(shared.env.store, info)
    place = EventCursor(info.rollout_id, max(end - 1, 0), LAST_COUNTER)
    turns = tuple(await all_turns(Shelf(shared.env.store, info, end=end))) if asked.snapshot else ()
    thread = stored_thread(await summary_of(shared.env, thread_id), info.path, turns)
    _follow(ctx, place, asked)
    return ThreadSubscribeResult(cursor=place.encode(), status=thread.status, thread=thread if asked.snapshot else None)


def _follow(ctx: RequestContext, place: EventCursor, asked: Asked) -> None:
    """Subscribe the caller: after its own cursor, or from the place that the answer shows."""
    hub, replay = services(ctx).hub, asked.replay
    past = replay_options(replay) if replay is not None and not asked.snapshot else None
    subscription = hub.subscribe(ctx.peer, asked.thread_id, after=asked.after, replay=past, resident=False)
    if past is None and (asked.snapshot or not subscription.resident):
        subscription.start_after(place, replay=None)
    ctx.after(subscription.release)


async def thread_replay_next(ctx: RequestContext, params: ThreadReplayNextParams) -> ThreadReplayNextResult:
    """Let a stepwise replay go on by some events."""
    thread_id = check_thread_id(params.thread_id)
    granted = services(ctx).hub.step(ctx.peer, thread_id, params.count)
    if granted is None:
        raise InvalidParams(f"not subscribed to thread {thread_id}", data={"reason": "notSubscribed"})
    return ThreadReplayNextResult(granted=granted)
