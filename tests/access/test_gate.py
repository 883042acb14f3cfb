"""What an upgrade must show: token, origin, host, and that there is room."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from unspool_server.access.bearer import Capability, CapabilityTokens, digest_of
from unspool_server.access.gatekeeper import Gatekeeper
from unspool_server.access.principal import OWNER, Principal, Scope
from unspool_server.access.provenance import Provenance, is_usable_origin
from unspool_server.config_daemon import Limits
from unspool_server.connection import Shared
from unspool_server.transport.gate import Rules
from unspool_server.transport.websocket import Listener, ListenRefused, listen_tcp
from websockets.asyncio.client import connect

from tests.access.doors import bearer, knock
from tests.transport.fakes import FakeHub, Table, make_shared

TOKENS = CapabilityTokens(
    [
        Capability(digest_of("tok"), OWNER),
        Capability(digest_of("other"), Principal("other", "a", frozenset({Scope.READ}))),
    ]
)


@pytest.fixture
def shared() -> Shared:
    return make_shared(Table(), FakeHub())


@pytest.fixture
async def listener(shared: Shared) -> AsyncIterator[Listener]:
    async with listen_tcp(shared, "127.0.0.1", 0, rules=Rules(TOKENS)) as running:
        yield running


REFUSED = {
    None: b"missing websocket bearer token",
    "": b"invalid authorization header",
    "Bearer": b"invalid authorization header",
    "Bearer ": b"invalid authorization header",
    "Basic dG9r": b"invalid authorization header",
    "tok": b"invalid authorization header",
    "Bearer\ttok": b"invalid authorization header",
    "Bearer wrong": b"invalid websocket bearer token",
    "Bearer tok x": b"invalid websocket bearer token",
    "Bearer t\u00f6k": b"invalid websocket bearer token",
}


async def test_an_upgrade_without_the_token_is_refused_in_the_reference_words(listener: Listener) -> None:
    for header, words in REFUSED.items():
        answer = await knock(listener.address, {} if header is None else {"Authorization": header})
        assert (answer.status, answer.body) == (401, words), header
        assert b"text/plain" in answer.whole


async def test_the_scheme_may_be_in_any_case_and_blanks_do_not_matter(listener: Listener) -> None:
    for header in ("Bearer tok", "bearer tok", "BEARER tok", "Bearer  tok", "Bearer tok "):
        assert (await knock(listener.address, {"Authorization": header})).status == 101, header


async def test_health_needs_no_token_and_everything_else_does(listener: Listener) -> None:
    plain = {"Connection": "close", "Upgrade": ""}
    for path in ("/healthz", "/readyz"):
        answer = await knock(listener.address, plain, start=f"GET {path} HTTP/1.1")
        assert (answer.status, answer.body) == (200, b"")
        assert (await knock(listener.address, start=f"GET {path} HTTP/1.1")).status == 401
    assert (await knock(listener.address, plain)).status == 401
    assert (await knock(listener.address, {**plain, **bearer("tok")})).status == 400


async def test_the_digest_of_a_token_opens_nothing(listener: Listener) -> None:
    digest = hashlib.sha256(b"tok").hexdigest()
    assert (await knock(listener.address, bearer(digest))).status == 401


async def test_no_origin_is_let_in_unless_it_was_named_in_full(shared: Shared) -> None:
    provenance = Provenance(origins=("http://localhost:3000", "vscode-webview://*"))
    async with listen_tcp(shared, "127.0.0.1", 0, rules=Rules(TOKENS, provenance)) as listener:
        for origin in ("http://localhost:3000", "vscode-webview://1a2b"):
            assert (await knock(listener.address, {"Origin": origin, **bearer("tok")})).status == 101
            assert (await knock(listener.address, {"Origin": origin})).status == 401
        for origin in (
            *("null", "", "http://localhost", "http://localhost:3000/", "http://localhost:3000.evil.example"),
            *("https://localhost:3000", "HTTP://localhost:3000", "vscode-webview://", "xvscode-webview://1a2b"),
        ):
            answer = await knock(listener.address, {"Origin": origin, **bearer("tok")})
            assert (answer.status, answer.body) == (403, b""), origin


@pytest.mark.parametrize(
    ("origin", "usable"),
    [
        ("https://app.example", True),
        ("vscode-webview://*", True),
        ("vscode-file://vscode-app", True),
        *((bad, False) for bad in ("*", "null", "", "https://*", "http://*", "https://*.example", "app.example")),
        *((bad, False) for bad in ("https://app.example/", " https://app.example", "file://*")),
    ],
)
def test_an_origin_that_would_let_in_the_web_is_no_setting(origin: str, usable: bool) -> None:
    assert is_usable_origin(origin) is usable


async def test_a_request_addressed_to_a_foreign_name_is_refused_so_that_no_page_can_rebind_its_own(
    shared: Shared,
) -> None:
    provenance = Provenance(hosts=("devbox",))
    async with listen_tcp(shared, "127.0.0.1", 0, rules=Rules(provenance=provenance)) as listener:
        for host in ("127.0.0.1", "127.0.0.1:4500", "localhost:1", "LOCALHOST", "[::1]:9", "devbox:80", "devbox."):
            assert (await knock(listener.address, {"Host": host})).status == 101, host
        for host in (
            "[::1]evil.example",
            "[::1%evil.example]",
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "dev",
        ):
            answer = await knock(listener.address, {"Host": host})
            assert (answer.status, answer.body) == (403, b"host not allowed"), host
        assert (await knock(listener.address, {"Host": ""})).status in (400, 403)


async def test_beyond_loopback_nothing_listens_without_a_token_and_names_need_no_list(shared: Shared) -> None:
    with pytest.raises(ListenRefused, match="without auth"):
        listen_tcp(shared, "0.0.0.0", 0)
    rules = Rules(TOKENS, Provenance(names_checked=False))
    async with listen_tcp(shared, "0.0.0.0", 0, rules=rules) as listener:
        address = ("127.0.0.1", listener.address[1])
        assert (await knock(address, {"Host": "unspool.example"})).status == 401
        assert (await knock(address, {"Host": "unspool.example", **bearer("tok")})).status == 101


async def test_connections_beyond_the_limits_are_refused_until_others_end() -> None:
    shared = make_shared(Table(), FakeHub(), gatekeeper=Gatekeeper(Limits(connections=3, connections_per_token=2)))
    async with listen_tcp(shared, "127.0.0.1", 0, rules=Rules(TOKENS)) as listener, AsyncExitStack() as stack:
        url = f"ws://127.0.0.1:{listener.address[1]}"
        open_ = [await stack.enter_async_context(connect(url, additional_headers=bearer("tok"))) for _ in range(2)]
        answer = await knock(listener.address, bearer("tok"))
        assert (answer.status, answer.body) == (429, b"too many connections with this token")
        await stack.enter_async_context(connect(url, additional_headers=bearer("other")))
        answer = await knock(listener.address, bearer("other"))
        assert (answer.status, answer.body) == (503, b"too many connections")
        assert (await knock(listener.address, bearer("wrong"))).status == 401
        await open_[0].close()
        await stack.enter_async_context(connect(url, additional_headers=bearer("tok")))
