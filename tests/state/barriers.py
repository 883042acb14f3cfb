"""Places where a running turn can be held: at each call of its log, each event of its model, each tool call."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import wraps
from typing import Any

import pytest
from unspool_server.model.contract import ModelEvent, ModelRequest
from unspool_server.model.offline import OfflineProvider
from unspool_server.store.writer import RolloutLog

from tests.state.inprocess import WAIT_S, Message

LOG_CALLS = ("add", "append", "flush")


class Barrier:
    """Counts the places that one thread's turn passes, and holds it at the chosen one."""

    def __init__(self) -> None:
        self.thread_id = ""
        self.hold_at: int | None = None
        self.passed: list[str] = []
        self._reached = asyncio.Event()
        self._go = asyncio.Event()

    def arm(self, thread_id: str, hold_at: int | None) -> None:
        """Begin to count anew."""
        self.thread_id, self.hold_at, self.passed = thread_id, hold_at, []
        self._reached, self._go = asyncio.Event(), asyncio.Event()

    async def pass_by(self, place: str, thread_id: str) -> None:
        """Called at a place: go on, or wait to be let go."""
        if thread_id != self.thread_id:
            return
        self.passed.append(place)
        if self.hold_at is not None and len(self.passed) == self.hold_at + 1:
            self._reached.set()
            await self._go.wait()

    async def reached(self) -> None:
        """Wait until the turn is held."""
        await asyncio.wait_for(self._reached.wait(), WAIT_S)

    def let_go(self) -> None:
        """Let the turn go on; later places are passed freely."""
        self._go.set()


def watch_logs(barrier: Barrier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every call of a log two places: before it and behind it."""

    def held(name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(RolloutLog, name)

        @wraps(call)
        async def watched(log: RolloutLog, *args: Any, **kwargs: Any) -> Any:
            await barrier.pass_by(f"before {name}", log.info.thread_id)
            result = await call(log, *args, **kwargs)
            await barrier.pass_by(f"behind {name}", log.info.thread_id)
            return result

        return watched

    for name in LOG_CALLS:
        monkeypatch.setattr(RolloutLog, name, held(name))


class HeldModel(OfflineProvider):
    """The offline provider with a place before the first and behind each event."""

    def __init__(self, barrier: Barrier) -> None:
        super().__init__()
        self._barrier = barrier

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream one reply."""
        await self._barrier.pass_by("model asked", request.cache_key)
        async with aclosing(super().stream(request)) as events:
            async for event in events:
                yield event
                await self._barrier.pass_by(f"model {type(event).__name__}", request.cache_key)


def held_tool(barrier: Barrier) -> Callable[[Message], Awaitable[Mapping[str, Any]]]:
    """A client's tool with a place in it."""

    async def tool(request: Message) -> Mapping[str, Any]:
        await barrier.pass_by("tool asked", request["params"]["threadId"])
        return {"contentItems": [{"type": "inputText", "text": "seen"}], "success": True}

    return tool


async def let_others_run() -> None:
    """Give everything that can go on without the held turn the time to do so."""
    for _ in range(50):
        await asyncio.sleep(0)
