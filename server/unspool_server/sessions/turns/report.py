"""What operators learn of one turn: how long it took, when its first text came, how it ended."""

import logging
import time
from typing import Literal

from unspool_server.telemetry import metrics, traces
from unspool_server.telemetry.logs import event

Outcome = Literal["completed", "failed", "interrupted"]

logger = logging.getLogger(__name__)


class TurnReport:
    """Begun with its turn; times are on the monotonic clock, in seconds."""

    def __init__(self, thread_id: str, turn_id: str, kind: str) -> None:
        self._thread_id, self._turn_id, self._kind = thread_id, turn_id, kind
        self._began = time.monotonic()
        self._first_delta_s: float | None = None

    @property
    def age_s(self) -> float:
        """Seconds since the turn began."""
        return time.monotonic() - self._began

    def shown(self) -> None:
        """Clients were shown text; only the first time counts."""
        if self._first_delta_s is None:
            self._first_delta_s = self.age_s
            metrics.FIRST_DELTA_SECONDS.observe(self._first_delta_s)

    def ended(self, outcome: Outcome, *, written: bool) -> None:
        """The turn's end is recorded; `written` tells whether the disk took it."""
        metrics.TURNS.add(self._kind, outcome)
        metrics.TURN_SECONDS.observe(self.age_s, self._kind)
        if not written:
            metrics.UNWRITTEN_TURNS.add()
        traces.note(outcome=outcome)
        event(
            logger,
            "turn ended",
            thread=self._thread_id,
            turn=self._turn_id,
            kind=self._kind,
            outcome=outcome,
            duration_s=round(self.age_s, 3),
            first_delta_s=None if self._first_delta_s is None else round(self._first_delta_s, 3),
            durability="written" if written else "accepted",
        )
