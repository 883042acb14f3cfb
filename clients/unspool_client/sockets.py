"""WebSocket channels over TCP and over a unix socket (`wire` §1): one JSON object per text frame."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from unspool_client.channels import MAX_MESSAGE_BYTES
from unspool_client.errors import ConnectFailed, ConnectionLost
from unspool_client.tokens import LOOPBACK

_RETRYABLE_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


class WebSocketChannel:
    """The channel of one WebSocket. A peer that answers no ping for 20 s counts as gone."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, message: bytes) -> None:
        """Send one text frame."""
        try:
            await self._socket.send(message, text=True)
        except ConnectionClosed as error:
            raise ConnectionLost(self.lost_because()) from error

    async def receive(self) -> bytes | None:
        """The next frame, or None once the socket is closed."""
        try:
            return await self._socket.recv(decode=False)
        except ConnectionClosed:
            return None

    async def close(self) -> None:
        """Close handshake, bounded by the library."""
        await self._socket.close()

    def lost_because(self) -> str:
        """The close code and reason."""
        code, reason = self._socket.close_code, self._socket.close_reason
        return f"the socket was closed ({code or 1006}{f' {reason}' if reason else ''})"


async def open_socket(
    url: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    open_timeout_s: float = 10.0,
    ping_interval_s: float = 20.0,
) -> WebSocketChannel:
    """Connect to `ws://…`, `wss://…` or `unix:///path`.

    Args:
        token: Sent as a bearer token in the upgrade request.

    Raises:
        ConnectFailed: No address, nobody listens there, or the upgrade was refused.
    """
    sent = dict(headers or {})
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    try:
        parts = urlsplit(url)
        _ = parts.port  # looked at only when it is asked for
    except ValueError as error:
        raise ConnectFailed(f"{url!r} is no WebSocket address", retryable=False) from error
    try:
        if parts.scheme == "unix":
            opening = unix_connect(
                parts.netloc + parts.path,
                "ws://localhost/",
                additional_headers=sent,
                compression=None,
                max_size=MAX_MESSAGE_BYTES,
                open_timeout=open_timeout_s,
                ping_interval=ping_interval_s,
            )
        else:
            # A proxy of the environment is no way to this machine itself.
            opening = connect(
                url,
                additional_headers=sent,
                compression=None,
                max_size=MAX_MESSAGE_BYTES,
                open_timeout=open_timeout_s,
                ping_interval=ping_interval_s,
                proxy=None if parts.hostname in LOOPBACK else True,
            )
        return WebSocketChannel(await opening)
    except InvalidStatus as error:
        status = error.response.status_code
        body = _printable(bytes(error.response.body or b""))
        text = f"{_shown(url)} refused the connection with {status}{f' ({body})' if body else ''}"
        raise ConnectFailed(text, retryable=status in _RETRYABLE_STATUS) from error
    except InvalidURI as error:
        raise ConnectFailed(f"{_shown(url)} is no WebSocket address", retryable=False) from error
    except (OSError, InvalidHandshake, TimeoutError) as error:
        raise ConnectFailed(f"cannot connect to {_shown(url)}: {error}") from error


def _shown(url: str) -> str:
    """The address without what may be secret in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _printable(body: bytes) -> str:
    """The beginning of what some server answers, as one line without signs that would do something to a terminal."""
    text = " ".join(body[:400].decode(errors="replace").split())
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)
