"""Showing that a turn waits for a person: the flags of `thread/status/changed`. Owns no question."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from unspool_server.sessions.turns.turn import Turn

WaitingFlag = Literal["waitingOnApproval", "waitingOnUserInput"]


@contextmanager
def waiting(turn: "Turn", flag: WaitingFlag) -> Iterator[None]:
    """Show the flag for as long as at least one question of the turn is open.

    A wait that the turn's own end cuts short is not told of: the next status is the end's (`wire` §6).
    """
    turn.flags[flag] += 1
    if turn.flags[flag] == 1:
        turn.session.publish_status()
    cut_short = False
    try:
        yield
    except asyncio.CancelledError:
        cut_short = True
        raise
    finally:
        turn.flags[flag] -= 1
        if not cut_short and not turn.flags[flag]:
            turn.session.publish_status()
