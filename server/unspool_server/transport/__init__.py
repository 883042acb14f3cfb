"""Room `transport` of the server (see docs/architecture.md)."""
