"""Room `sessions` of the server (see docs/architecture.md)."""
