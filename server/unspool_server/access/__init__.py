"""Room `access` of the server (see docs/architecture.md)."""
