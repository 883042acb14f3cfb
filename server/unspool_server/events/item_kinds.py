"""What an event is about, as far as replay filters and slow clients ask: its item's type, and which delta it continues.

Reads parameters in their wire form; knows no order and no client.
"""

from collections.abc import Mapping
from typing import Any

DeltaKey = tuple[str, ...]
"""Equal for deltas that continue the same text, so that two in a row may become one."""

_PARTS = ("turnId", "itemId", "summaryIndex", "contentIndex")


def item_kind(method: str, params: Mapping[str, Any]) -> str | None:
    """The type of the item that an `item/…` event tells of; None for every other event."""
    room, _, rest = method.partition("/")
    if room != "item" or not rest:
        return None
    kind, _, progress = rest.partition("/")
    if progress:
        return kind
    item = params.get("item")
    found = item.get("type") if isinstance(item, Mapping) else None
    return found if isinstance(found, str) else None


def delta_key(method: str, params: Mapping[str, Any]) -> DeltaKey | None:
    """Which text a delta continues; None for events that are no deltas."""
    if not method.startswith("item/") or not method.endswith(("delta", "Delta")):
        return None
    return (method, *(str(params.get(part)) for part in _PARTS)) if isinstance(params.get("delta"), str) else None
