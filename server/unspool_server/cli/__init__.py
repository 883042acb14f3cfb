"""Room `cli` of the server (see docs/architecture.md)."""
