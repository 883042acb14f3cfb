"""What a handler gets beside its parameters, and how the method table names handlers.

Owns no dispatch (`rpc.py`) and no connection state (`connection.py`): the connection fills these in.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from unspool_protocol.base import WireModel

from unspool_server.access.principal import Principal
from unspool_server.events.outbox import Outbox
from unspool_server.events.slow import SlowClient


class Peer(Protocol):
    """A client as handlers and events see it: one connection with its own handshake (`wire` §3)."""

    @property
    def id(self) -> int:
        """Unique among the connections of this process; never reused."""

    @property
    def principal(self) -> Principal:
        """Who it belongs to: tenant and scopes."""

    @property
    def outbox(self) -> Outbox:
        """Where its messages go; encoded without the `jsonrpc` member."""

    @property
    def opted_out(self) -> frozenset[str]:
        """Names of notifications that it does not want (`optOutNotificationMethods`)."""

    @property
    def initialized(self) -> bool:
        """Whether `initialize` was answered; before that it gets no broadcasts."""

    @property
    def experimental(self) -> bool:
        """Whether it declared `capabilities.experimentalApi`."""

    @property
    def client_name(self) -> str:
        """`clientInfo.name`, empty before `initialize`."""

    @property
    def client_version(self) -> str:
        """`clientInfo.version`, empty before `initialize`."""

    @property
    def slow_client(self) -> SlowClient:
        """What it wants to happen when it reads too slowly (DESIGN §6)."""

    @property
    def turn_completed_first(self) -> bool:
        """Whether it wants `turn/completed` before the status that follows from it."""

    def give_up(self, last_words: bytes) -> None:
        """End the connection after this message: the client is too slow for its own policy."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request's surroundings.

    Attributes:
        peer: Who asks.
        services: What the composition root offers to handlers (their own `Services` object).
        after: Registers a call to be made right after the answer was put into the outbox, also when the request
            failed or the peer is gone. What it queues therefore follows the answer on the wire (`wire` §1).
    """

    peer: Peer
    services: Any
    after: Callable[[Callable[[], None]], None]


class NoParams(WireModel):
    """Given to endpoints of methods without parameters."""


Endpoint = Callable[[RequestContext, Any], Awaitable[WireModel | Mapping[str, Any]]]
"""One method's function: context and validated parameters in, result out. Raises `UnspoolError`s for refusals."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A row of the method table.

    Attributes:
        method: The wire name, `thread/start`.
        params: The model that parameters must fit; None for methods that take none (`params: null` passes).
    """

    method: str
    params: type[WireModel] | None
    call: Endpoint
