"""Where sessions put what clients shall see. Implemented by `events.hub.Hub`; sessions know no connection."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from unspool_protocol.base import WireModel
from unspool_protocol.cursors import EventCursor


class EventSink(Protocol):
    """Receives the events of live threads in order. Nothing here waits for a client, except `ask`."""

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
        """Put one notification at the end of the thread's stream.

        Args:
            cursor: Given for events derived from a record. Without it the event is ephemeral and the stream gives it
                the next cursor behind its newest one.
            everyone: Also broadcast to initialised connections that are not subscribed (`wire` §4).
            turn_completed_first: Only for connections with (or without) this capability; None: for all.
        """

    def broadcast(self, method: str, params: WireModel | Mapping[str, Any]) -> None:
        """Send a notification to every initialised connection, outside any thread's stream."""

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
        """Send a request to all subscribers of a thread, now and later ones, and wait for the first valid answer.

        Args:
            accepts: Whether a message decides; others are passed over, and the request stays open.
            expiry: Ends the wait when it returns.

        Returns:
            `{"result": ...}` or `{"error": ...}` as the client gave it.

        Raises:
            TimeoutError: It expired; the request is resolved for everyone.
            asyncio.CancelledError: The asking turn ends. It withdraws the request with `cancel` before its end is told.
        """

    def cancel(self, thread_id: str, turn_id: str | None = None) -> None:
        """Withdraw the pending requests of a thread (of one turn of it); its subscribers see them resolved."""

    def subscribers(self, thread_id: str) -> int:
        """How many connections are subscribed to the thread."""

    def reset(self, thread_id: str, position: EventCursor) -> None:
        """Tell where the thread's log ends as it is loaded: everything after `position` will be published."""

    def forget(self, thread_id: str) -> None:
        """Drop a thread's stream after it was unloaded; its subscriptions end (`thread/closed` was published)."""
