"""The texts of Responses items and the token estimate over them; no rule of history lives here."""

from collections.abc import Iterable, Mapping
from typing import Any


def item_text(item: Mapping[str, Any]) -> str:
    """Every text of an item joined: content and summary parts, a call's arguments, an output's text."""
    parts: list[str] = []
    for key in ("content", "summary", "output", "arguments", "input"):
        value = item.get(key)
        if isinstance(value, str):
            parts.append(value)
        elif isinstance(value, list):
            parts.extend(part_text(part) for part in value)
    return "".join(parts)


def part_text(part: object) -> str:
    """The text of one content part, empty for an image or anything unknown."""
    text = part.get("text") if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else ""


def estimate_tokens(items: Iterable[Mapping[str, Any]]) -> int:
    """Tokens of items: ceil(UTF-8 bytes of their texts / 4) (DESIGN §5)."""
    size = sum(len(item_text(item).encode("utf-8", "surrogatepass")) for item in items)
    return -(-size // 4)
