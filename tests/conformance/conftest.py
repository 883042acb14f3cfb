"""Every store backend, one after the other."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from unspool_server.store.files import LocalShelf
from unspool_server.store.local import LocalStore
from unspool_server.store.memory import MemoryShelf, MemoryStore
from unspool_server.store.rollouts import RolloutStore
from unspool_server.store.shelf import Shelf

from tests.conformance.faulty_shelf import Faults, FaultyShelf


class Backend:
    """One medium, and stores over it: each `open` is another process as far as the rules are concerned."""

    def __init__(self, kind: str, home: Path, stack: AsyncExitStack) -> None:
        self.kind, self.home = kind, home
        self.faults = Faults()
        medium: Shelf = MemoryShelf() if kind == "memory" else LocalShelf(home)
        self.shelf = FaultyShelf(medium, self.faults)
        self._stack = stack

    def open(self, *, durable: bool = False) -> RolloutStore:
        """A store over the medium; closed at the end of the test."""
        store: RolloutStore
        if self.kind == "memory":
            store = MemoryStore(shelf=self.shelf)
        else:
            store = LocalStore(self.home, shelf=FaultyShelf(LocalShelf(self.home), self.faults), durable=durable)
        self._stack.push_async_callback(store.close)
        return store


@pytest_asyncio.fixture(params=["memory", "local"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """The backends under test."""
    async with AsyncExitStack() as stack:
        yield Backend(request.param, tmp_path / "home", stack)


@pytest.fixture
def store(backend: Backend) -> RolloutStore:
    """A store on the backend under test."""
    return backend.open()
