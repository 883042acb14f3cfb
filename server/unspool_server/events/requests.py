"""Server requests to clients that are not answered yet: approvals and client-side tools (wire §6, 05 §5).

One request goes to every subscriber under one id; the first valid answer of a connection that was asked wins. What an
answer means, and which decisions exist, is the asking turn's business.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A request that waits for its answer.

    Attributes:
        seq: The thread's next sequence number as it was asked: it belongs before the event with this number.
        accepts: Whether a message decides; one that does not is passed over, and the request stays open.
        asked: Connections it was sent to, by id; only these may answer.
    """

    id: int
    thread_id: str
    turn_id: str
    body: bytes
    seq: int
    answer: asyncio.Future[Mapping[str, Any]]
    accepts: Callable[[Mapping[str, Any]], bool] = lambda _message: True
    asked: set[Hashable] = field(default_factory=set)


class PendingRequests:
    """All pending requests of the process, in the order of their ids."""

    def __init__(self) -> None:
        self._next_id = 0
        self._pending: dict[int, PendingRequest] = {}

    def next_id(self) -> int:
        """Ids are integers counted from 0 per process, unique over all connections."""
        self._next_id += 1
        return self._next_id - 1

    def add(self, request: PendingRequest) -> None:
        """Keep a request until `remove`."""
        self._pending[request.id] = request

    def remove(self, request: PendingRequest) -> bool:
        """Take a request back, whether it was answered or not; False when that was done before."""
        return self._pending.pop(request.id, None) is not None

    def of_thread(self, thread_id: str) -> Iterator[PendingRequest]:
        """The thread's unanswered requests, oldest first."""
        return (request for request in self.open_of_thread(thread_id) if not request.answer.done())

    def open_of_thread(self, thread_id: str) -> Iterator[PendingRequest]:
        """Also those that nobody waits for any more and that clients are not told of yet."""
        return iter([request for request in self._pending.values() if request.thread_id == thread_id])

    def answer(self, peer_id: Hashable, request_id: int | str, message: Mapping[str, Any]) -> PendingRequest | None:
        """Take a client's answer, `{"result": …}` or `{"error": {…}}`.

        Returns:
            The request; None when nothing was taken: no such request, answered already, the connection was not asked,
            or the message is no answer that decides.
        """
        request = self._pending.get(request_id) if type(request_id) is int else None
        if request is None or request.answer.done() or peer_id not in request.asked:
            return None
        if ("result" in message) == ("error" in message):
            return None
        member = "result" if "result" in message else "error"
        if member == "error" and not isinstance(message["error"], Mapping):
            return None
        if not request.accepts(message):
            return None
        request.answer.set_result({member: message[member]})
        return request

    def forget_peer(self, peer_id: Hashable) -> None:
        """A connection that is gone can answer nothing; its requests stay pending for the others."""
        for request in self._pending.values():
            request.asked.discard(peer_id)
