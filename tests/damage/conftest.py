"""Homes with daemons of this process, and the mock model service."""

from tests.interaction.conftest import house, mock, mock_service

__all__ = ["house", "mock", "mock_service"]
