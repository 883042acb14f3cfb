"""A scriptable Responses service for the tests of providers."""

from collections.abc import Iterator

import pytest

from tests.fixtures.mockmodel import Mock


@pytest.fixture(scope="session")
def mock_service() -> Iterator[Mock]:
    """One running service for all tests: stopping it takes half a second."""
    service = Mock()
    yield service
    service.srv.shutdown()
    service.srv.server_close()


@pytest.fixture
def mock(mock_service: Mock) -> Mock:
    """The service as if it had just been started."""
    mock_service.requests.clear()
    mock_service.replies.clear()
    mock_service.compact_replies.clear()
    mock_service.n = mock_service.k = 0
    return mock_service
