"""A big thread, made once for all cost tests, and fresh copies of its home."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.costs.big_log import make_big_thread


@dataclass(frozen=True, slots=True)
class Big:
    """A home with one thread of 50 MB; `log_bytes` is the size of its log."""

    home: Path
    thread_id: str
    log_bytes: int


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Big:
    """The original; tests must not write into it."""
    home = tmp_path_factory.mktemp("big") / "home"
    thread_id = asyncio.run(make_big_thread(home))
    # What a catalogue would know already must not make a cold resume look cheap.
    shutil.rmtree(home / "unspool", ignore_errors=True)
    return Big(home, thread_id, sum(path.stat().st_size for path in home.rglob("rollout-*.jsonl")))


@pytest.fixture
def big(made: Big, tmp_path: Path) -> Big:
    """A copy to write into."""
    return Big(Path(shutil.copytree(made.home, tmp_path / "home")), made.thread_id, made.log_bytes)
