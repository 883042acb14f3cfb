"""How long to wait between attempts to reconnect."""

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing pauses with full jitter.

    Attributes:
        first_s: Upper bound of the pause before the second attempt; the first attempt comes at once.
        factor: Growth per attempt.
        max_s: No pause is longer.
        attempts: How many attempts per outage; None tries for ever.
    """

    first_s: float = 0.1
    factor: float = 2.0
    max_s: float = 10.0
    attempts: int | None = 30

    def pauses(self) -> Iterator[float]:
        """The pause in seconds before each attempt of one outage."""
        bound, made = self.first_s, 0
        while self.attempts is None or made < self.attempts:
            yield 0.0 if made == 0 else random.uniform(0.0, bound)
            bound = min(bound * self.factor, self.max_s) if made else bound
            made += 1
