"""Showing that a turn waits for a person: the flags of `thread/status/changed`. Owns no question."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from unspool_server.sessions.turn import Turn

WaitingFlag = Literal["waitingOnApproval", "waitingOnUserInput"]


@contextmanager
def waiting(turn: "Turn", flag: WaitingFlag) -> Iterator[None]:
    """Show the flag for as long as at least one question of the turn is open."""
    turn.flags[flag] += 1
    if turn.flags[flag] == 1:
        turn.session.publish_status()
    try:
        yield
    finally:
        turn.flags[flag] -= 1
        if not turn.flags[flag] and turn.session.turn is turn:
            turn.session.publish_status()
