"""How much is let in: connections at once and requests in a time, of everyone and of each token.

One per process; lives on its event loop. Who somebody is was found out before (`bearer.py`).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from unspool_server.access.principal import OWNER, Principal
from unspool_server.access.rates import Bucket
from unspool_server.config_daemon import Limits
from unspool_server.errors import RateLimited, UnspoolError

_MAX_BUCKETS = 4096


class TooManyConnections(UnspoolError):
    """No room for one more; `status` is the HTTP status that says so."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Meter:
    """The requests of one connection: its own bucket and its token's."""

    buckets: tuple[Bucket, ...]

    def admit(self) -> None:
        """Count a request.

        Raises:
            RateLimited: Too many; it says when the next one may pass. Nothing was counted.
        """
        wait_ms = max((bucket.wait_ms() for bucket in self.buckets), default=0)
        if wait_ms:
            raise RateLimited(wait_ms)
        for bucket in self.buckets:
            bucket.take()


@dataclass(slots=True)
class Gatekeeper:
    """Counts connections and hands out meters.

    Attributes:
        clock: Steady seconds.
    """

    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.monotonic
    _open: Counter[Principal] = field(default_factory=Counter)
    _buckets: dict[Principal, Bucket] = field(default_factory=dict)

    @contextmanager
    def connection(self, principal: Principal) -> Iterator[None]:
        """Count a connection for as long as it lasts.

        Raises:
            TooManyConnections: 503 where the server is full, 429 where this token has all that it may have.
        """
        if self._open.total() >= self.limits.connections:
            raise TooManyConnections("too many connections", 503)
        if self._open[principal] >= self.limits.connections_per_token:
            raise TooManyConnections("too many connections with this token", 429)
        self._open[principal] += 1
        try:
            yield
        finally:
            self._open[principal] -= 1
            if not self._open[principal]:
                del self._open[principal]

    def meter(self, principal: Principal = OWNER) -> Meter:
        """A meter for one connection. Whoever comes without a token is counted by connection alone.

        That is no matter of the name: a token may be anybody's namesake.
        """
        limits = self.limits
        own = Bucket(limits.requests_per_second, limits.request_burst, self.clock)
        return Meter((own,) if principal is OWNER else (own, self._bucket_of(principal)))

    def _bucket_of(self, principal: Principal) -> Bucket:
        """Kept when its last connection ends, so that a new connection is no new allowance."""
        found = self._buckets.get(principal)
        if found is None:
            if len(self._buckets) >= _MAX_BUCKETS:
                self._buckets = {who: one for who, one in self._buckets.items() if not one.full}
            limits = self.limits
            found = Bucket(limits.token_requests_per_second, limits.token_request_burst, self.clock)
            self._buckets[principal] = found
        return found
