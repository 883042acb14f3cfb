"""When a peer counts as vanished: half-open connections are noticed in bounded time, slow readers are left alone.

A peer that vanished without a word (power, network, a frozen virtual machine) acknowledges nothing. A client that is
slow to read, or that waits for nothing and therefore answers no ping, still has a kernel that acknowledges what it is
sent. So the rule looks at both: a connection is dead when for `peer_timeout_secs` no byte arrived *and* its kernel
acknowledged nothing. Pings see to it that there is something to acknowledge, and keep proxies from dropping idle
connections. `TCP_USER_TIMEOUT` is not set: it would also end a connection whose reader merely pauses.

Owns rule and socket options; sends and closes nothing.
"""

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from unspool_server.config_daemon import WebSocketOptions

_LAST_ACK_AT = 56
"""Where Linux' `struct tcp_info` has `tcpi_last_ack_recv`, in milliseconds: 8 single bytes and 12 numbers before it."""

_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 4}
"""Seconds and a count, as far as the system knows the names (`TCP_KEEPALIVE` is macOS' for the first)."""


def tick_s(options: WebSocketOptions) -> float | None:
    """How often to look after a connection, in seconds; None where there is nothing to do."""
    timeouts = (options.peer_timeout_secs / 4, options.pong_timeout_secs / 4)
    wanted = [each for each in (options.ping_interval_secs, *timeouts) if each]
    return min(wanted, default=None)


def watch_by_kernel(listening: socket.socket) -> None:
    """Set what accepted TCP sockets inherit: the kernel probes idle connections and ends those without a peer."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


class TcpSocket(Protocol):
    """As much of a socket as is asked here."""

    @property
    def family(self) -> int:
        """The address family."""

    def getsockopt(self, level: int, option: int, size: int, /) -> Any:
        """See `socket.socket.getsockopt`."""


def seconds_since_ack(accepted: TcpSocket) -> float | None:
    """How long ago the peer's kernel last acknowledged anything; None where the system does not tell."""
    option = getattr(socket, "TCP_INFO", None)
    if option is None or accepted.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        told = accepted.getsockopt(socket.IPPROTO_TCP, option, _LAST_ACK_AT + 4)
        return float(struct.unpack_from("=I", told, _LAST_ACK_AT)[0]) / 1000
    except (OSError, struct.error):
        return None


@dataclass(slots=True)
class Liveness:
    """One connection's signs of life.

    Attributes:
        since_ack: Seconds since the last acknowledgement, None where unknown.
        clock: Steady seconds.
    """

    options: WebSocketOptions
    since_ack: Callable[[], float | None]
    clock: Callable[[], float] = monotonic
    _heard_at: float = field(init=False)
    _moved_at: float = field(init=False)
    _pinged_at: float = field(init=False)
    _unsent: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._heard_at = self._moved_at = self._pinged_at = self.clock()

    def heard(self) -> None:
        """Bytes came, whatever they were."""
        self._heard_at = self.clock()

    def look(self, unsent: int) -> str | None:
        """Why the peer counts as gone, or None while it lives.

        Args:
            unsent: Bytes that wait for room in the kernel's buffer. When that changes, bytes are moving.
        """
        now = self.clock()
        if unsent != self._unsent:
            self._moved_at, self._unsent = now, unsent
        timeout, since_ack = self.options.peer_timeout_secs, self.since_ack()
        if timeout and since_ack is not None and min(since_ack, now - self._heard_at) > timeout:
            return "the peer vanished"
        timeout = self.options.pong_timeout_secs
        if timeout and now - max(self._moved_at, self._heard_at) > timeout:
            return "no answer to pings"
        return None

    def ping_due(self, unsent: int) -> bool:
        """Whether to send a ping now: nothing came for an interval, and nothing waits before it."""
        interval, now = self.options.ping_interval_secs, self.clock()
        if not interval or unsent or now - max(self._heard_at, self._pinged_at) < interval:
            return False
        self._pinged_at = now
        return True
