"""A scripted daemon with one thread: it speaks the wire, keeps and replays its events, and cuts connections."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from unspool_client import Channel, ConnectionLost, memory_pair
from unspool_protocol.cursors import EventCursor
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

THREAD_ID = "01900000-0000-7000-8000-000000000001"
TURN_ID = "01900000-0000-7000-8000-00000000000a"
DELTAS = 30

Handler = Callable[["Peer", dict[str, Any]], Any]


class Cut(Exception):
    """The connection was cut by the script."""


class SocketChannel:
    """The server's end of a WebSocket; closing it drops the TCP connection as a broken network does."""

    def __init__(self, socket: ServerConnection) -> None:
        self._socket = socket

    async def send(self, message: bytes) -> None:
        try:
            await self._socket.send(message, text=True)
        except ConnectionClosed as error:
            raise ConnectionLost("closed") from error

    async def receive(self) -> bytes | None:
        try:
            return await self._socket.recv(decode=False)
        except ConnectionClosed:
            return None

    async def close(self) -> None:
        self._socket.transport.abort()

    def lost_because(self) -> str:
        return ""


@dataclass(eq=False)
class Peer:
    """One connection."""

    channel: Channel
    subscribed: bool = False
    sent: int = 0
    pending: list[Mapping[str, Any]] = field(default_factory=list)


class FakeDaemon:
    """One thread, one script.

    Attributes:
        cut_at: Cut the connection instead of sending the message with this number, counted over all connections.
        cut_every: Cut every connection after this many messages.
        handlers: Replace or add methods.
        opaque: Give cursors that tell no order.
    """

    def __init__(self) -> None:
        self.opaque = False
        self.events: list[dict[str, Any]] = []
        self.received: list[dict[str, Any]] = []
        self.handshakes: list[dict[str, Any]] = []
        self.resumes: list[dict[str, Any]] = []
        self.sent = 0
        self.cut_at: int | None = None
        self.cut_every: int | None = None
        self.cuts = 0
        self.peers: list[Peer] = []
        self.handlers: dict[str, Handler] = {}
        self.turn_status = "inProgress"
        self.client_ids: list[str] = []
        self.answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.requests: list[dict[str, Any]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # Ways in

    async def open_memory(self) -> Channel:
        """A channel factory for `Client.over`."""
        client, server = memory_pair()
        self.spawn(self.serve(server))
        return client

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[str]:
        """A WebSocket server on a free port; gives its address."""

        async def handler(socket: ServerConnection) -> None:
            await self.serve(SocketChannel(socket))

        async with serve(handler, "127.0.0.1", 0, max_size=None, compression=None) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            yield f"ws://127.0.0.1:{port}"

    def spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for peer in self.peers:
            await peer.channel.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # One connection

    async def serve(self, channel: Channel) -> None:
        peer = Peer(channel)
        self.peers.append(peer)
        try:
            while (raw := await channel.receive()) is not None:
                message = json.loads(raw)
                self.received.append(message)
                await self._take(peer, message)
        except (Cut, ConnectionLost):
            pass
        finally:
            self.peers.remove(peer)
            await channel.close()

    async def send(self, peer: Peer, message: Mapping[str, Any]) -> None:
        if (self.cut_at is not None and self.sent >= self.cut_at) or peer.sent == self.cut_every:
            self.cut_at = None
            self.cuts += 1
            peer.subscribed = False
            await peer.channel.close()
            raise Cut
        self.sent += 1
        peer.sent += 1
        await peer.channel.send(json.dumps(message).encode())

    async def _take(self, peer: Peer, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if method is None:
            self.answers.put_nowait(message)
            return
        if "id" not in message:
            return
        handler = self.handlers.get(method) or getattr(self, "_" + method.replace("/", "_"), None)
        if handler is None:
            error = {"code": -32600, "message": "unknown", "data": {"reason": "unknownMethod"}}
            await self.send(peer, {"id": message["id"], "error": error})
            return
        answer = handler(peer, message)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer is None:
            return
        try:
            await self.send(peer, {"id": message["id"], **answer})
        finally:
            if method == "turn/start":
                self.spawn(self.run_turn())
        if method == "thread/resume":
            await self._replay(peer, params.get("replay"))

    # Methods

    def _initialize(self, peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        self.handshakes.append(message)
        return {"result": {"userAgent": "fake/0.171.0", "codexHome": "/home"}}

    def _setup(self) -> dict[str, Any]:
        thread = {
            "id": THREAD_ID,
            "sessionId": THREAD_ID,
            "cwd": "/workspace",
            "cliVersion": "0.171.0",
            "createdAt": 1,
            "updatedAt": 1,
            "modelProvider": "offline",
            "turns": [],
        }
        return {"thread": thread, "cursor": self.events[-1]["cursor"] if self.events else None}

    def _thread_start(self, peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        peer.subscribed = True
        return {"result": self._setup()}

    def _thread_resume(self, peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        self.resumes.append(message["params"])
        return {"result": self._setup()}

    async def _replay(self, peer: Peer, replay: Mapping[str, Any] | None) -> None:
        """Everything after the cursor, what comes in meanwhile included; then the peer is live."""
        peer.subscribed = False
        if replay is not None:
            cursors = [event["cursor"] for event in self.events]
            start = 0 if replay["after"] is None else cursors.index(replay["after"]) + 1
            while start < len(self.events):
                await self.send(peer, {**self.events[start], "replayed": True})
                start += 1
        peer.subscribed = True
        for request in self.requests:
            await self.send(peer, request)

    def _turn_start(self, peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        self.client_ids.append(message["params"]["clientUserMessageId"])
        return {"result": {"turn": {"id": TURN_ID, "items": [], "itemsView": "notLoaded", "status": "inProgress"}}}

    def _thread_turns_list(self, peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        items = [{"type": "userMessage", "id": "u", "content": [], "clientId": mark} for mark in self.client_ids]
        turns = [{"id": TURN_ID, "items": items, "status": self.turn_status}] if items else []
        return {"result": {"data": turns, "nextCursor": None}}

    def _thread_unsubscribe(self, peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        was, peer.subscribed = peer.subscribed, False
        return {"result": {"status": "unsubscribed" if was else "notSubscribed"}}

    # The script

    async def publish(self, method: str, params: Mapping[str, Any], ordinal: int, counter: int = 0) -> None:
        cursor = f"c{ordinal}.{counter}" if self.opaque else EventCursor(THREAD_ID, ordinal, counter).encode()
        event = {"method": method, "params": {"threadId": THREAD_ID, **params}, "cursor": cursor}
        self.events.append(event)
        for peer in [peer for peer in self.peers if peer.subscribed]:
            try:
                await self.send(peer, event)
            except (Cut, ConnectionLost):
                peer.subscribed = False

    async def ask(self, request_id: int, method: str, params: Mapping[str, Any]) -> None:
        """Send a server request to all subscribers, now and later ones."""
        request = {"id": request_id, "method": method, "params": {"threadId": THREAD_ID, **params}}
        self.requests.append(request)
        for peer in [peer for peer in self.peers if peer.subscribed]:
            await self.send(peer, request)

    async def run_turn(self) -> None:
        """A streaming turn: user message, a message in many deltas, usage and the end."""
        text = "".join(f"word{n} " for n in range(DELTAS))
        user = {"type": "userMessage", "id": "u", "content": [], "clientId": self.client_ids[-1]}
        message = {"type": "agentMessage", "id": "m", "text": ""}
        tokens = {"totalTokens": 3, "inputTokens": 1, "cachedInputTokens": 0, "outputTokens": 2}
        turn = {"id": TURN_ID, "items": [], "status": "inProgress"}
        await self.publish("thread/status/changed", {"status": {"type": "active", "activeFlags": []}}, 1)
        await self.publish("turn/started", {"turn": turn}, 2)
        await self.publish("item/started", {"turnId": TURN_ID, "item": user, "startedAtMs": 1}, 3)
        await self.publish("item/completed", {"turnId": TURN_ID, "item": user, "completedAtMs": 1}, 3, 1)
        await self.publish("item/started", {"turnId": TURN_ID, "item": message, "startedAtMs": 1}, 3, 2)
        for n in range(DELTAS):
            await asyncio.sleep(0)
            delta = {"turnId": TURN_ID, "itemId": "m", "delta": f"word{n} "}
            await self.publish("item/agentMessage/delta", delta, 3, 3 + n)
        message = {**message, "text": text}
        await self.publish("item/completed", {"turnId": TURN_ID, "item": message, "completedAtMs": 2}, 4)
        usage = {"turnId": TURN_ID, "tokenUsage": {"total": tokens, "last": tokens}}
        await self.publish("thread/tokenUsage/updated", usage, 5)
        await self.publish("thread/status/changed", {"status": {"type": "idle"}}, 5, 1)
        self.turn_status = "completed"
        end = {"id": TURN_ID, "items": [message], "itemsView": "summary", "status": "completed"}
        await self.publish("turn/completed", {"turn": end}, 6)
