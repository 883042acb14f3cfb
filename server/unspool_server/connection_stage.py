"""The life of a connection as a machine: its stages, and the one table of moves between them."""

from collections.abc import Mapping
from enum import Enum, auto

from unspool_server.errors import LocalProtocolError


class Stage(Enum):
    """Where a connection stands in its life."""

    NEW = auto()
    READY = auto()
    """`initialize` was answered."""
    ENDING = auto()
    """The client will send nothing more; answers owed are still given."""
    CLOSED = auto()


class Move(Enum):
    """What takes a connection from one stage to the next."""

    INITIALIZE = auto()
    END_INPUT = auto()
    CLOSE = auto()


_MOVES: Mapping[tuple[Stage, Move], Stage] = {
    (Stage.NEW, Move.INITIALIZE): Stage.READY,
    (Stage.NEW, Move.END_INPUT): Stage.ENDING,
    (Stage.READY, Move.END_INPUT): Stage.ENDING,
    (Stage.NEW, Move.CLOSE): Stage.CLOSED,
    (Stage.READY, Move.CLOSE): Stage.CLOSED,
    (Stage.ENDING, Move.CLOSE): Stage.CLOSED,
}


def next_stage(stage: Stage, move: Move) -> Stage:
    """The stage after a move. Raises LocalProtocolError for an illegal one."""
    try:
        return _MOVES[stage, move]
    except KeyError:
        raise LocalProtocolError(f"{move.name} is not possible in stage {stage.name}") from None
