"""A test's client: speaks raw messages over any transport and remembers everything it was sent, in order."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

WAIT_S = 20.0
"""Longest wait for anything."""

Message = dict[str, Any]


class Wire(Protocol):
    """One connection to a daemon, message by message."""

    async def send(self, message: Message | bytes) -> None:
        """Send one message, or bytes as they are."""

    async def recv(self) -> Message:
        """Wait for the next message. Raises EOFError at the end."""

    async def close(self) -> None:
        """Go away."""


class Refused(Exception):
    """An error answer."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error['code']} {error['message']} {error.get('data')}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Mapping[str, Any] = error.get("data") or {}

    @property
    def reason(self) -> Any:
        """The machine-readable reason."""
        return self.data.get("reason")


class Client:
    """One connection after its handshake. `seen` is every message of the server in the order it came."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._ids = itertools.count(1)
        self._news = asyncio.Event()
        self._ended = False
        self.seen: list[Message] = []
        self._reader = asyncio.create_task(self._read(), name="client reader")

    async def _read(self) -> None:
        try:
            while True:
                self.seen.append(await self._wire.recv())
                self._news.set()
        except EOFError:
            pass
        finally:
            self._ended = True
            self._news.set()

    async def close(self) -> None:
        """Go away and wait until the reader has ended."""
        await self._wire.close()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        """Send a message as it stands."""
        await self._wire.send(message)

    async def send_bytes(self, message: bytes) -> None:
        """Send bytes that are no good message."""
        await self._wire.send(message)

    async def ask(self, method: str, params: Any = None) -> int:
        """Send a request and do not wait; returns its id."""
        request_id = next(self._ids)
        await self.send({"id": request_id, "method": method, "params": params})
        return request_id

    async def answer(self, request_id: int) -> Message:
        """Wait for the answer to a request."""
        return await self.until(lambda message: message.get("id") == request_id and "method" not in message)

    async def call(self, method: str, params: Any = None) -> Any:
        """Send a request and return its result. Raises Refused."""
        answer = await self.answer(await self.ask(method, params))
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    async def refused(self, method: str, params: Any = None) -> Refused:
        """Send a request that must be refused."""
        try:
            result = await self.call(method, params)
        except Refused as refusal:
            return refusal
        raise AssertionError(f"{method} was served: {result}")

    async def settled(self) -> None:
        """Wait until everything that the server put out for this client before now has come."""
        await self.call("configRequirements/read")

    # -- notifications -------------------------------------------------------------------------------------------------

    @property
    def mark(self) -> int:
        """The place behind everything seen so far."""
        return len(self.seen)

    async def until(self, wanted: Callable[[Message], bool], *, since: int = 0) -> Message:
        """Wait for the first message from a place on that fits."""
        place = since
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    while place < len(self.seen):
                        if wanted(self.seen[place]):
                            return self.seen[place]
                        place += 1
                    if self._ended:
                        raise AssertionError(f"the connection ended; it brought {self.outline(since)}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"it did not come; instead came {self.outline(since)}") from None

    async def news(self) -> None:
        """Wait until something more was seen. Raises EOFError when nothing more can come."""
        if self._ended:
            raise EOFError
        self._news.clear()
        await self._news.wait()

    async def event(self, method: str, *, since: int = 0, **params: Any) -> Message:
        """Wait for a notification or server request whose parameters include these."""
        return await self.until(lambda message: fits(message, method, params), since=since)

    def events(self, thread_id: str, since: int = 0) -> list[Message]:
        """What came of a thread's events (messages with a cursor), in order."""
        return [m for m in self.seen[since:] if "cursor" in m and thread_of(m) == thread_id]

    def count(self, method: str, since: int = 0) -> int:
        """How often a notification came."""
        return sum(message.get("method") == method for message in self.seen[since:])

    def outline(self, since: int = 0) -> list[str]:
        """What came, in words: methods, and `answer` or `error` for answers."""
        return [_word(message) for message in self.seen[since:]]

    # -- what nearly every test does -----------------------------------------------------------------------------------

    async def start(self, **params: Any) -> str:
        """Start a thread; returns its id."""
        return str((await self.call("thread/start", params))["thread"]["id"])

    async def begin(self, thread_id: str, text: str = "", **params: Any) -> str:
        """Start a turn and do not wait for its end; returns its id."""
        given = [{"type": "text", "text": text}] if text else []
        result = await self.call("turn/start", {"threadId": thread_id, "input": given, **params})
        return str(result["turn"]["id"])

    async def ended(self, turn_id: str, since: int = 0) -> Any:
        """Wait for a turn's end; returns the turn as told."""
        done = await self.until(
            lambda m: m.get("method") == "turn/completed" and m["params"]["turn"]["id"] == turn_id, since=since
        )
        return done["params"]["turn"]

    async def turn(self, thread_id: str, text: str, **params: Any) -> str:
        """Run one turn to its good end; returns its id."""
        turn_id = await self.begin(thread_id, text, **params)
        ended = await self.ended(turn_id)
        assert ended["status"] == "completed", ended
        return turn_id

    async def turns(self, thread_id: str, *texts: str) -> list[str]:
        """Run turns one after the other."""
        return [await self.turn(thread_id, text) for text in texts]

    async def read(self, thread_id: str) -> Any:
        """The thread with its turns."""
        result = await self.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        return result["thread"]

    async def shown(self, thread_id: str) -> list[list[str]]:
        """The texts that a thread's turns show; `[compaction]` for a compaction."""
        return texts_of((await self.read(thread_id))["turns"])


def fits(message: Message, method: str, params: Mapping[str, Any]) -> bool:
    """Whether a message has this method and at least these parameters."""
    if message.get("method") != method:
        return False
    given = message.get("params") or {}
    return all(given.get(name) == value for name, value in params.items())


def thread_of(message: Message) -> Any:
    """The thread that a notification speaks of."""
    params = message.get("params") or {}
    return params.get("threadId") or (params.get("thread") or {}).get("id")


def turn_texts(turn: Mapping[str, Any]) -> list[str]:
    """The texts of one turn's items."""
    return [_text(item) for item in turn["items"]]


def texts_of(turns: list[Any]) -> list[list[str]]:
    """The texts of turns, one list for each."""
    return [turn_texts(turn) for turn in turns]


def _text(item: Mapping[str, Any]) -> str:
    match item["type"]:
        case "userMessage":
            return "".join(part["text"] for part in item["content"])
        case "contextCompaction":
            return "[compaction]"
        case "dynamicToolCall":
            return f"[{item['tool']} {item['status']}]"
    return str(item.get("text", item["type"]))


def _word(message: Message) -> str:
    if "method" in message:
        return str(message["method"])
    return "error" if "error" in message else "answer"


async def within(work: Awaitable[Any]) -> Any:
    """Await something, but not for longer than anything may take."""
    async with asyncio.timeout(WAIT_S):
        return await work
