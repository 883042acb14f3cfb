"""Room `history` of the server (see docs/architecture.md)."""
