"""The scripted daemon, ended with the test."""

from collections.abc import AsyncIterator

import pytest

from tests.client.fake_daemon import FakeDaemon


@pytest.fixture
async def daemon() -> AsyncIterator[FakeDaemon]:
    made = FakeDaemon()
    yield made
    await made.close()
