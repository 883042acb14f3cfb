"""How hard a storm is: from the environment, so that a failure can be run again as it was."""

import os
import random
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Sizes:
    """The measures of one storm.

    Attributes:
        seed: Everything that is left to chance follows from it, apart from what the machine's scheduler decides.
        follows: How many threads a client follows.
        kills: How often the daemon is killed with signal 9; once more it is asked to stop.
        seconds: How long turns are started; kills are spread over it.
        pace_s: Seconds between two pieces of a streaming answer.
        words: Length of an answer at most.
    """

    seed: int
    clients: int = 200
    threads: int = 20
    follows: int = 3
    kills: int = 3
    seconds: float = 60.0
    pace_s: float = 0.1
    words: int = 60

    @classmethod
    def from_environment(cls) -> Self:
        """`UNSPOOL_TORTURE_SEED`, `…_CLIENTS` and so on in place of the defaults; without a seed a new one."""
        chosen = cls(random.SystemRandom().randrange(1 << 31))
        for name in cls.__dataclass_fields__:
            given = os.environ.get(f"UNSPOOL_TORTURE_{name.upper()}")
            if given is not None:
                chosen = replace(chosen, **{name: type(getattr(chosen, name))(given)})
        return chosen

    def chance(self, name: str) -> random.Random:
        """The dice of one actor."""
        return random.Random(f"{self.seed}/{name}")
