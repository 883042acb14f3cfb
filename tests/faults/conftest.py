"""A disk that refuses on request, below a real daemon."""

from pathlib import Path

import pytest
from unspool_server.cli import daemon
from unspool_server.store.files import LocalShelf
from unspool_server.store.local import LocalStore

from tests.conformance.faulty_shelf import Faults, FaultyShelf


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """What the disk of every daemon of the test does wrong."""
    planned = Faults()

    def store(home: Path, *, durable: bool = False) -> LocalStore:
        return LocalStore(home, shelf=FaultyShelf(LocalShelf(home), planned), durable=durable)

    monkeypatch.setattr(daemon, "LocalStore", store)
    return planned
