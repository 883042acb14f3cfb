"""How long to wait before a model service is asked again. Owns no loop, and waits for nothing itself."""

import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

Sleep = Callable[[float], Awaitable[None]]
"""How to wait, given seconds."""

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 10.0
LONGEST_ASKED_DELAY_S = 60.0
"""The most that a service's `Retry-After` is followed; a user waits for the answer."""


def delay_s(number: int, asked_s: float | None = None) -> float:
    """Seconds to wait: doubled with every try and spread a little, or what the service asked for, within bounds.

    Args:
        number: Tries that failed before this one, from 0.
        asked_s: `ModelError.retry_after_s`.
    """
    if asked_s is not None:
        return min(max(asked_s, 0.0), LONGEST_ASKED_DELAY_S)
    # The exponent is bounded too: a hundred retries may be configured.
    doubled = FIRST_DELAY_S * float(2 ** min(number, 10))
    return min(doubled, LONGEST_DELAY_S) * random.uniform(0.9, 1.1)


def asked_delay_s(headers: Mapping[str, str]) -> float | None:
    """Seconds out of `retry-after-ms` or `retry-after` (a number or a date); None where neither says anything."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return float(headers[name]) * unit_s
        except (KeyError, ValueError):
            continue
    try:
        at = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp()
