"""Token buckets: how many requests a connection, and all connections of a token together, may send in a time.

Owns no clock: seconds of any steady one are handed in.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil


@dataclass(slots=True)
class Bucket:
    """Holds `burst` requests at most and is refilled with `per_s` each second; `per_s` 0 means no limit."""

    per_s: float
    burst: int
    clock: Callable[[], float]
    _level: float = field(init=False)
    _filled_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._level, self._filled_at = float(self.burst), self.clock()

    def wait_ms(self) -> int:
        """Milliseconds until a request may pass; 0: now. Takes nothing."""
        if self.per_s <= 0:
            return 0
        self._refill()
        return 0 if self._level >= 1 else ceil((1 - self._level) / self.per_s * 1000)

    def take(self) -> None:
        """Count one request."""
        self._level -= 1

    @property
    def full(self) -> bool:
        """Whether it has forgotten everything."""
        self._refill()
        return self._level >= self.burst

    def _refill(self) -> None:
        now = self.clock()
        self._level = min(self.burst, self._level + max(0.0, now - self._filled_at) * self.per_s)
        self._filled_at = now
