"""Ids and times of imported things: always the same for the same source, so that importing twice changes nothing."""

import hashlib
from datetime import UTC, datetime
from uuid import UUID

_TIME_LIMIT_MS = 221_845_392_000_000
"""The year 9000: later times are damage, and no file name could hold the last ones of all."""


def derived_id(ms: int, *key: object) -> str:
    """A UUIDv7 with the time given whose other bits follow from the key."""
    digest = hashlib.sha256("\0".join(map(str, key)).encode("utf-8", "surrogatepass")).digest()
    high = max(0, ms) << 80
    low = int.from_bytes(digest[:10]) & ~(0xF << 76) & ~(0x3 << 62)
    return str(UUID(int=high | low | (0x7 << 76) | (0x2 << 62)))


def as_uuid(text: object) -> str | None:
    """The usual spelling of a UUID, None for anything else."""
    if not isinstance(text, str) or len(text) != 36:
        return None
    try:
        return str(UUID(text))
    except ValueError:
        return None


def milliseconds_of(stamp: object) -> int | None:
    """Milliseconds since the epoch of an ISO time (UTC where it names no zone) or of a number of them."""
    if isinstance(stamp, int | float) and not isinstance(stamp, bool) and 0 <= stamp < _TIME_LIMIT_MS:
        return int(stamp)
    if not isinstance(stamp, str):
        return None
    try:
        moment = datetime.fromisoformat(stamp)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return round(seconds * 1000) if 0 <= seconds * 1000 < _TIME_LIMIT_MS else None


def iso_time(ms: int) -> str:
    """A time as log lines write it (01 §2): UTC with milliseconds."""
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
