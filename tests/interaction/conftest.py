"""Homes of a test's own and the mock model service."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import KINDS, House, Kind


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A home whose daemons run in this process."""
    return _house(tmp_path, "memory")


@pytest.fixture(params=KINDS)
def any_house(tmp_path: Path, request: pytest.FixtureRequest) -> House:
    """The same over each transport."""
    return _house(tmp_path, request.param)


def _house(tmp_path: Path, kind: Kind) -> House:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    return House(home, work, kind)


@pytest.fixture(scope="session")
def mock_service() -> Iterator[Mock]:
    service = Mock()
    yield service
    service.srv.shutdown()
    service.srv.server_close()


@pytest.fixture
def mock(mock_service: Mock) -> Mock:
    """The mock model service, without memory of earlier tests."""
    mock_service.requests.clear()
    mock_service.replies.clear()
    mock_service.compact_replies.clear()
    mock_service.n = mock_service.k = 0
    mock_service.usage.update({"in": 100, "out": 10})
    return mock_service
