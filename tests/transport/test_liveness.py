"""Peers that vanished are noticed in bounded time; clients that are slow, idle or silent stay."""

import asyncio
import json
import socket
import sys
from dataclasses import dataclass

import pytest
from unspool_server.config_daemon import WebSocketOptions
from unspool_server.connection import Shared
from unspool_server.transport import frames
from unspool_server.transport.liveness import Liveness, seconds_since_ack, tick_s
from unspool_server.transport.websocket import listen_tcp

from tests.transport.fakes import FakeHub
from tests.transport.rawsocket import PING, TEXT, frame, raw_client

INITIALIZE = b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"raw","version":"1"}}}'


@dataclass
class Peer:
    """A connection at a time of the test's choosing."""

    now: float = 0.0
    acked_at: float | None = 0.0

    def watched(self, **options: float) -> Liveness:
        return Liveness(WebSocketOptions(**options), self._since_ack, lambda: self.now)

    def _since_ack(self) -> float | None:
        return None if self.acked_at is None else self.now - self.acked_at


def test_a_peer_is_gone_when_neither_bytes_nor_acknowledgements_came_for_the_timeout() -> None:
    peer = Peer()
    life = peer.watched(peer_timeout_secs=180)
    peer.now = 180.0
    assert life.look(0) is None
    peer.now = 181.0
    assert life.look(0) == "the peer vanished"
    life.heard()
    assert life.look(0) is None


def test_a_client_that_reads_nothing_and_answers_no_ping_stays_while_its_kernel_acknowledges() -> None:
    peer = Peer()
    life = peer.watched(peer_timeout_secs=180)
    for peer.now in range(0, 86_400, 120):
        peer.acked_at = peer.now
        assert life.look(1_000_000) is None


def test_without_word_of_acknowledgements_the_system_decides() -> None:
    peer = Peer(acked_at=None)
    life = peer.watched(peer_timeout_secs=180)
    peer.now = 1e6
    assert life.look(0) is None


def test_where_pongs_are_demanded_moving_bytes_are_a_sign_of_life_as_well() -> None:
    peer = Peer()
    life = peer.watched(pong_timeout_secs=60)
    unsent = 1_000_000
    for peer.now in range(0, 600, 50):
        peer.acked_at, unsent = peer.now, unsent - 1
        assert life.look(unsent) is None
    peer.now = peer.acked_at = 611.0
    assert life.look(unsent) == "no answer to pings"
    assert life.look(0) is None


def test_quiet_connections_are_pinged_and_busy_or_clogged_ones_are_not() -> None:
    peer = Peer()
    life = peer.watched(ping_interval_secs=30)
    peer.now = 29.0
    assert not life.ping_due(0)
    peer.now = 30.0
    assert not life.ping_due(1)
    assert life.ping_due(0)
    assert not life.ping_due(0)
    peer.now = 59.0
    life.heard()
    peer.now = 61.0
    assert not life.ping_due(0)


def test_zeros_switch_everything_off() -> None:
    off = WebSocketOptions(ping_interval_secs=0, peer_timeout_secs=0, pong_timeout_secs=0)
    assert tick_s(off) is None
    peer = Peer(now=1e6)
    life = peer.watched(ping_interval_secs=0, peer_timeout_secs=0)
    peer.now = 2e6
    assert life.look(1) is None
    assert not life.ping_due(0)
    assert tick_s(WebSocketOptions()) == 30.0


async def test_a_quiet_client_is_pinged(shared: Shared) -> None:
    options = WebSocketOptions(ping_interval_secs=0.01)
    async with listen_tcp(shared, "127.0.0.1", 0, options=options) as listener, raw_client(listener) as client:
        assert [await client.recv() for _ in range(3)] == [(PING, b"")] * 3
        await client.send(frame(TEXT, INITIALIZE))
        assert json.loads(await client.recv_text())["id"] == 0


async def test_a_connection_whose_peer_vanished_is_let_go(
    shared: Shared, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "unspool.transport")
    monkeypatch.setattr(frames, "seconds_since_ack", lambda accepted: 1000.0)
    options = WebSocketOptions(peer_timeout_secs=0.2)
    async with listen_tcp(shared, "127.0.0.1", 0, options=options) as listener, raw_client(listener) as client:
        await client.send(frame(TEXT, INITIALIZE))
        assert json.loads(await client.recv_text())["id"] == 0
        await asyncio.wait_for(hub.empty.wait(), 10)
        await client.ended()
    assert caplog.messages.count("connection given up") == 1


async def test_a_client_that_never_reads_nor_answers_is_let_go_where_pongs_are_demanded(
    shared: Shared, hub: FakeHub
) -> None:
    options = WebSocketOptions(ping_interval_secs=0.02, pong_timeout_secs=0.2)
    async with listen_tcp(shared, "127.0.0.1", 0, options=options) as listener, raw_client(listener) as client:
        await client.send(frame(TEXT, INITIALIZE))
        await asyncio.wait_for(hub.empty.wait(), 10)
        await client.ended()


async def test_the_kernel_watches_over_accepted_sockets(shared: Shared) -> None:
    async with listen_tcp(shared, "127.0.0.1", 0) as listener, raw_client(listener):
        (connection,) = listener.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if sys.platform == "linux":
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            assert [accepted.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [60, 20, 4, 0]
            since = seconds_since_ack(accepted)
            assert since is not None
            assert 0 <= since < 60


def test_sockets_without_a_network_have_no_acknowledgements() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert seconds_since_ack(ours) is None
