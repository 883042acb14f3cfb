"""Homes of a test's own and the mock model service, as the tests of interaction have them."""

from tests.interaction.conftest import house, mock, mock_service

__all__ = ["house", "mock", "mock_service"]
