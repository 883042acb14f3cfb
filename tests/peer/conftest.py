"""The real Codex and homes that both servers open. Everything here is skipped where the real one cannot be had."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.peer.codex_peer import PeerHome, find_codex

WHERE = "set UNSPOOL_PEER_CODEX, or `npm install @openai/codex@0.171.0`"


@pytest.fixture(scope="session")
def codex() -> str:
    path = find_codex()
    if path is None:
        pytest.skip(f"the real Codex is not installed: {WHERE}")
    return path


@pytest.fixture
def homes(codex: str, tmp_path: Path) -> Iterator[Callable[[str], PeerHome]]:
    made: list[PeerHome] = []

    def make(name: str) -> PeerHome:
        made.append(PeerHome(tmp_path / name, codex))
        return made[-1]

    yield make
    for home in made:
        home.done()
