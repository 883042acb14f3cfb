"""One registered connection among the others: its subscriptions by thread, and broadcasts that wait for room.

Who is told what is the hub's business.
"""

from unspool_server.events.subscription import Peer, Subscription


class Member:
    """A registered connection.

    Attributes:
        ending: Subscriptions of threads that were unloaded, until their last event is delivered.
        missed: Broadcasts that did not fit into the outbox, the newest per thread and method.
    """

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
