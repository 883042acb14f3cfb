"""The owner task: one step after another, withdrawn and refused in order, nobody left waiting."""

import asyncio
from functools import partial

import pytest
from unspool_server.errors import LocalProtocolError, StoreClosed
from unspool_server.sessions.owner import QUEUE_LIMIT, Owner

BOUND_S = 5.0


async def test_steps_run_one_after_another_in_the_order_they_were_asked_for() -> None:
    owner, seen = Owner("a"), list[str]()

    async def step(name: str) -> str:
        seen.append(f"{name} begins")
        await asyncio.sleep(0)
        seen.append(f"{name} ends")
        return name

    async with asyncio.timeout(BOUND_S):
        results = await asyncio.gather(*(owner.run(partial(step, name)) for name in "xyz"))
        await owner.close()

    assert results == ["x", "y", "z"]
    assert seen == [f"{name} {what}" for name in "xyz" for what in ("begins", "ends")]


async def test_a_caller_that_leaves_withdraws_a_step_that_did_not_begin_but_not_one_that_did() -> None:
    owner, gate, ran = Owner("a"), asyncio.Event(), list[str]()

    async def held() -> None:
        await gate.wait()
        ran.append("held")

    async def late() -> None:
        ran.append("late")

    first = asyncio.create_task(owner.run(held))
    second = asyncio.create_task(owner.run(late))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()
    gate.set()
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(first, second, return_exceptions=True)
        await owner.close()

    assert ran == ["held"]


async def test_a_step_that_waits_for_another_step_is_refused() -> None:
    owner = Owner("a")

    async def nothing() -> None:
        return None

    async def nested() -> None:
        await owner.run(nothing)

    async with asyncio.timeout(BOUND_S):
        with pytest.raises(LocalProtocolError):
            await owner.run(nested)
        await owner.close()


async def test_closing_runs_or_refuses_every_step_also_those_beyond_the_queue() -> None:
    owner, gate, ran = Owner("a"), asyncio.Event(), list[int]()

    async def held() -> None:
        await gate.wait()

    async def count() -> None:
        ran.append(1)

    first = asyncio.create_task(owner.run(held))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(owner.run(count)) for _ in range(QUEUE_LIMIT * 2)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(owner.close())
    gate.set()
    async with asyncio.timeout(BOUND_S):
        results = await asyncio.gather(first, closing, *waiting, return_exceptions=True)

    refused = [result for result in results[2:] if isinstance(result, StoreClosed)]
    assert results[:2] == [None, None]
    assert len(ran) + len(refused) == QUEUE_LIMIT * 2
    with pytest.raises(StoreClosed):
        await owner.run(count)
