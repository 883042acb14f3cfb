"""Work that a cancelled caller must not cut short."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_unattended: set[asyncio.Task[Any]] = set()


async def undisturbed(work: Coroutine[Any, Any, T], *, unwanted: Callable[[T], Awaitable[None]] | None = None) -> T:
    """Let work finish even when the caller is cancelled; its error is then dropped.

    Args:
        unwanted: What to do then with a result that nobody waits for any more.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        rest = asyncio.create_task(_finish(task, unwanted))
        _unattended.add(rest)
        rest.add_done_callback(_unattended.discard)
        raise


async def _finish(task: asyncio.Task[T], unwanted: Callable[[T], Awaitable[None]] | None) -> None:
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None and unwanted is not None:
        await unwanted(task.result())
