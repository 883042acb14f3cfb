"""The daemon: threads as sessions over append-only logs."""

__version__ = "0.1.0"
