"""Moves messages between a connection and a transport: one reader, one writer, one end. Knows no framing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from unspool_server.connection import Connection
from unspool_server.errors import RequestError
from unspool_server.transport.framing import TooLong

Incoming = bytes | str | TooLong | RequestError
"""A message, or what is to be said about something that was none."""

LINGER_S = 5.0
"""How long a client that is disconnected for being slow may take to read its last messages."""

Read = Callable[[], Awaitable[Iterable[Incoming] | None]]
"""Waits for messages; None means that the client sends nothing more."""

Write = Callable[[Sequence[bytes]], Awaitable[None]]
"""Sends messages in order and returns when the client's side has room again. Raises OSError when it is gone."""


async def pump(
    connection: Connection, read: Read, write: Write, *, grace_s: float = 0.0, linger_s: float = LINGER_S
) -> None:
    """Run a connection until its client is gone, then close it.

    Args:
        grace_s: After the end of input, how long running requests may still take to give their answers; 0 means that
            the client cannot get answers any more.
        linger_s: How long a client that was given up may still take for its last messages.
    """
    reader = asyncio.create_task(_read_all(connection, read), name=f"connection {connection.id} reader")
    writer = asyncio.create_task(_write_all(connection, write), name=f"connection {connection.id} writer")
    given_up = asyncio.create_task(connection.given_up(), name=f"connection {connection.id} too slow")
    try:
        await asyncio.wait({reader, writer, given_up}, return_when=asyncio.FIRST_COMPLETED)
        if given_up.done():
            await asyncio.wait({reader, writer}, timeout=linger_s, return_when=asyncio.FIRST_COMPLETED)
            return
        if grace_s and not writer.done() and reader.exception() is None:
            await connection.end_input(grace_s)
            await asyncio.wait({writer})
    finally:
        await connection.close()
        await _end(reader, writer, given_up)


async def _read_all(connection: Connection, read: Read) -> None:
    while (messages := await read()) is not None:
        for message in messages:
            await connection.ready()
            if isinstance(message, TooLong):
                text = f"Invalid request: message longer than {message.limit_bytes} bytes"
                connection.reject(RequestError(text, data={"reason": "tooLong"}))
            elif isinstance(message, RequestError):
                connection.reject(message)
            else:
                connection.receive(message)


async def _write_all(connection: Connection, write: Write) -> None:
    while batch := await connection.take():
        await write(batch)


async def _end(*tasks: asyncio.Task[None]) -> None:
    """Cancel and await both sides. A client that went away is no error; anything else is raised."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
            raise outcome
