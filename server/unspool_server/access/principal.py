"""Who asks: a name for limits and logs, the tenant whose threads it sees, and what it may do with them.

Owns no way to find out who it is (`bearer.py`, `signed.py`) and no rule about methods (`scopes.py`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a caller may do; each scope includes those before it."""

    READ = "read"
    """See threads and follow them."""
    WRITE = "write"
    """Start and change threads, run turns, answer approvals."""
    ADMIN = "admin"
    """Remove threads for good, and whatever else cannot be taken back."""


_RANK = {scope: rank for rank, scope in enumerate(Scope)}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a connection belongs to; equal principals share limits.

    Attributes:
        name: Of the token, or the subject of a JWT. Never a secret.
        tenant: Its threads are all that is seen; empty for the threads of the machine's owner.
        scopes: As granted; empty means that nothing is allowed.
    """

    name: str
    tenant: str = ""
    scopes: frozenset[Scope] = frozenset()

    def may(self, scope: Scope) -> bool:
        """Whether one of the scopes includes this one."""
        return any(_RANK[own] >= _RANK[scope] for own in self.scopes)

    @property
    def unbound(self) -> bool:
        """Whether it is the machine's owner in all but name, so that no path needs to be kept from it."""
        return self.tenant == "" and self.may(Scope.ADMIN)


OWNER = Principal("owner", "", frozenset({Scope.ADMIN}))
"""Whoever needs no token: over stdio, a unix socket, or a loopback address that was opened to everyone on it."""


def scopes_of(words: Iterable[str]) -> frozenset[Scope]:
    """The scopes among some words; words of other services mean nothing here."""
    known = {scope.value: scope for scope in Scope}
    return frozenset(known[word] for word in words if word in known)
