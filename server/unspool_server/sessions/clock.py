"""Time and identity, the two things that reconstruction must never ask for."""

import time
from datetime import UTC, datetime

from uuid_utils import uuid7


def new_id() -> str:
    """A fresh UUIDv7 in its usual text form; ordered by creation within a process."""
    return str(uuid7())


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def now_s() -> int:
    """Whole seconds since the epoch."""
    return int(time.time())


def iso_now() -> str:
    """The time as log headers write it (01 §2): UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
