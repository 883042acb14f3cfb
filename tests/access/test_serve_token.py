"""`unspool serve` and `app-server` as processes: who gets in, what starts at all, and that nothing secret is told."""

import asyncio
import hashlib
import os
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import jwt
import pytest
from unspool_client import Client
from unspool_client.errors import ConnectFailed
from unspool_server.access.bearer import Unauthorized
from unspool_server.access.secret_files import TOKEN_FILE, SecretRefused, home_token
from unspool_server.cli.admission import rules_of
from unspool_server.cli.daemon import _banner
from unspool_server.cli.options import Listen, ServerOptions, WebSocketAuth
from unspool_server.config_base import ConfigError
from unspool_server.config_daemon import AccessOptions, AccessToken
from unspool_server.config_file import load_config
from unspool_server.transport.websocket import ListenRefused, Tls, listen_tcp

from tests.access.doors import bearer, knock
from tests.transport.fakes import FakeHub, Table, make_shared

WAIT_S = 30


@dataclass
class Running:
    """A daemon of its own process; `said` is its stderr so far, whole once it has ended."""

    process: asyncio.subprocess.Process
    url: str = ""
    said: bytearray = field(default_factory=bytearray)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.url.rpartition(":")[2])


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UNSPOOL_")}
    return {**kept, "UNSPOOL_HOME": str(home)}


@asynccontextmanager
async def running(home: Path, *arguments: str) -> AsyncIterator[Running]:
    """Start a daemon and wait for its banner; it is over afterwards, in order."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "unspool_server.cli.main", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment(home),
    )
    assert process.stderr is not None
    daemon = Running(process)
    try:
        async with asyncio.timeout(WAIT_S):
            while b"healthz" not in daemon.said:
                line = await process.stderr.readline()
                assert line, bytes(daemon.said)
                daemon.said += line
        found = re.search(rb"listening on: (wss?://\S+)", daemon.said)
        assert found is not None
        daemon.url = found[1].decode()
        yield daemon
        process.terminate()
        async with asyncio.timeout(WAIT_S):
            daemon.said += await process.stderr.read()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unspool_server.cli.main", *arguments]
    return subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=WAIT_S, check=False)


async def cli(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(run, home, *arguments)


async def test_serve_demands_the_homes_token_which_its_own_clients_find(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    async with running(home, "serve", "--port", "0") as daemon:
        token = (home / TOKEN_FILE).read_text().strip()
        assert (await knock(daemon.address)).status == 401
        assert (await knock(daemon.address, bearer("wrong-" + token))).status == 401
        assert (await knock(daemon.address, bearer(token))).status == 101
        assert (await knock(daemon.address, {"Origin": "http://127.0.0.1", **bearer(token)})).status == 403
        assert (await knock(daemon.address, {"Host": "evil.example", **bearer(token)})).status == 403
        async with Client.connect(daemon.url, home=home, reconnect=None) as client:
            assert client.server["codexHome"] == str(home)
        with pytest.raises(ConnectFailed, match="401"):
            async with Client.connect(daemon.url, home=elsewhere, reconnect=None):
                pass
        listed, refused, named = await asyncio.gather(
            cli(home, "threads", "list", "--remote", daemon.url),
            cli(elsewhere, "threads", "list", "--remote", daemon.url),
            cli(elsewhere, "threads", "list", "--remote", daemon.url, "--token-file", str(home / TOKEN_FILE)),
        )
        assert (listed.returncode, refused.returncode, named.returncode) == (0, 1, 0)
        assert "401 (missing websocket bearer token)" in refused.stderr
    said = daemon.said.decode()
    assert token not in said and str(home / TOKEN_FILE) in said


async def test_serve_lets_everyone_of_this_machine_in_only_when_told(tmp_path: Path) -> None:
    async with running(tmp_path, "serve", "--port", "0", "--no-auth") as daemon:
        assert (await knock(daemon.address)).status == 101
        assert (await knock(daemon.address, {"Origin": "null"})).status == 403
    assert not (tmp_path / TOKEN_FILE).exists()


def test_serve_shows_its_token_only_when_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ServerOptions(listen=Listen("ws", "127.0.0.1", 0), banner=True, home_token=True)
    _banner(options, "127.0.0.1", 4500, tmp_path)
    hidden = capsys.readouterr().err
    _banner(replace(options, show_token=True), "127.0.0.1", 4500, tmp_path)
    shown = capsys.readouterr().err
    token = home_token(tmp_path)
    assert token not in hidden and str(tmp_path / TOKEN_FILE) in hidden
    assert token in shown


def test_serve_does_not_start_with_a_token_that_others_can_read(tmp_path: Path) -> None:
    (tmp_path / TOKEN_FILE).write_text("x" * 64)
    (tmp_path / TOKEN_FILE).chmod(0o644)
    refused = run(tmp_path, "serve", "--port", "0")
    assert refused.returncode == 1
    assert "can be read by others" in refused.stderr and "x" * 64 not in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_app_server_is_open_on_loopback_and_asks_for_whatever_its_flags_name(tmp_path: Path) -> None:
    home, secret = tmp_path / "home", tmp_path / "token"
    secret.write_text(" hush-hush \n")
    listen = ("app-server", "--listen", "ws://127.0.0.1:0")
    async with running(home, *listen) as daemon:
        assert (await knock(daemon.address)).status == 101
    async with running(home, *listen, "--ws-auth", "capability-token", "--ws-token-file", str(secret)) as daemon:
        assert (await knock(daemon.address)).body == b"missing websocket bearer token"
        assert (await knock(daemon.address, bearer("hush-hush"))).status == 101
    assert b"hush" not in daemon.said


def test_a_token_may_be_given_by_its_digest(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"hush-hush").hexdigest().upper()
    auth = WebSocketAuth("capability-token", token_sha256=digest)
    options = ServerOptions(listen=Listen("ws", "127.0.0.1", 0), auth=auth)
    verifier = rules_of(options, AccessOptions(), tmp_path).verifier
    assert verifier is not None and verifier.verify("hush-hush").unbound
    with pytest.raises(Unauthorized, match="invalid websocket bearer token"):
        verifier.verify("hush")


def test_tokens_of_the_configuration_open_beside_signed_ones(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 40)
    auth = WebSocketAuth("signed-bearer-token", shared_secret_file=secret)
    known = AccessToken(name="ci", sha256=hashlib.sha256(b"ci-token").hexdigest(), scopes=("read",))
    options = ServerOptions(listen=Listen("ws", "127.0.0.1", 0), auth=auth)
    verifier = rules_of(options, AccessOptions(tokens=(known,)), tmp_path).verifier
    assert verifier is not None and verifier.verify("ci-token").name == "ci"
    assert verifier.verify(jwt.encode({"exp": 4_000_000_000, "sub": "me"}, "s" * 40)).name == "me"
    with pytest.raises(Unauthorized, match="invalid websocket jwt"):
        verifier.verify("other")


async def test_files_and_settings_that_cannot_be_used_are_refused_before_anything_listens(tmp_path: Path) -> None:
    nothing, blank, short = (tmp_path / name for name in ("nothing", "blank", "short"))
    blank.write_bytes(b"  \n")
    short.write_bytes(b"s" * 31)
    here = ServerOptions(listen=Listen("ws", "127.0.0.1", 0))
    for auth, words in (
        (WebSocketAuth("capability-token", token_file=nothing), "failed to read websocket auth secret"),
        (WebSocketAuth("capability-token", token_file=blank), "must not be empty"),
        (WebSocketAuth("signed-bearer-token", shared_secret_file=short), "must be at least 32 bytes"),
    ):
        with pytest.raises(SecretRefused, match=words) as refused:
            rules_of(replace(here, auth=auth), AccessOptions(), tmp_path)
        assert "sss" not in str(refused.value)
    with pytest.raises(ConfigError, match="is no origin"):
        rules_of(here, AccessOptions(allowed_origins=("*",)), tmp_path)
    with pytest.raises(ConfigError, match=r"access\.tokens"):
        load_config(tmp_path, overrides={"access.tokens": '[{name="x",sha256="12"}]'}, environ={})
    shared = make_shared(Table(), FakeHub())
    for path, words in ((nothing, "cannot read"), (short, "are no certificate with its key")):
        with pytest.raises(ListenRefused, match=words):
            listen_tcp(shared, "127.0.0.1", 0, tls=Tls(path, path))


def test_beyond_loopback_nothing_starts_without_authentication(tmp_path: Path) -> None:
    refused = run(tmp_path, "app-server", "--listen", "ws://0.0.0.0:0")
    assert refused.returncode == 1
    assert refused.stderr == (
        "Error: refusing to start non-loopback websocket listener 0.0.0.0:0 without auth; configure "
        "`--ws-auth capability-token` or `--ws-auth signed-bearer-token`\n"
    )


async def test_with_a_certificate_clients_speak_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject)
    command = [*made, "-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, timeout=WAIT_S)
    home = tmp_path / "home"
    files = ("--tls-cert", str(certificate), "--tls-key", str(key))
    async with running(home, "serve", "--port", "0", *files) as daemon:
        assert daemon.url.startswith("wss://")
        with pytest.raises(ConnectFailed):
            async with Client.connect(daemon.url, home=home, reconnect=None):
                pass
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert ssl.get_default_verify_paths().cafile == str(certificate)
        async with Client.connect(daemon.url, home=home, reconnect=None) as client:
            assert client.server["codexHome"] == str(home)
