"""A program: the product's listener with an application behind it that sends every message back.

Usage: `echo_server.py true|false`, whether compression is agreed to. Prints its port; ends with its standard input.
"""

import asyncio
import socket
import sys

import uvloop
from starlette.types import Receive, Scope, Send
from unspool_server.config_daemon import WebSocketOptions
from unspool_server.transport.websocket import Listener


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Accept whoever comes, and send every message back as it came."""
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        try:
            await send({**message, "type": "websocket.send"})
        except (OSError, RuntimeError):
            return  # the connection ended meanwhile


async def serve(compression: bool) -> None:
    """Serve until standard input ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        async with Listener(echo, listening, options=WebSocketOptions(compression=compression)) as listener:
            print(listener.address[1], flush=True)
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1] == "true"))
