"""Signed bearer tokens: HS256 JWTs with a shared secret, checked as the reference does (`wire` §1), and their claims.

Claims of ours: `tenant` (text) and `scope` (words separated by blanks, or a list of them). A token without `scope` may
do everything in its tenant, since the reference's tokens carry none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import time
from typing import Any

import jwt

from unspool_server.access.bearer import Unauthorized
from unspool_server.access.principal import Principal, Scope, scopes_of

INVALID = "invalid websocket jwt"
EXPIRED = "expired websocket jwt"
NOT_YET = "websocket jwt is not valid yet"
ISSUER = "websocket jwt issuer mismatch"
AUDIENCE = "websocket jwt audience mismatch"

DEFAULT_SKEW_S = 30
"""Seconds by which clocks may differ; the reference lets a token pass 28 s after its end and refuses it after 33 s."""

MIN_SECRET_BYTES = 32
"""Shorter secrets can be guessed from one token; the reference refuses them as well."""

_UNCHECKED: Any = {f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}


@dataclass(frozen=True, slots=True)
class SignedTokens:
    """Checks JWTs.

    Attributes:
        issuer: The `iss` that a token must have; None: any or none.
        audience: What `aud` must be or hold; None: any or none.
        skew_s: Tolerance for `exp` and `nbf`, in seconds.
        clock: Seconds since the epoch.
    """

    secret: bytes
    issuer: str | None = None
    audience: str | None = None
    skew_s: int = DEFAULT_SKEW_S
    clock: Callable[[], float] = time

    def verify(self, token: str) -> Principal:
        """Check signature, times, issuer and audience, in this order.

        Raises:
            Unauthorized: With the reference's text for the first check that failed.
        """
        claims = self._signed_claims(token)
        now = self.clock()
        expires, begins = _seconds(claims, "exp"), _seconds(claims, "nbf")
        if expires is None:
            raise Unauthorized(INVALID)
        if now > expires + self.skew_s:
            raise Unauthorized(EXPIRED)
        if begins is not None and now < begins - self.skew_s:
            raise Unauthorized(NOT_YET)
        issuer, audiences = _text(claims, "iss"), _texts(claims, "aud")
        if self.issuer is not None and issuer != self.issuer:
            raise Unauthorized(ISSUER)
        if self.audience is not None and self.audience not in audiences:
            raise Unauthorized(AUDIENCE)
        return _principal(claims)

    def _signed_claims(self, token: str) -> Mapping[str, Any]:
        try:
            # Only one algorithm: a token must not choose how it is checked.
            claims: Mapping[str, Any] = jwt.decode(token, self.secret, algorithms=["HS256"], options=_UNCHECKED)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise Unauthorized(INVALID) from None
        return claims


def _principal(claims: Mapping[str, Any]) -> Principal:
    words = _texts(claims, "scope")
    if isinstance(claims.get("scope"), str):
        words = claims["scope"].split()
    scopes = scopes_of(words) if claims.get("scope") is not None else frozenset({Scope.ADMIN})
    return Principal(_text(claims, "sub") or "jwt", _text(claims, "tenant") or "", scopes)


def _seconds(claims: Mapping[str, Any], name: str) -> int | None:
    """A time; whole seconds only, as in the reference. Raises Unauthorized for anything else."""
    value = claims.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise Unauthorized(INVALID)
    return value


def _text(claims: Mapping[str, Any], name: str) -> str | None:
    value = claims.get(name)
    if value is not None and not (isinstance(value, str) and _encodable(value)):
        raise Unauthorized(INVALID)
    return value


def _encodable(text: str) -> bool:
    """Half a surrogate pair can neither be recorded nor looked up."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _texts(claims: Mapping[str, Any], name: str) -> list[str]:
    """One text or a list of them. Raises Unauthorized for anything else."""
    value = claims.get(name)
    values = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in values):
        raise Unauthorized(INVALID)
    return values
