"""Room `model` of the server (see docs/architecture.md)."""
