"""WebSocket over a Unix socket (`wire` §1): only its owner may connect, and the file goes when the server ends."""

import contextlib
import os
import socket
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from unspool_server.config_daemon import WebSocketOptions
from unspool_server.connection import Shared
from unspool_server.transport.framing import MAX_MESSAGE_BYTES
from unspool_server.transport.gate import OPEN_TO_OWNER
from unspool_server.transport.websocket import Listener, ListenRefused, application


class UnixListener:
    """Like `websocket.Listener`, on a path. Binding happens in `start`."""

    def __init__(
        self,
        shared: Shared,
        path: Path,
        *,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        options: WebSocketOptions | None = None,
    ) -> None:
        self.path = path
        self._options = options
        self._max_message_bytes = max_message_bytes
        self._shared = shared
        self._listener: Listener | None = None

    async def start(self) -> None:
        """Bind with mode 0600 and accept connections. A socket that nobody serves any more is replaced.

        Raises:
            ListenRefused: Another server is there, or something that is no socket.
            OSError: The folder does not exist or may not be written.
        """
        _clear(self.path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            old_mask = os.umask(0o177)  # so that there is no moment in which others may connect
            try:
                listening.bind(str(self.path))
            finally:
                os.umask(old_mask)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        self._listener = Listener(
            application(self._shared, OPEN_TO_OWNER),
            listening,
            max_message_bytes=self._max_message_bytes,
            options=self._options,
        )
        await self._listener.start()

    async def close(self) -> None:
        """End all connections and remove the socket."""
        if self._listener is not None:
            await self._listener.close()
            self.path.unlink(missing_ok=True)

    async def wait_closed(self) -> None:
        """Wait until the server has ended, for whatever reason."""
        if self._listener is not None:
            await self._listener.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _clear(path: Path) -> None:
    """Remove the socket of a server that did not end well."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenRefused("the path of the socket is taken by something else")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, contextlib.suppress(ConnectionRefusedError):
        probe.connect(str(path))
        raise ListenRefused("another server listens on this socket")
    path.unlink(missing_ok=True)
