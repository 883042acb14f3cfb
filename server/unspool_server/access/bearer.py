"""Bearer tokens at the upgrade: reading the header, and capability tokens known by their digests (`wire` §1).

Owns neither JWTs (`signed.py`) nor the files that secrets come from (`secret_files.py`).
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from unspool_server.access.principal import Principal
from unspool_server.errors import UnspoolError

MISSING = "missing websocket bearer token"
MALFORMED = "invalid authorization header"
WRONG = "invalid websocket bearer token"


class Unauthorized(UnspoolError):
    """The upgrade carries no token that opens anything; the message is the 401's body, in the reference's words."""


class Verifier(Protocol):
    """Tells who a token belongs to."""

    def verify(self, token: str) -> Principal:
        """Raises Unauthorized for a token that opens nothing."""


def bearer_token(headers: Mapping[str, str]) -> str:
    """The token of an upgrade. Scheme word in any case; blanks around the token mean nothing.

    Raises:
        Unauthorized: No `Authorization`, or one that is no `Bearer TOKEN`.
    """
    given = headers.get("authorization")
    if given is None:
        raise Unauthorized(MISSING)
    scheme, _, token = given.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized(MALFORMED)
    return token


def digest_of(token: str) -> bytes:
    """What is kept of a token. Tokens are random and long, so that a plain hash cannot be turned round."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True, slots=True)
class Capability:
    """A token that opens something; only its digest is known."""

    digest: bytes
    principal: Principal


class CapabilityTokens:
    """Tokens that are whatever they are: who holds one has what it opens."""

    def __init__(self, known: Sequence[Capability]) -> None:
        self._known = tuple(known)

    def verify(self, token: str) -> Principal:
        """Every known digest is compared, each in constant time, so that the time tells nothing.

        Raises:
            Unauthorized: None of ours.
        """
        digest, found = digest_of(token), None
        for one in self._known:
            if hmac.compare_digest(digest, one.digest):
                found = one.principal
        if found is None:
            raise Unauthorized(WRONG)
        return found


@dataclass(frozen=True, slots=True)
class EitherOf:
    """Two ways to prove who one is; the second one's refusal is told."""

    first: Verifier
    second: Verifier

    def verify(self, token: str) -> Principal:
        """Raises Unauthorized when neither knows the token."""
        try:
            return self.first.verify(token)
        except Unauthorized:
            return self.second.verify(token)
