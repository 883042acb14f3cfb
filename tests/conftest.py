"""What all folders share: profiles of the property tests, homes of a test's own, and the mock model service.

Property tests try few fixed examples by default, many fresh ones with `--hypothesis-profile=fuzz`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import KINDS, House, Kind

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile("suite", deadline=None, derandomize=True, database=None, suppress_health_check=_SLOW)
settings.register_profile("fuzz", max_examples=1000, deadline=None, suppress_health_check=_SLOW, print_blob=True)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def mock_service() -> Iterator[Mock]:
    """One running service for all tests: stopping it takes half a second."""
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
