"""The outbox: bounded for events, open for answers, one order."""

import asyncio

from unspool_server.events.outbox import Outbox


async def test_answers_are_taken_beyond_the_limit_and_events_are_not() -> None:
    outbox = Outbox(max_messages=2)
    assert [outbox.offer(b"{1}"), outbox.offer(b"{2}"), outbox.offer(b"{3}")] == [True, True, False]
    outbox.put(b"{4}")
    assert await outbox.get() == [b"{1}", b"{2}", b"{4}"]


async def test_the_byte_limit_refuses_events_but_lets_a_large_one_pass_alone() -> None:
    outbox = Outbox(max_bytes=10)
    assert outbox.offer(b"x" * 50)
    assert not outbox.offer(b"y")
    assert outbox.waiting_bytes == 50
    assert outbox.take() == [b"x" * 50]
    assert outbox.offer(b"y")


async def test_space_is_announced_only_after_a_refusal() -> None:
    outbox = Outbox(max_messages=1)
    calls: list[int] = []
    outbox.on_space = lambda: calls.append(len(outbox))
    outbox.offer(b"{1}")
    outbox.take()
    assert calls == []
    outbox.offer(b"{2}")
    outbox.offer(b"{3}")
    outbox.take()
    assert calls == [0]


async def test_the_jsonrpc_member_is_added_as_messages_are_taken() -> None:
    outbox = Outbox()
    outbox.put(b'{"id":1}')
    outbox.jsonrpc = True
    assert outbox.take() == [b'{"jsonrpc":"2.0","id":1}']


async def test_a_waiting_writer_gets_the_next_message_and_the_end() -> None:
    outbox = Outbox()
    writer = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    outbox.put(b"{}")
    async with asyncio.timeout(5):
        assert await writer == [b"{}"]
        outbox.put(b"{last}")
        outbox.close()
        outbox.put(b"{too late}")
        assert not outbox.offer(b"{too late}")
        assert await outbox.get() == [b"{last}"]
        assert await outbox.get() == []
