"""Room `handlers` of the server (see docs/architecture.md)."""
