"""The owner task of a live thread: runs its state changes one after another (DESIGN §5).

Does not know what a change is. A step runs to its end once begun; whoever asked may go away meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from unspool_server.errors import LocalProtocolError, StoreClosed
from unspool_server.telemetry.scope import Scope, current, entered, within

T = TypeVar("T")

QUEUE_LIMIT = 256
"""Steps waiting at most; a further caller waits for its place, nothing is dropped."""

_Step = tuple[Callable[[], Awaitable[Any]], "asyncio.Future[Any]", Scope]


class Owner:
    """Runs steps in the order they were asked for, each awaited before the next."""

    def __init__(self, name: str) -> None:
        self._queue: asyncio.Queue[_Step | None] = asyncio.Queue(QUEUE_LIMIT)
        self._closed = False
        self._task = asyncio.create_task(self._serve(), name=f"owner-{name}")

    async def run(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run one step in its turn and return what it returns.

        A caller that is cancelled before its step began withdraws it; a step that began is finished.

        Raises:
            StoreClosed: The thread was closed before the step began.
            LocalProtocolError: Called from within a step, which could only wait for itself.
        """
        if asyncio.current_task() is self._task:
            raise LocalProtocolError("a step must not wait for another step")
        if self._closed:
            raise StoreClosed("the thread is closing; retry after it is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        await self._queue.put((step, future, current()))
        return await future

    async def close(self) -> None:
        """Finish the steps already asked for, then end the task. Later calls to `run` are refused."""
        if not self._closed:
            self._closed = True
            await self._queue.put(None)
        await asyncio.shield(self._task)

    async def _serve(self) -> None:
        entered(Scope())  # not that of the request which happened to load the thread
        while (entry := await self._queue.get()) is not None:
            step, future, scope = entry
            if future.cancelled():
                continue
            try:
                with within(scope):
                    result = await step()
            except Exception as error:
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)
        await self._refuse_waiting()

    async def _refuse_waiting(self) -> None:
        """Refuse what was asked for too late; each place that gets free lets in another caller that still waits."""
        while not self._queue.empty():
            entry = self._queue.get_nowait()
            if entry is not None and not entry[1].done():
                entry[1].set_exception(StoreClosed("the thread is closing; retry after it is closed"))
            await asyncio.sleep(0)
