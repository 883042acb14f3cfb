"""One WebSocket's frames: uvicorn's protocol with the house's rules for hostile, slow and vanished clients.

uvicorn and `websockets` own handshake, framing and the closing handshake. Added here: text that is not UTF-8 ends the
connection at the frame that shows it, a message in a million fragments takes the memory of its bytes, pongs do not
pile up for a client that does not read, and peers that vanished are let go (`liveness.py`).
"""

import asyncio
import codecs
import io
import logging
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.server import ServerProtocol

from unspool_server.config_daemon import WebSocketOptions
from unspool_server.telemetry.logs import event as log_event
from unspool_server.transport.heads import HeadProtocol
from unspool_server.transport.liveness import Liveness, seconds_since_ack, tick_s

_log = logging.getLogger("unspool.transport")


class _Frames(ServerProtocol):
    """`websockets`' side of it.

    Attributes:
        breach: Why the connection has to fail; `settle` lets it, so that messages before the breach come first.
    """

    breach: tuple[CloseCode | int, str] | None = None

    def recv_frame(self, frame: Frame) -> None:
        """Control frames may stand between fragments (RFC 6455 §5.4), and after a close nothing follows."""
        if frame.opcode is Opcode.CLOSE:
            self.current_size = None
        super().recv_frame(frame)

    def fail(self, code: CloseCode | int, reason: str = "") -> None:
        """Note the first breach. Nothing may be received any more."""
        if code == CloseCode.MESSAGE_TOO_BIG:
            reason = f"message longer than {self.max_message_size} bytes"
        self.breach = self.breach or (code, reason)

    def settle(self) -> None:
        """Fail: a close frame is to be sent, and nothing behind it."""
        assert self.breach is not None
        super().fail(*self.breach)


class FrameConfig(uvicorn.Config):
    """uvicorn's configuration and what our protocol needs beside it."""

    def __init__(self, app: ASGIApp, options: WebSocketOptions, **settings: Any) -> None:
        super().__init__(
            app, http=HeadProtocol, ws=FrameProtocol, ws_per_message_deflate=options.compression, **settings
        )
        self.options = options


class FrameProtocol(WebSocketsSansIOProtocol):
    """What uvicorn makes for each connection that asks to become a WebSocket."""

    conn: _Frames

    def __init__(self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state)
        assert isinstance(config, FrameConfig)
        extensions = self.conn.available_extensions
        self.conn = _Frames(extensions=extensions, max_size=config.ws_max_size, logger=self.logger)
        self.liveness = Liveness(config.options, self._since_ack)
        self._watch: asyncio.TimerHandle | None = None
        self._owed: list[bytes] = []
        self._spoiled = False
        self._text, self._decoder = io.StringIO(), codecs.getincrementaldecoder("utf-8")()
        self._binary = bytearray()

    # -- messages ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what came; any byte is a sign of life. What follows a breach of the protocol is thrown away."""
        self.liveness.heard()
        if self.conn.breach is not None:
            return
        self.conn.receive_data(data)
        self.handle_events()
        self._fail_if_due()

    async def receive(self) -> ASGIReceiveEvent:
        """The application's next message; with the last one before a breach it has had all there is."""
        self._fail_if_due()
        return await super().receive()

    def _fail_if_due(self) -> None:
        if self.conn.breach is not None and self.queue.empty() and not self.close_sent:
            self.conn.settle()
            self.handle_parser_exception()

    def handle_text(self, event: Frame) -> None:
        """The first frame of a text."""
        self.curr_msg_data_type = "text"
        self._text, self._decoder = io.StringIO(), codecs.getincrementaldecoder("utf-8")()
        self._add(event)

    def handle_bytes(self, event: Frame) -> None:
        """The first frame of a binary message."""
        self.curr_msg_data_type = "bytes"
        self._binary = bytearray()
        self._add(event)

    def handle_cont(self, event: Frame) -> None:
        """A further frame of a message."""
        self._add(event)

    def _add(self, frame: Frame) -> None:
        if self.close_sent or self._spoiled:
            return
        if self.curr_msg_data_type == "bytes":
            self._binary += frame.data
            if frame.fin:
                self._hand_over({"type": "websocket.receive", "bytes": bytes(self._binary)})
                self._binary = bytearray()
            return
        try:
            self._text.write(self._decoder.decode(frame.data, frame.fin))
        except UnicodeDecodeError:
            self.conn.fail(CloseCode.INVALID_DATA, "text that is not UTF-8")
            self._spoiled = True
            return
        if frame.fin:
            self._hand_over({"type": "websocket.receive", "text": self._text.getvalue()})
            self._text = io.StringIO()

    def _hand_over(self, message: Any) -> None:
        """Give a message to the application, and read no further before it was taken."""
        self.queue.put_nowait(message)
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    # -- pongs -------------------------------------------------------------------------------------------------------

    def handle_ping(self) -> None:
        """Answer; while the client does not read, the newest pings alone are remembered (RFC 6455 §5.5.3)."""
        # The first ping of a packet finds the pongs of all of them.
        self._owed = self.conn.data_to_send() or self._owed
        if self.writable.is_set():
            self._send_owed()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._send_owed()

    def handle_close(self, event: Frame) -> None:
        """The client closes, or agrees to it."""
        self._send_owed()
        if not self._spoiled:
            super().handle_close(event)

    def _send_owed(self) -> None:
        if self._owed and not self.transport.is_closing():
            self.transport.write(b"".join(self._owed))
        self._owed = []

    # -- life --------------------------------------------------------------------------------------------------------

    def start_keepalive(self) -> None:
        """Begin to watch over a connection that was accepted."""
        every_s = tick_s(self.liveness.options)
        if every_s is not None:
            self._watch = self.loop.call_later(every_s, self._look, every_s)

    def stop_keepalive(self) -> None:
        """The connection ends."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _look(self, every_s: float) -> None:
        self._watch = self.loop.call_later(every_s, self._look, every_s)
        if self.transport.is_closing():
            return
        unsent = self.transport.get_write_buffer_size()
        reason = self.liveness.look(unsent)
        if reason is not None:
            log_event(_log, "connection given up", reason=reason)
            self.transport.abort()
        elif self.liveness.ping_due(unsent) and not self.close_sent:
            self.conn.send_ping(b"")
            self.transport.write(b"".join(self.conn.data_to_send()))

    def _since_ack(self) -> float | None:
        accepted = self.transport.get_extra_info("socket")
        return None if accepted is None else seconds_since_ack(accepted)
