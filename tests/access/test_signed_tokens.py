"""JWTs at the upgrade: every refusal in the reference's words, and what the claims grant."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from unspool_server.access.bearer import Unauthorized
from unspool_server.access.principal import Principal, Scope
from unspool_server.access.signed import SignedTokens

SECRET = "s" * 40
NOW = 1_900_000_000
TOKENS = SignedTokens(SECRET.encode(), "iss", "aud", clock=lambda: NOW + 0.4)
GOOD: Mapping[str, Any] = {"exp": NOW + 600, "iss": "iss", "aud": "aud"}


def signed(header: Mapping[str, Any] | None = None, secret: str = SECRET, **claims: Any) -> str:
    """A token with any claims, also those that libraries refuse to write; None leaves a claim out."""
    content = {name: value for name, value in {**GOOD, **claims}.items() if value is not None}
    parts = [header or {"alg": "HS256", "typ": "JWT"}, content]
    body = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    mac = hmac.new(secret.encode(), body, hashlib.sha256).digest()
    return (body + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


def refusal(token: str) -> str:
    with pytest.raises(Unauthorized) as refused:
        TOKENS.verify(token)
    return str(refused.value)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": None}, "invalid websocket jwt"),
        ({"exp": str(NOW + 60)}, "invalid websocket jwt"),
        ({"exp": NOW + 60.5}, "invalid websocket jwt"),
        ({"exp": True}, "invalid websocket jwt"),
        ({"exp": NOW - 600}, "expired websocket jwt"),
        ({"exp": NOW - 33}, "expired websocket jwt"),
        ({"exp": NOW - 600, "iss": "other"}, "expired websocket jwt"),
        ({"nbf": NOW + 40}, "websocket jwt is not valid yet"),
        ({"nbf": str(NOW)}, "invalid websocket jwt"),
        ({"iss": None}, "websocket jwt issuer mismatch"),
        ({"iss": "other"}, "websocket jwt issuer mismatch"),
        ({"iss": ["iss"]}, "invalid websocket jwt"),
        ({"aud": None}, "websocket jwt audience mismatch"),
        ({"aud": ["a", "b"]}, "websocket jwt audience mismatch"),
        ({"aud": {"aud": 1}}, "invalid websocket jwt"),
        ({"tenant": "\ud800"}, "invalid websocket jwt"),
        ({"tenant": 5}, "invalid websocket jwt"),
        ({"scope": {"read": True}}, "invalid websocket jwt"),
    ],
)
def test_a_token_is_refused_in_the_words_of_the_first_check_that_failed(claims: dict[str, Any], words: str) -> None:
    assert refusal(signed(**claims)) == words


@pytest.mark.parametrize(
    "token",
    [
        "x.y.z",
        "",
        "not a token",
        signed(secret="t" * 40),
        signed(header={"alg": "none"}),
        signed(header={"alg": "HS512"}),
        jwt.encode(dict(GOOD), SECRET * 2, algorithm="HS512"),
        jwt.encode(dict(GOOD), "", algorithm="none"),
        signed() + "x",
        "[" * 5000,
    ],
)
def test_only_the_one_algorithm_with_the_one_secret_is_believed(token: str) -> None:
    assert refusal(token) == "invalid websocket jwt"


@pytest.mark.parametrize(
    "claims",
    [{}, {"exp": NOW - 20}, {"exp": NOW - 28}, {"nbf": NOW + 27}, {"aud": ["x", "aud"]}, {"iat": NOW + 5000}],
)
def test_clocks_may_differ_a_little_and_an_audience_may_be_one_of_several(claims: dict[str, Any]) -> None:
    assert TOKENS.verify(signed(**claims)).may(Scope.ADMIN)


def test_issuer_and_audience_are_only_looked_at_where_they_were_configured() -> None:
    open_tokens = SignedTokens(SECRET.encode(), clock=lambda: NOW)
    for claims in ({"iss": None, "aud": None}, {"iss": "any", "aud": "any"}):
        assert open_tokens.verify(signed(**claims)).tenant == ""


def test_without_tolerance_a_token_ends_when_it_says() -> None:
    strict = SignedTokens(SECRET.encode(), skew_s=0, clock=lambda: NOW)
    assert strict.verify(signed(exp=NOW))
    with pytest.raises(Unauthorized):
        strict.verify(signed(exp=NOW - 1))


@pytest.mark.parametrize(
    ("claims", "principal"),
    [
        ({"sub": "ci", "scope": "read", "tenant": "a"}, Principal("ci", "a", frozenset({Scope.READ}))),
        ({"scope": "openid write"}, Principal("jwt", "", frozenset({Scope.WRITE}))),
        ({"scope": ["read", "write"]}, Principal("jwt", "", frozenset({Scope.READ, Scope.WRITE}))),
        ({"scope": ""}, Principal("jwt", "", frozenset())),
        ({"scope": []}, Principal("jwt", "", frozenset())),
        ({"scope": "root"}, Principal("jwt", "", frozenset())),
        ({"tenant": "a"}, Principal("jwt", "a", frozenset({Scope.ADMIN}))),
    ],
)
def test_claims_say_who_somebody_is_whose_threads_they_see_and_what_they_may_do(
    claims: dict[str, Any], principal: Principal
) -> None:
    assert TOKENS.verify(signed(**claims)) == principal


def test_each_scope_includes_those_before_it() -> None:
    granted = {scope: Principal("x", "", frozenset({scope})) for scope in Scope}
    may = {scope: [asked for asked in Scope if who.may(asked)] for scope, who in granted.items()}
    assert may == {
        Scope.READ: [Scope.READ],
        Scope.WRITE: [Scope.READ, Scope.WRITE],
        Scope.ADMIN: [Scope.READ, Scope.WRITE, Scope.ADMIN],
    }
    assert not any(Principal("x").may(scope) for scope in Scope)
