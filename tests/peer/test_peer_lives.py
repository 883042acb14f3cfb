"""The model sees the same in random lives on both servers. `UNSPOOL_PEER_LIVES` says how many."""

import os
from collections.abc import Callable

import pytest

from tests.peer.codex_peer import PeerHome
from tests.peer.peer_lives import SIDES, Side, found, live_together

LIVES = int(os.environ.get("UNSPOOL_PEER_LIVES", "200"))
FIRST = int(os.environ.get("UNSPOOL_PEER_FIRST", "0"))
STEPS = int(os.environ.get("UNSPOOL_PEER_STEPS", "8"))
TOGETHER = 10


@pytest.mark.parametrize("first", range(FIRST, FIRST + LIVES, TOGETHER))
def test_both_servers_send_the_model_the_same_in_the_same_life(homes: Callable[[str], PeerHome], first: int) -> None:
    made = [homes(f"of-{who}") for who in SIDES]
    cwd = made[0].cwd
    sides = [Side(who, home, home.open(who)) for who, home in zip(SIDES, made, strict=True)]
    for side in sides:
        side.server.tools["lookup"] = found

    figures = live_together(range(first, min(first + TOGETHER, FIRST + LIVES)), sides, cwd, steps=STEPS)

    print(f"lives {figures.lives}, steps {figures.steps}, compared requests {figures.requests}")
    assert figures.differences == [], "\n\n".join(figures.differences)
