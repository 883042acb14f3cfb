"""Records the text of a streaming item every half second, and once more when its turn is cut off.

Streaming never waits for it: a delta at most starts a timer, and the record is only queued for the writer. What such a
record looks like and where it is shown is in `history/partial_items.py`.
"""

import asyncio
from typing import TYPE_CHECKING

from unspool_server.history.partial_items import Place, growth, partial_record, texts_in

if TYPE_CHECKING:
    from unspool_server.sessions.turns.turn import Turn

PARTIAL_EVERY_S = 0.5
"""How long text waits at most before it is recorded: what a crash of the process may take away."""


class PartialText:
    """How much of a turn's streaming text is recorded."""

    def __init__(self, turn: "Turn") -> None:
        self._turn = turn
        self._recorded: dict[str, dict[Place, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def grew(self) -> None:
        """Text was shown; it is recorded soon, together with what follows it until then."""
        if self._timer is None and not self._stopped:
            self._timer = self._turn.session.env.later(PARTIAL_EVERY_S, self._due)

    def stop(self) -> None:
        """The turn ends."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def keep(self) -> None:
        """Record what the items of the turn have more than is recorded. Runs inside a step; does not wait for the disk.

        Shows no event: clients had the text as deltas.
        """
        turn, records = self._turn, []
        if turn.session.turn is not turn:
            return
        for item_id, live in turn.live.items():
            known = self._recorded.setdefault(item_id, {})
            if added := growth(live.item, known):
                known.update((place, len(text)) for place, text in texts_in(live.item))
                records.append(partial_record(turn.id, live.item, added))
        if records:
            turn.session.take_in(await turn.session.log.add(records))

    def _due(self) -> None:
        self._timer = None
        self._turn.session.post(self.keep, "partial text")
