"""Fixtures: one fake method table, one fake hub, and what connections share of them."""

import pytest
from unspool_server.connection import Shared

from tests.transport.fakes import FakeHub, Table, make_shared


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def hub() -> FakeHub:
    return FakeHub()


@pytest.fixture
def shared(table: Table, hub: FakeHub) -> Shared:
    return make_shared(table, hub)
