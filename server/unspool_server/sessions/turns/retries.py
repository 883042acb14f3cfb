"""Asking a model again when its stream broke: how often, after how long, and what clients are told (`wire` §4).

Who waits and asks is `sampling.py` for a turn's own requests, and `compaction.py` for summaries.
"""

from typing import TYPE_CHECKING

from unspool_server.errors import ModelError, StreamCut
from unspool_server.model.backoff import delay_s
from unspool_server.telemetry import metrics

if TYPE_CHECKING:
    from unspool_server.sessions.turns.turn import Turn

BROKEN_STREAM = {"responseStreamDisconnected": {"httpStatusCode": None}}


class StreamRetries:
    """The tries that one request of a turn has left."""

    def __init__(self, turn: "Turn") -> None:
        self._turn = turn
        self._failed = 0

    def next_delay_s(self, error: ModelError) -> float | None:
        """Seconds to wait before the next try, of which clients are told; None when the error is final."""
        turn = self._turn
        most = turn.session.env.providers.get(turn.plan.settings.model_provider).stream_max_retries
        if not isinstance(error, StreamCut) or self._failed >= most:
            return None
        wait_s = delay_s(self._failed, error.retry_after_s)
        self._failed += 1
        metrics.MODEL_RETRIES.add()
        told = {
            "message": f"Reconnecting... {self._failed}/{most}",
            "codexErrorInfo": BROKEN_STREAM,
            "additionalDetails": error.message,
        }
        turn.session.publish("error", {"turnId": turn.id, "willRetry": True, "error": told})
        return wait_s
