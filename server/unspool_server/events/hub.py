"""The sink of all sessions' events and the place where connections subscribe to threads (05 §3, wire §4).

Owns which connection gets which event, in which order; neither what happens in a thread nor how bytes leave.
Everything but `ask`, `check_cursor` and `close` is synchronous: the order of calls is the order of messages.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from functools import partial
from typing import Any

from unspool_protocol.base import WireModel
from unspool_protocol.cursors import EventCursor
from unspool_protocol.notifications import RemoteControlStatusChangedNotification

from unspool_server.errors import LimitReached
from unspool_server.events.encoding import Encoder, now_ms, plain, without_cursor
from unspool_server.events.member import Member
from unspool_server.events.pacing import ReplayOptions, Sleep
from unspool_server.events.requests import PendingRequest, PendingRequests
from unspool_server.events.slow import SLOW_LIMIT_BYTES
from unspool_server.events.stream import RING_BYTES, RING_EVENTS, ThreadStream, invalid_cursor
from unspool_server.events.streams import Streams
from unspool_server.events.subscription import Peer, ReplaySource, Subscription
from unspool_server.telemetry import metrics
from unspool_server.telemetry.instruments import Sample

_REMOTE_CONTROL = "remoteControl/status/changed"


class Hub:
    """Implements `sessions.sink.EventSink`, and what connections and handlers need beside it.

    Args:
        replay: Recorded events for clients that are further behind than the ring; None: such events are skipped.
        tenant_of: Tells whose a thread is, as far as is known, so that others are told nothing of it; without it
            everyone is told of everything.
        on_unsubscribed: Called with the thread id after a subscription ended by `unsubscribe` or `drop`.
        clock_ms: Milliseconds since the epoch.
        max_subscriptions: Of one connection; None: any number.
        sleep: How a paced replay waits.
        slow_limit_bytes: How far behind clients may be that asked to be disconnected then.
    """

    def __init__(
        self,
        replay: ReplaySource | None = None,
        *,
        tenant_of: Callable[[str], str | None] | None = None,
        on_unsubscribed: Callable[[str], None] | None = None,
        clock_ms: Callable[[], int] = now_ms,
        ring_events: int = RING_EVENTS,
        ring_bytes: int = RING_BYTES,
        max_subscriptions: int | None = None,
        slow_limit_bytes: int = SLOW_LIMIT_BYTES,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.max_subscriptions = max_subscriptions
        self.replay = replay
        self.tenant_of = tenant_of
        self.on_unsubscribed = on_unsubscribed
        self.encoder = Encoder()
        self.sleep = sleep
        self._clock_ms = clock_ms
        self._slow_limit_bytes = slow_limit_bytes
        self._members: dict[Hashable, Member] = {}
        ring = {"max_events": ring_events, "max_bytes": ring_bytes}
        self._streams = Streams(lambda thread_id: ThreadStream(thread_id, self.encoder, **ring))
        self._subscribers: dict[str, dict[Hashable, Subscription]] = {}
        self._requests = PendingRequests()
        self._published = 0
        self._instance_id = str(uuid.uuid4())
        self._tasks: set[asyncio.Task[None]] = set()

    # -- connections ---------------------------------------------------------------------------------------------

    def register(self, peer: Peer) -> None:
        """Make a connection known; it gets broadcasts as soon as it is initialised."""
        member = self._members[peer.id] = Member(peer)
        peer.outbox.on_space = member.pump

    def greet(self, peer: Peer) -> None:
        """Tell a registered connection what the reference tells its own: that nobody controls this server from afar."""
        told = RemoteControlStatusChangedNotification(installation_id=self._instance_id)
        body = Encoder().encode(_REMOTE_CONTROL, told, cursor=None, emitted_at_ms=self._clock_ms())
        self._members[peer.id].tell("", _REMOTE_CONTROL, body)

    def drop(self, peer: Peer) -> None:
        """Forget a connection that is gone: unsubscribe it from everything (05 §6). Its requests stay pending."""
        member = self._members.pop(peer.id, None)
        if member is None:
            return
        peer.outbox.on_space = None
        self._requests.forget_peer(peer.id)
        for subscription in member.ending.values():
            subscription.end()
        for thread_id, subscription in list(member.subscriptions.items()):
            self._end(thread_id, peer.id, subscription)

    def check_room(self, peer: Peer, thread_id: str | None = None) -> None:
        """Refuse one subscription too many, before anything is done for it. Calls in flight may go a few over.

        Args:
            thread_id: Already followed threads need no more room; None for one that is still to be made.

        Raises:
            LimitReached
        """
        member, most = self._members.get(peer.id), self.max_subscriptions
        if most is None or member is None or thread_id in member.subscriptions:
            return
        if len(member.subscriptions) >= most:
            raise LimitReached("subscriptions_per_connection", most)

    def subscribe(
        self,
        peer: Peer,
        thread_id: str,
        *,
        after: EventCursor | None = None,
        replay: ReplayOptions | None = None,
        resident: bool = True,
    ) -> Subscription:
        """Subscribe a registered connection to a thread; nothing is delivered until the result's `release`.

        Without `replay` it starts at the present end of the stream, or keeps its place if it was subscribed already.
        With it, it starts right after `after` (None: at the thread's beginning); check the cursor first.
        For a connection that is gone by now the result delivers nothing.

        Args:
            resident: False to watch only: the thread may be unloaded and loaded again meanwhile, and server requests
                go to others. Whoever is a resident already stays one.
        """
        member = self._members.get(peer.id)
        if member is None:
            gone = Subscription(peer, ThreadStream(thread_id, self.encoder), self)
            gone.end()
            return gone
        old = member.ending.pop(thread_id, None)
        if old is not None:
            old.end()
        subscription = member.subscriptions.get(thread_id)
        if subscription is None:
            subscription = Subscription(peer, self._streams.of(thread_id), self, limit_bytes=self._slow_limit_bytes)
            member.subscriptions[thread_id] = subscription
            self._subscribers.setdefault(thread_id, {})[peer.id] = subscription
        subscription.resident = subscription.resident or resident
        subscription.hold()
        if replay is not None:
            subscription.start_after(after, replay=replay)
        return subscription

    def unsubscribe(self, peer: Peer, thread_id: str) -> bool:
        """End a subscription; False when there was none."""
        member = self._members.get(peer.id)
        subscription = member.subscriptions.pop(thread_id, None) if member else None
        if subscription is None:
            return False
        self._end(thread_id, peer.id, subscription)
        return True

    def subscribed(self, peer: Peer, thread_id: str) -> bool:
        """Whether the connection is subscribed to the thread."""
        return peer.id in self._subscribers.get(thread_id, {})

    def subscribers(self, thread_id: str) -> int:
        """How many connections keep the thread loaded; those that only watch do not count."""
        return sum(subscription.resident for subscription in self._subscribers.get(thread_id, {}).values())

    def step(self, peer: Peer, thread_id: str, count: int) -> int | None:
        """Let a client's stepwise replay go on; None when it is not subscribed, 0 when nothing waits for a step."""
        subscription = self._subscribers.get(thread_id, {}).get(peer.id)
        return None if subscription is None else subscription.grant(count)

    def abandon(self, thread_id: str) -> None:
        """The thread is gone for good: end what still watches it."""
        for peer_id, subscription in list(self._subscribers.get(thread_id, {}).items()):
            self._members[peer_id].subscriptions.pop(thread_id)
            self._end(thread_id, peer_id, subscription)

    def position(self, thread_id: str) -> EventCursor | None:
        """The cursor of the thread's newest event: where a snapshot that is taken now stands."""
        stream = self._streams.find(thread_id)
        return stream.end if stream else None

    def cursors(self, peer: Peer) -> dict[str, str] | None:
        """By thread, the newest event that a connection was handed; None before its handshake."""
        member = self._members.get(peer.id)
        if member is None:
            return None
        following = {**member.ending, **member.subscriptions}
        return {name: one.cursor.encode() for name, one in following.items() if one.cursor is not None}

    async def check_cursor(self, thread_id: str, cursor: EventCursor) -> None:
        """Refuse a cursor that is no place in the thread's past; called before `subscribe(replay=…)`.

        Raises:
            InvalidParams: `data.reason` is `cursorInvalid`.
        """
        stream = self._streams.find(thread_id)
        if stream is not None and self._streams.is_loaded(thread_id) and not stream.before_ring(cursor):
            if stream.reached(cursor):
                return
            raise invalid_cursor("it lies in the future")
        if self.replay is not None:
            await self.replay.check_cursor(thread_id, cursor)

    def answer(self, peer: Peer, request_id: int | str, message: Mapping[str, Any]) -> bool:
        """Take a client's answer to a server request; False when it answers none that is pending for it."""
        request = self._requests.answer(peer.id, request_id, message)
        if request is not None:
            self._resolve(request)
        return request is not None

    def figures(self) -> Iterable[Sample]:
        """Subscriptions, how many of them are behind, and what their threads keep in memory."""
        following = [one for each in self._subscribers.values() for one in each.values()]
        yield Sample(metrics.SUBSCRIPTIONS, len(following))
        yield Sample(metrics.BEHIND, sum(not one.live for one in following))
        yield Sample(metrics.RING_BYTES, self._streams.waiting_bytes)
        yield Sample(metrics.PUBLISHED, self._published)

    async def close(self) -> None:
        """End all subscriptions and wait for the tasks that read the log for them."""
        for member in list(self._members.values()):
            self.drop(member.peer)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- sessions ------------------------------------------------------------------------------------------------

    def publish(
        self,
        thread_id: str,
        method: str,
        params: WireModel | Mapping[str, Any],
        *,
        cursor: EventCursor | None = None,
        everyone: bool = False,
        turn_completed_first: bool | None = None,
    ) -> None:
        """Put one event at the end of the thread's stream and hand it to whoever has caught up."""
        if turn_completed_first:
            self._follow(thread_id, method, params)
            return
        stream = self._streams.of(thread_id)
        event = stream.publish(
            method,
            params,
            cursor=cursor,
            everyone=everyone,
            emitted_at_ms=self._clock_ms(),
            turn_first=turn_completed_first is None,
        )
        self._published += 1
        subscribers = self._subscribers.get(thread_id, {})
        for subscription in list(subscribers.values()):
            subscription.push(event)
        if everyone:
            others = [member for key, member in self._members.items() if key not in subscribers]
            meant = (one for one in others if event.turn_first or not one.peer.turn_completed_first)
            self._tell(self._allowed(meant, thread_id), thread_id, method, without_cursor(event.body, event.cursor))

    def _follow(self, thread_id: str, method: str, params: WireModel | Mapping[str, Any]) -> None:
        """Show a status behind the `turn/completed` that was published last, to those that want it there."""
        wanting = [
            member for member in self._allowed(self._members.values(), thread_id) if member.peer.turn_completed_first
        ]
        if not wanting:
            return
        body = self.encoder.encode(method, params, cursor=None, emitted_at_ms=self._clock_ms())
        self._streams.of(thread_id).follow(body)
        subscribers = self._subscribers.get(thread_id, {})
        for member in wanting:
            subscription = subscribers.get(member.peer.id)
            if subscription is None:
                member.tell(thread_id, method, body)
            elif subscription.live:
                subscription.send_follower(method, body)

    def broadcast(self, method: str, params: WireModel | Mapping[str, Any], *, tenant: str | None = None) -> None:
        """Send a notification to every initialised connection that may know of its thread, outside of its stream.

        Args:
            tenant: Whose the thread is, where the caller knows better than `tenant_of`: it may be gone by now.
        """
        body = self.encoder.encode(method, params, cursor=None, emitted_at_ms=self._clock_ms())
        thread_id = _thread_of(plain(params))
        self._tell(self._allowed(self._members.values(), thread_id, tenant), thread_id, method, body)

    async def ask(
        self,
        thread_id: str,
        turn_id: str,
        method: str,
        params: Mapping[str, Any],
        *,
        accepts: Callable[[Mapping[str, Any]], bool] = lambda _message: True,
        expiry: Coroutine[Any, Any, None] | None = None,
    ) -> Mapping[str, Any]:
        """Send a request to all subscribers, now and later ones, and wait for the first valid answer (wire §6).

        Args:
            accepts: Whether a message decides; others are passed over.
            expiry: Ends the wait when it returns.

        Raises:
            TimeoutError: It expired; it is resolved for everyone.
            asyncio.CancelledError: The asking turn ends, or the thread was unloaded. The request stays open until it
                is withdrawn with `cancel`; clients see it resolved then, before the turn's end.
        """
        request_id = self._requests.next_id()
        body = self.encoder.request(request_id, method, params)
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        place = self._streams.of(thread_id).next_seq
        request = PendingRequest(request_id, thread_id, turn_id, body, place, answer, accepts)
        self._requests.add(request)
        for subscription in self._subscribers.get(thread_id, {}).values():
            if subscription.live and subscription.resident:
                subscription.send(request)
        limit = None if expiry is None else self.spawn(expiry, f"expiry-{request_id}")
        try:
            await asyncio.wait((answer,) if limit is None else (answer, limit), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                self._resolve(request)
                raise TimeoutError
            return answer.result()
        finally:
            answer.cancel()
            if limit is not None:
                limit.cancel()

    def cancel(self, thread_id: str, turn_id: str | None = None) -> None:
        """Withdraw the thread's pending requests (those of one turn); whoever asked gets CancelledError."""
        for request in self._requests.open_of_thread(thread_id):
            if turn_id is None or request.turn_id == turn_id:
                request.answer.cancel()
                self._resolve(request)

    def reset(self, thread_id: str, position: EventCursor) -> None:
        """Tell where the thread's log ends as it is loaded: everything after `position` will be published.

        Those who watched it while it was not loaded first get what others recorded meanwhile.
        """
        stream = self._streams.load(thread_id, position, self._clock_ms())
        for subscription in list(self._subscribers.get(thread_id, {}).values()):
            if subscription.stream is stream:
                subscription.follow(stream)

    def forget(self, thread_id: str) -> None:
        """Drop a thread's stream after it was unloaded. A subscriber that is behind still gets the rest of it.

        The subscriptions of residents end; those who only watch stay, for the next time that it is loaded.
        """
        self.cancel(thread_id)
        stream = self._streams.unload(thread_id)
        for peer_id, subscription in list(self._subscribers.get(thread_id, {}).items()):
            if subscription.resident:
                self._leave(thread_id, self._members[peer_id], peer_id)
            elif subscription.live:
                subscription.follow(self._streams.after(stream, thread_id))
            else:
                subscription.finish(partial(self._rejoin, thread_id, subscription, stream))

    def _leave(self, thread_id: str, member: Member, peer_id: Hashable) -> None:
        """A resident's thread was unloaded."""
        subscription = member.subscriptions.pop(thread_id)
        self._take_out(thread_id, peer_id)
        if subscription.live:
            subscription.end()
        else:
            member.ending[thread_id] = subscription
            subscription.finish(partial(self._left, thread_id, member, subscription))

    def _left(self, thread_id: str, member: Member, subscription: Subscription) -> None:
        subscription.end()
        member.forget(thread_id)

    def _rejoin(self, thread_id: str, subscription: Subscription, old: ThreadStream | None) -> None:
        """A watcher got the rest of a stream that has ended."""
        subscription.follow(self._streams.after(old, thread_id))

    # -- inside --------------------------------------------------------------------------------------------------

    def _resolve(self, request: PendingRequest) -> None:
        """Take a request back and tell all subscribers, once, whether it was answered or withdrawn (wire §6)."""
        if self._requests.remove(request):
            params = {"threadId": request.thread_id, "requestId": request.id}
            self.publish(request.thread_id, "serverRequest/resolved", params)

    def _take_out(self, thread_id: str, peer_id: Hashable) -> None:
        self._subscribers[thread_id].pop(peer_id, None)
        if not self._subscribers[thread_id]:
            del self._subscribers[thread_id]

    def _end(self, thread_id: str, peer_id: Hashable, subscription: Subscription) -> None:
        subscription.end()
        self._take_out(thread_id, peer_id)
        if thread_id not in self._subscribers:
            self._streams.drop_idle(thread_id)
        if self.on_unsubscribed is not None:
            self.on_unsubscribed(thread_id)

    def _allowed(self, members: Iterable[Member], thread_id: str, tenant: str | None = None) -> list[Member]:
        """Those who may know of a thread; of one whose tenant is not known nobody may."""
        if self.tenant_of is None or not thread_id:
            return list(members)
        owner = self.tenant_of(thread_id) if tenant is None else tenant
        return [member for member in members if member.peer.principal.tenant == owner]

    def _tell(self, members: Iterable[Member], thread_id: str, method: str, body: bytes) -> None:
        for member in list(members):
            member.tell(thread_id, method, body)

    # -- for subscriptions ---------------------------------------------------------------------------------------

    def requests_of(self, thread_id: str) -> Iterable[PendingRequest]:
        """See `subscription.Host`."""
        return self._requests.of_thread(thread_id)

    def at_rest(self, thread_id: str) -> bool:
        """See `subscription.Host`."""
        return not self._streams.is_loaded(thread_id)

    def too_slow(self, peer: Peer) -> None:
        """End a connection that asked for it, with the places where it can go on (DESIGN §6)."""
        places = self.cursors(peer)
        if places is None:
            return
        told = {"reason": "slowClient", "cursors": places}
        self.drop(peer)
        peer.give_up(self.encoder.encode("connection/closing", told, cursor=None, emitted_at_ms=self._clock_ms()))

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """See `subscription.Host`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _thread_of(params: Mapping[str, Any]) -> str:
    """The thread that a broadcast speaks of, as far as its parameters say; empty where they do not."""
    thread = params.get("thread")
    found = params.get("threadId") or (thread.get("id") if isinstance(thread, Mapping) else None)
    return found if isinstance(found, str) else ""
