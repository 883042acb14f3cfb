"""One WebSocket connection that can be treated badly: reset, left unread, closed; it counts the answers it is owed."""

import asyncio
import itertools
import random
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

Message = dict[str, Any]
ANSWER_S = 180.0
"""Longest wait for an answer; only an end that never comes takes so long."""

SMALL_BUFFER = 4096
"""Bytes that the system keeps for a client that is to look slow."""

SMALL_SEGMENT = 600
"""Bytes of a TCP segment to such a client."""


ENDING = frozenset({"shuttingDown", "cancelled"})
"""Reasons of a server that ends: nothing was done, and the next one will serve the call."""


class Cut(Exception):
    """The connection is gone."""


class Refused(Exception):
    """An error answer."""

    def __init__(self, method: str, error: Mapping[str, Any]) -> None:
        super().__init__(f"{method}: {error['code']} {error['message']} {error.get('data')}")
        self.reason = (error.get("data") or {}).get("reason")


class Line:
    """A connection after its handshake.

    Args:
        heard: Called with each notification and server request as it is read.
        complain: Told of broken promises about answers.
    """

    def __init__(
        self, socket_: ClientConnection, heard: Callable[[Message], None], complain: Callable[[str], None]
    ) -> None:
        self._socket = socket_
        self._heard, self._complain = heard, complain
        self._ids = itertools.count(1)
        self._owed: dict[int, tuple[asyncio.Future[Message], Callable[[Message], None]]] = {}
        self._reading = asyncio.Event()
        self._reading.set()
        self.gone = asyncio.Event()
        self._on_gone: Callable[[], None] = lambda: None
        self._reader = asyncio.create_task(self._read(), name="line reader")

    @classmethod
    async def open(
        cls,
        url: str,
        heard: Callable[[Message], None],
        complain: Callable[[str], None],
        *,
        capabilities: Mapping[str, Any],
        small: bool = False,
    ) -> "Line":
        """Connect and shake hands. Raises Cut."""
        parts = urlsplit(url)
        raw = socket.socket()
        try:
            if small:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
                # The other side's system makes its buffer a multiple of this, which is huge within one machine.
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT)
            raw.setblocking(False)
            async with asyncio.timeout(ANSWER_S):
                await asyncio.get_running_loop().sock_connect(raw, (parts.hostname, parts.port))
                made = await connect(
                    url, sock=raw, compression=None, ping_interval=None, max_size=None, max_queue=16, proxy=None
                )
        except (OSError, WebSocketException, EOFError) as error:
            raw.close()
            raise Cut from error
        except BaseException:
            raw.close()
            raise
        line = cls(made, heard, complain)
        try:
            await line.call(
                "initialize",
                clientInfo={"name": "storm", "version": "1"},
                capabilities={"experimentalApi": True, **capabilities},
            )
        except BaseException:
            await line.cut(reset=True)
            raise
        return line

    async def call(
        self, method: str, *, answered: Callable[[Message], None] = lambda result: None, **params: Any
    ) -> Message:
        """The result of a request.

        Args:
            answered: Called with the result as it is read, before anything that follows it.

        Raises:
            Refused
            Cut
        """
        number = next(self._ids)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._owed[number] = answer, answered
        try:
            await self._socket.send(orjson.dumps({"id": number, "method": method, "params": params}).decode())
        except ConnectionClosed as error:
            raise Cut from error
        if self.gone.is_set():
            raise Cut
        async with asyncio.timeout(ANSWER_S):
            message = await answer
        if "error" in message:
            refused = Refused(method, message["error"])
            if refused.reason in ENDING:
                raise Cut from refused
            raise refused
        return cast(Message, message["result"])

    async def rest(self, seconds: float) -> None:
        """Stay connected that long, or until the connection is gone. Raises Cut then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.gone.wait()
        if self.gone.is_set():
            raise Cut

    def on_gone(self, call: Callable[[], None]) -> None:
        """Call this when the connection is gone."""
        self._on_gone = call

    def stop_reading(self) -> None:
        """Read nothing until `read_on`."""
        self._reading.clear()

    def read_on(self) -> None:
        """Read again."""
        self._reading.set()

    async def cut(self, *, reset: bool) -> None:
        """End the connection, by a TCP reset or with a closing handshake; whatever was not read is lost."""
        if reset:
            transport = self._socket.transport
            raw = transport.get_extra_info("socket")
            with suppress(OSError, AttributeError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        else:
            with suppress(ConnectionClosed):
                await self._socket.close()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    def unanswered(self) -> int:
        """Requests without an answer."""
        return len(self._owed)

    async def _read(self) -> None:
        try:
            while True:
                await self._reading.wait()
                message: Message = orjson.loads(await self._socket.recv())
                if "method" in message:
                    self._heard(message)
                else:
                    self._answer(message)
        except ConnectionClosed:
            pass
        finally:
            self.gone.set()
            self._on_gone()
            for answer, _ in self._owed.values():
                if not answer.done():
                    answer.set_exception(Cut())
                    answer.exception()  # nobody may be waiting for it any more
            with suppress(OSError):
                self._socket.transport.abort()

    def _answer(self, message: Message) -> None:
        owed = self._owed.pop(message["id"], None)
        if owed is None:
            self._complain(f"an answer that nobody asked for, or the second one: {message}")
            return
        if "result" in message:
            owed[1](message["result"])
        if not owed[0].done():
            owed[0].set_result(message)


def pause(chance: random.Random, mean_s: float) -> float:
    """A time that is mostly short and sometimes long."""
    return min(chance.expovariate(1 / mean_s), 5 * mean_s)
