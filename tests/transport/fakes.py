"""A small method table and a fake hub: what connections need, without threads and sessions."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from unspool_protocol.base import WireModel
from unspool_server.access.gatekeeper import Gatekeeper
from unspool_server.connection import MAX_IN_FLIGHT, MAX_UNSENT_BYTES, Shared
from unspool_server.envelope import MessageId
from unspool_server.errors import LogMissing, StoreClosed, WriteFailed, WriterHeld
from unspool_server.events.outbox import Outbox
from unspool_server.handlers.context import Handler, NoParams, Peer, RequestContext
from unspool_server.rpc import Dispatcher, Gate


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class EchoParams(WireModel):
    thread_id: str
    limit: int | None = None
    flag: bool | None = None
    colour: Colour | None = None
    inner: "EchoInner | None" = None


class EchoInner(WireModel):
    name: str


class Text(WireModel):
    type: Literal["text"]
    text: str


class Image(WireModel):
    type: Literal["image"]
    url: str


class InputParams(WireModel):
    input: Sequence[Annotated[Text | Image, Field(discriminator="type")]]
    policy: EchoInner | Literal["never"] | None = None
    limit: int | None = Field(default=None, ge=0, lt=2**32)


class Empty(WireModel):
    note: str | None = None


class FakeHub:
    """Remembers what connections tell it."""

    def __init__(self) -> None:
        self.peers: dict[int, Peer] = {}
        self.dropped: list[int] = []
        self.empty = asyncio.Event()
        self.answers: list[tuple[int, MessageId, Mapping[str, Any]]] = []

    def register(self, peer: Peer) -> None:
        self.peers[peer.id] = peer

    def greet(self, peer: Peer) -> None:
        pass

    def drop(self, peer: Peer) -> None:
        self.peers.pop(peer.id, None)
        self.dropped.append(peer.id)
        if not self.peers:
            self.empty.set()

    def answer(self, peer: Peer, request_id: MessageId, message: Mapping[str, Any]) -> bool:
        self.answers.append((peer.id, request_id, message))
        return True


class Table:
    """The fake methods. `gate` blocks `test/wait`; `started` tells in which order requests began."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.running = asyncio.Event()
        self.started: list[Any] = []
        self.cancelled = 0
        self.ending = False

    def handlers(self) -> dict[str, Handler]:
        rows: list[tuple[str, type[WireModel] | None, Any]] = [
            ("test/echo", EchoParams, self.echo),
            ("test/input", InputParams, self.empty),
            ("test/none", None, self.none),
            ("test/empty", Empty, self.empty),
            ("test/wait", Empty, self.wait),
            ("test/fail", EchoParams, self.fail),
            ("test/after", Empty, self.after),
            ("test/afterFailure", Empty, self.after_failure),
            ("test/gated", Empty, self.empty),
            ("test/big", Empty, self.big),
        ]
        return {method: Handler(method, params, call) for method, params, call in rows}

    async def echo(self, ctx: RequestContext, params: EchoParams) -> WireModel:
        self.started.append(params.thread_id)
        return params

    async def none(self, ctx: RequestContext, params: NoParams) -> Mapping[str, Any]:
        return {"requirements": None}

    async def empty(self, ctx: RequestContext, params: WireModel) -> Mapping[str, Any]:
        return {"data": [], "nextCursor": None}

    async def wait(self, ctx: RequestContext, params: Empty) -> Mapping[str, Any]:
        self.running.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return {"waited": True}

    async def big(self, ctx: RequestContext, params: Empty) -> Mapping[str, Any]:
        return {"text": "x" * 100_000}

    async def fail(self, ctx: RequestContext, params: EchoParams) -> Mapping[str, Any]:
        errors: dict[str, BaseException] = {
            "missing": LogMissing("T"),
            "archived": LogMissing("T", archived=True),
            "held": WriterHeld("T", "pid 7"),
            "disk": WriteFailed("/home/secret: no space"),
            "closed": StoreClosed("the thread is closing"),
            "bug": ZeroDivisionError("secret text"),
            "cancel": asyncio.CancelledError(),
        }
        raise errors[params.thread_id]

    async def after(self, ctx: RequestContext, params: Empty) -> Mapping[str, Any]:
        ctx.after(lambda: ctx.peer.outbox.put(b'{"method":"test/happened"}'))
        await asyncio.sleep(0)
        return {}

    async def after_failure(self, ctx: RequestContext, params: Empty) -> Mapping[str, Any]:
        ctx.after(lambda: 1 / 0)  # type: ignore[arg-type]
        ctx.after(lambda: ctx.peer.outbox.put(b'{"method":"test/happened"}'))
        raise LogMissing("T")


class WatchedOutbox(Outbox):
    """Tells when more than 100 000 bytes wait for its client, and how many there ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.piled_up = asyncio.Event()
        self.most = 0

    def put(self, body: bytes) -> None:
        super().put(body)
        self.most = max(self.most, self.waiting_bytes)
        if self.waiting_bytes > 100_000:
            self.piled_up.set()


GATE = Gate(frozenset({"test/gated"}), {"test/echo": ("flag",)})


def make_shared(
    table: Table,
    hub: FakeHub,
    *,
    max_in_flight: int = MAX_IN_FLIGHT,
    max_unsent_bytes: int = MAX_UNSENT_BYTES,
    new_outbox: Callable[[], Outbox] = Outbox,
    gatekeeper: Gatekeeper | None = None,
) -> Shared:
    dispatcher = Dispatcher(table.handlers, lambda: GATE, ending=lambda: table.ending)
    return Shared(
        dispatcher,
        hub,
        Path("/home/of/logs"),
        max_in_flight=max_in_flight,
        max_unsent_bytes=max_unsent_bytes,
        new_outbox=new_outbox,
        gatekeeper=gatekeeper or Gatekeeper(),
    )
