"""Shapes of the wire and of the log. No I/O; pydantic and the standard library only."""
