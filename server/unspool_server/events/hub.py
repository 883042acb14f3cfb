"""The sink of all sessions' events and the place where connections subscribe to threads (05 §3, wire §4).

Owns which connection gets which event, in which order; neither what happens in a thread nor how bytes leave.
Everything but `ask`, `check_cursor` and `close` is synchronous: the order of calls is the order of messages.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from functools import partial
from typing import Any

from unspool_protocol.base import WireModel
from unspool_protocol.cursors import EventCursor

from unspool_server.errors import LimitReached
from unspool_server.events.encoding import Encoder, now_ms, plain
from unspool_server.events.requests import PendingRequest, PendingRequests
from unspool_server.events.stream import RING_BYTES, RING_EVENTS, ThreadStream, invalid_cursor
from unspool_server.events.subscription import Peer, ReplaySource, Subscription
from unspool_server.telemetry import metrics
from unspool_server.telemetry.instruments import Sample


class _Member:
    """A registered connection: its subscriptions by thread, and the broadcasts that did not fit into its outbox."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.subscriptions: dict[str, Subscription] = {}
        self.ending: dict[str, Subscription] = {}
        self.missed: dict[tuple[str, str], bytes] = {}

    def tell(self, thread_id: str, method: str, body: bytes) -> None:
        """Offer a broadcast; when the client is slow only the newest one per thread and method is kept for it."""
        if not self.peer.initialized or method in self.peer.opted_out:
            return
        if self.missed or not self.peer.outbox.offer(body):
            self.missed.pop((thread_id, method), None)
            self.missed[(thread_id, method)] = body

    def forget(self, thread_id: str) -> None:
        """The last event of an unloaded thread was delivered."""
        self.ending.pop(thread_id, None)

    def pump(self) -> None:
        """There is room in the outbox: missed broadcasts first, then the subscriptions that are behind."""
        for key, body in list(self.missed.items()):
            if not self.peer.outbox.offer(body):
                break
            del self.missed[key]
        for thread_id, subscription in list(self.subscriptions.items()):
            if not subscription.live:
                place = subscription.cursor
                subscription.pump()
                # Whoever was served goes to the end of the line, so that one busy thread cannot starve the others.
                if subscription.cursor is not place and self.subscriptions.get(thread_id) is subscription:
                    self.subscriptions[thread_id] = self.subscriptions.pop(thread_id)
        for subscription in list(self.ending.values()):
            subscription.pump()


class Hub:
    """Implements `sessions.sink.EventSink`, and what connections and handlers need beside it.

    Args:
        replay: Recorded events for clients that are further behind than the ring; None: such events are skipped.
        tenant_of: Tells whose a thread is, as far as is known, so that others are told nothing of it; without it
            everyone is told of everything.
        on_unsubscribed: Called with the thread id after a subscription ended by `unsubscribe` or `drop`.
        clock_ms: Milliseconds since the epoch.
        max_subscriptions: Of one connection; None: any number.
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
    ) -> None:
        self.max_subscriptions = max_subscriptions
        self.replay = replay
        self.tenant_of = tenant_of
        self.on_unsubscribed = on_unsubscribed
        self.encoder = Encoder()
        self._clock_ms = clock_ms
        self._ring_events, self._ring_bytes = ring_events, ring_bytes
        self._members: dict[Hashable, _Member] = {}
        self._streams: dict[str, ThreadStream] = {}
        self._subscribers: dict[str, dict[Hashable, Subscription]] = {}
        self._requests = PendingRequests()
        self._published = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # -- connections ---------------------------------------------------------------------------------------------

    def register(self, peer: Peer) -> None:
        """Make a connection known; it gets broadcasts as soon as it is initialised."""
        member = self._members[peer.id] = _Member(peer)
        peer.outbox.on_space = member.pump

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
        self, peer: Peer, thread_id: str, *, after: EventCursor | None = None, replay: bool = False
    ) -> Subscription:
        """Subscribe a registered connection to a thread; nothing is delivered until the result's `release`.

        Without `replay` it starts at the present end of the stream, or keeps its place if it was subscribed already.
        With it, it starts right after `after` (None: at the thread's beginning); check the cursor first.
        For a connection that is gone by now the result delivers nothing.
        """
        member = self._members.get(peer.id)
        if member is None:
            gone = Subscription(peer, ThreadStream(thread_id, self.encoder), None, tuple, self._spawn)
            gone.end()
            return gone
        old = member.ending.pop(thread_id, None)
        if old is not None:
            old.end()
        subscription = member.subscriptions.get(thread_id)
        if subscription is None:
            requests = partial(self._requests.of_thread, thread_id)
            subscription = Subscription(peer, self._stream(thread_id), self.replay, requests, self._spawn)
            member.subscriptions[thread_id] = subscription
            self._subscribers.setdefault(thread_id, {})[peer.id] = subscription
        subscription.hold()
        if replay:
            subscription.start_after(after, replay=True)
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
        """How many connections are subscribed to the thread."""
        return len(self._subscribers.get(thread_id, {}))

    def position(self, thread_id: str) -> EventCursor | None:
        """The cursor of the thread's newest event: where a snapshot that is taken now stands."""
        stream = self._streams.get(thread_id)
        return stream.end if stream else None

    def cursors(self, peer: Peer) -> dict[str, str] | None:
        """By thread, the newest event that a connection was handed; None before its handshake."""
        member = self._members.get(peer.id)
        if member is None:
            return None
        following = {**member.ending, **member.subscriptions}
        return {name: one.cursor.encode() for name, one in following.items() if one.cursor is not None}

    async def check_cursor(self, thread_id: str, cursor: EventCursor) -> None:
        """Refuse a cursor that is no place in the thread's past; called before `subscribe(replay=True)`.

        Raises:
            InvalidParams: `data.reason` is `cursorInvalid`.
        """
        stream = self._streams.get(thread_id)
        if stream is not None and not stream.before_ring(cursor):
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
        yield Sample(metrics.RING_BYTES, sum(stream.waiting_bytes for stream in self._streams.values()))
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
    ) -> None:
        """Put one event at the end of the thread's stream and hand it to whoever has caught up."""
        stream = self._stream(thread_id)
        event = stream.publish(method, params, cursor=cursor, everyone=everyone, emitted_at_ms=self._clock_ms())
        self._published += 1
        subscribers = self._subscribers.get(thread_id, {})
        for subscription in list(subscribers.values()):
            subscription.push(event)
        if everyone:
            others = [member for key, member in self._members.items() if key not in subscribers]
            self._tell(self._allowed(others, thread_id), thread_id, method, event.body)

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
            asyncio.CancelledError: The asking turn ends, or the thread was unloaded. Clients see it resolved behind the
                turn's end, when it is withdrawn with `cancel`.
        """
        request_id = self._requests.next_id()
        body = self.encoder.request(request_id, method, params)
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        place = self._stream(thread_id).next_seq
        request = PendingRequest(request_id, thread_id, turn_id, body, place, answer, accepts)
        self._requests.add(request)
        for subscription in self._subscribers.get(thread_id, {}).values():
            if subscription.live:
                subscription.send(request)
        limit = None if expiry is None else self._spawn(expiry, f"expiry-{request_id}")
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
        """Tell where the thread's log ends as it is loaded: everything after `position` will be published."""
        self._stream(thread_id).reset(position, self._clock_ms())

    def forget(self, thread_id: str) -> None:
        """Drop a thread's stream after it was unloaded. A subscriber that is behind still gets the rest of it."""
        self.cancel(thread_id)
        self._streams.pop(thread_id, None)
        for peer_id in self._subscribers.pop(thread_id, {}):
            member = self._members[peer_id]
            subscription = member.subscriptions.pop(thread_id)
            if subscription.live:
                subscription.end()
            else:
                member.ending[thread_id] = subscription
                subscription.finish(partial(member.forget, thread_id))

    # -- inside --------------------------------------------------------------------------------------------------

    def _stream(self, thread_id: str) -> ThreadStream:
        stream = self._streams.get(thread_id)
        if stream is None:
            stream = ThreadStream(thread_id, self.encoder, max_events=self._ring_events, max_bytes=self._ring_bytes)
            self._streams[thread_id] = stream
        return stream

    def _resolve(self, request: PendingRequest) -> None:
        """Take a request back and tell all subscribers, once, whether it was answered or withdrawn (wire §6)."""
        if self._requests.remove(request):
            params = {"threadId": request.thread_id, "requestId": request.id}
            self.publish(request.thread_id, "serverRequest/resolved", params)

    def _end(self, thread_id: str, peer_id: Hashable, subscription: Subscription) -> None:
        subscription.end()
        self._subscribers[thread_id].pop(peer_id, None)
        if not self._subscribers[thread_id]:
            del self._subscribers[thread_id]
        if self.on_unsubscribed is not None:
            self.on_unsubscribed(thread_id)

    def _allowed(self, members: Iterable[_Member], thread_id: str, tenant: str | None = None) -> list[_Member]:
        """Those who may know of a thread; of one whose tenant is not known nobody may."""
        if self.tenant_of is None or not thread_id:
            return list(members)
        owner = self.tenant_of(thread_id) if tenant is None else tenant
        return [member for member in members if member.peer.principal.tenant == owner]

    def _tell(self, members: Iterable[_Member], thread_id: str, method: str, body: bytes) -> None:
        for member in list(members):
            member.tell(thread_id, method, body)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _thread_of(params: Mapping[str, Any]) -> str:
    """The thread that a broadcast speaks of, as far as its parameters say; empty where they do not."""
    thread = params.get("thread")
    found = params.get("threadId") or (thread.get("id") if isinstance(thread, Mapping) else None)
    return found if isinstance(found, str) else ""
