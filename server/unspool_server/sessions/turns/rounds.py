"""The rounds of a turn: the model answers, its calls are run, until it has nothing left to call; and when to compact.

The rules for compaction by itself are those of 07 §6.3. How a compaction is made is in `compaction.py`.
"""

from functools import partial
from typing import TYPE_CHECKING

from unspool_server.errors import ContextLengthExceeded, ModelError
from unspool_server.sessions.tools.calls import run_calls
from unspool_server.sessions.tools.mcp import start_servers
from unspool_server.sessions.turns.sampling import sample
from unspool_server.sessions.turns.usage import over_limit, over_threshold, response_over_limit

if TYPE_CHECKING:
    from unspool_server.sessions.turns.turn import Turn

MAX_FUTILE_COMPACTIONS = 2
"""Compactions in a row within one turn that did not bring the size under the limit; then the turn fails."""


class Rounds:
    """What a turn remembers of its compactions from round to round.

    Attributes:
        compacted: The newest request follows a compaction.
        futile: Compactions in a row after which the very next response was over the limit again.
        made_room: A request of this turn did not fit and was asked again after a compaction; that is done once.
    """

    def __init__(self, turn: "Turn") -> None:
        self._turn = turn
        self._compacted = False
        self._futile = 0
        self._made_room = False

    async def run(self) -> None:
        """Run the turn to its good end. Raises ModelError."""
        turn = self._turn
        self._compacted = await turn.session.step(self._is_full_before)
        if self._compacted:
            await _compact(turn)
        await start_servers(turn.session)
        await turn.session.env.agents.catch_up(turn.session)
        await turn.session.step(turn.record_input)
        while True:
            await self._answer()
            await run_calls(turn)
            self._judge_compaction()
            if await turn.session.step(self._is_due_after):
                await _compact_after(turn)
            if not await turn.session.step(turn.go_on):
                return
            await self._compact_between()

    async def _answer(self) -> None:
        """One answer; a request that does not fit is sent once more, compacted (not where compaction is turned off)."""
        turn = self._turn
        try:
            await sample(turn)
        except ContextLengthExceeded:
            if self._made_room or turn.session.env.config.auto_compact_limit is None:
                raise
            self._made_room = self._compacted = True
            await _compact(turn)
            turn.last_message = None
            await turn.session.step(turn.take_in_round)
            await sample(turn)

    def _judge_compaction(self) -> None:
        """A compaction helped when the very next response says so; otherwise one more is tried, and then no other."""
        self._futile = self._futile + 1 if self._compacted and response_over_limit(self._turn.session) else 0

    async def _compact_between(self) -> None:
        """Compact before the model is asked again, where the thread has become too large."""
        turn = self._turn
        self._compacted = await turn.session.step(partial(_is_full, turn))
        if not self._compacted:
            return
        if self._futile >= MAX_FUTILE_COMPACTIONS:
            raise ContextLengthExceeded(
                f"the context is still over the limit after {self._futile} compactions; nothing more was tried"
            )
        await _compact(turn)
        turn.last_message = None

    async def _is_full_before(self) -> bool:
        return over_limit(self._turn.session, extra=self._turn.context_update().items)

    async def _is_due_after(self) -> bool:
        turn = self._turn
        return not turn.calls and not turn.pending and over_threshold(turn.session)


async def _is_full(turn: "Turn") -> bool:
    return over_limit(turn.session)


async def _compact(turn: "Turn") -> None:
    from unspool_server.sessions.turns.compaction import compact_inside

    await compact_inside(turn)


async def _compact_after(turn: "Turn") -> None:
    """Compact behind the answer, which is there already: a failure is told, and a later turn tries again."""
    try:
        await _compact(turn)
    except ModelError as error:
        turn.session.warn(
            f"The thread could not be compacted after the turn: {error.message}",
            code="compactionFailed",
            effect="History is unchanged.",
        )
