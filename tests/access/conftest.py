"""Homes with daemons of this process."""

from tests.interaction.conftest import house

__all__ = ["house"]
