"""The socket of a daemon: who gets in, and that secrets stay secrets."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from unspool_server.access.bearer import Capability, CapabilityTokens, digest_of
from unspool_server.access.principal import OWNER
from unspool_server.access.provenance import Provenance
from unspool_server.access.secret_files import TOKEN_FILE, home_token
from unspool_server.cli.admission import rules_of
from unspool_server.cli.options import Listen, ServerOptions
from unspool_server.config_daemon import AccessOptions
from unspool_server.transport.gate import Rules
from unspool_server.transport.unix import UnixListener
from unspool_server.transport.websocket import listen_tcp

from tests.access.doors import bearer, knock
from tests.bugs.cases import CASES
from tests.interaction.house import House

TOKEN = "start-up-token-start-up-token-start-up-token"


def handshakes(port: int) -> list[dict[str, str]]:
    """The upgrades of the case, each with the headers that it wants to be tried with."""
    lines = (CASES / "B107_origin.rpc.jsonl").read_text().splitlines()
    found = [json.loads(line.replace("$PORT", str(port))).get("handshake") for line in lines]
    return [one for one in found if one is not None]


async def test_b107_a_web_page_cannot_drive_a_local_daemon_with_or_without_its_token(house: House) -> None:
    """Any page could: no login was asked for, and every origin was welcome."""
    rules = Rules(CapabilityTokens([Capability(digest_of(TOKEN), OWNER)]), Provenance(("vscode-file://vscode-app",)))
    async with house.daemon() as daemon, listen_tcp(daemon.shared, "127.0.0.1", 0, rules=rules) as listener:
        port = listener.address[1]
        assert len(handshakes(port)) == 7
        for headers in handshakes(port):
            answer = await knock(listener.address, headers)
            assert answer.status in (401, 403), headers
            allowed = headers.keys() <= {"Origin"} and headers.get("Origin") in (None, "vscode-file://vscode-app")
            answer = await knock(listener.address, {**bearer(TOKEN), **headers})
            assert answer.status == _expected(headers, allowed=allowed), headers
            assert TOKEN.encode() not in answer.whole


def _expected(headers: Mapping[str, str], *, allowed: bool) -> int:
    return 401 if "Authorization" in headers else 101 if allowed else 403


async def test_b107_by_default_no_origin_at_all_is_let_in(house: House) -> None:
    async with house.daemon() as daemon, listen_tcp(daemon.shared, "127.0.0.1", 0) as listener:
        for headers in handshakes(listener.address[1]):
            refused = "Origin" in headers or "Host" in headers
            assert (await knock(listener.address, headers)).status == (403 if refused else 101), headers


async def test_b109_a_loopback_socket_asks_every_program_for_the_homes_secret(house: House) -> None:
    """Every user and program of the machine could connect: there was no secret."""
    options = ServerOptions(listen=Listen("ws", "127.0.0.1", 0), home_token=True)
    rules = rules_of(options, AccessOptions(), house.home)
    token = home_token(house.home)
    assert stat.S_IMODE((house.home / TOKEN_FILE).stat().st_mode) == 0o600
    async with house.daemon() as daemon, listen_tcp(daemon.shared, "127.0.0.1", 0, rules=rules) as listener:
        assert (await knock(listener.address)).status == 401
        assert (await knock(listener.address, bearer(token[:-1]))).status == 401
        assert (await knock(listener.address, bearer(token))).status == 101


async def test_b109_a_unix_socket_is_never_open_to_others_not_even_while_it_is_made(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = house.work / "socket"
    masks: list[int] = []
    real = os.umask

    def noted(mask: int) -> int:
        masks.append(mask)
        return real(mask)

    monkeypatch.setattr(os, "umask", noted)
    old = real(0)
    try:
        async with house.daemon() as daemon, UnixListener(daemon.shared, path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        real(old)
    assert masks == [0o177, 0]


SECRET = "sesame-sesame-sesame-sesame-sesame"


async def test_what_clients_and_configuration_keep_secret_is_neither_logged_nor_sent_nor_written(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_KEY", f"{SECRET}-key")
    caplog.set_level(0)
    house.settings |= {"model_provider": "gone", "model": "none"}
    house.providers["gone"] = {
        "base_url": "http://127.0.0.1:9/v1",
        "env_key": "SERVICE_KEY",
        "request_max_retries": 0,
    }
    house.tables["model_providers.gone.http_headers"] = {"X-Key": f"{SECRET}-header"}
    rules = Rules(CapabilityTokens([Capability(digest_of(SECRET), OWNER)]))
    async with house.daemon() as daemon, listen_tcp(daemon.shared, "127.0.0.1", 0, rules=rules) as listener:
        sent = b""
        for headers in (bearer(f"{SECRET}-wrong"), bearer(SECRET), {"Authorization": SECRET}):
            sent += (await knock(listener.address, headers)).whole
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.begin(thread, "hello")
        assert (await client.ended(turn))["status"] == "failed"
        await client.refused("thread/resume", {"threadId": SECRET[:4]})
        for method, params in (("config/read", {"includeLayers": True}), ("model/list", {}), ("thread/list", {})):
            await _whatever(client, method, params)
    assert SECRET not in caplog.text
    assert SECRET not in str(client.seen) and SECRET.encode() not in sent
    written = [path for path in house.home.rglob("*") if path.is_file() and path.name != "config.toml"]
    assert written and not any(SECRET.encode() in _read(path) for path in written)


def _read(path: Path) -> bytes:
    return path.read_bytes()


async def _whatever(client: Any, method: str, params: dict[str, Any]) -> None:
    await client.answer(await client.ask(method, params))
