"""Typed asyncio client of the daemon over stdio, WebSocket and unix socket.

    async with Client.connect("ws://127.0.0.1:4500") as client:
        thread = await client.start_thread(cwd="/workspace")
        result = await thread.run("What is in this folder?")
        print(result.text)

Events of a thread come as an async iterator that survives reconnects without gap or repeat: `thread.events()`.
"""

from unspool_client.approvals import CommandApproval
from unspool_client.backoff import Backoff
from unspool_client.channels import MAX_MESSAGE_BYTES, Channel, ChannelFactory, MemoryChannel, memory_pair
from unspool_client.client import Client
from unspool_client.desk import RequestHandler
from unspool_client.errors import (
    ClientClosed,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    CursorInvalid,
    EventsLost,
    InvalidParams,
    NotMaterialized,
    Overloaded,
    RequestTimeout,
    RpcError,
    ThreadBusy,
    ThreadNotFound,
    TurnsOutOfRange,
    UnknownMethod,
    Unsupported,
)
from unspool_client.event import Event
from unspool_client.feed import EventStream
from unspool_client.link import ClientOptions
from unspool_client.shapes import Place
from unspool_client.thread import ThreadHandle, TurnResult

__all__ = [
    "MAX_MESSAGE_BYTES",
    "Backoff",
    "Channel",
    "ChannelFactory",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "CommandApproval",
    "ConnectFailed",
    "ConnectionLost",
    "CursorInvalid",
    "Event",
    "EventStream",
    "EventsLost",
    "InvalidParams",
    "MemoryChannel",
    "NotMaterialized",
    "Overloaded",
    "Place",
    "RequestHandler",
    "RequestTimeout",
    "RpcError",
    "ThreadBusy",
    "ThreadHandle",
    "ThreadNotFound",
    "TurnResult",
    "TurnsOutOfRange",
    "UnknownMethod",
    "Unsupported",
    "memory_pair",
]
