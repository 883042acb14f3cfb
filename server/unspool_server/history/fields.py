"""Read a field of raw JSON as the type it should have, or None. Owns no meaning; never raises."""

from collections.abc import Mapping, Sequence
from typing import Any

EMPTY: Mapping[str, Any] = {}


def text_of(source: Mapping[str, Any], key: str) -> str | None:
    """The member as text; None when it is missing or something else."""
    value = source.get(key)
    return value if isinstance(value, str) else None


def count_of(source: Mapping[str, Any], key: str) -> int | None:
    """The member as a whole number >= 0; None when it is missing or something else (booleans are no numbers)."""
    value = source.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def flag_of(source: Mapping[str, Any], key: str) -> bool | None:
    """The member as a truth value; None when it is missing or something else."""
    value = source.get(key)
    return value if isinstance(value, bool) else None


def object_of(source: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """The member as an object; None when it is missing or something else."""
    value = source.get(key)
    return value if isinstance(value, Mapping) else None


def list_of(source: Mapping[str, Any], key: str) -> Sequence[Any] | None:
    """The member as a list; None when it is missing or something else."""
    value = source.get(key)
    return value if isinstance(value, list | tuple) else None


def role_of(item: Mapping[str, Any]) -> str | None:
    """The role of a `message` item; None for every other type."""
    return text_of(item, "role") if item.get("type") == "message" else None


def texts_of(item: Mapping[str, Any]) -> list[str]:
    """The texts of a message's content parts, in order; parts without text are passed over."""
    content = item.get("content")
    if not isinstance(content, list | tuple):
        return []
    texts: list[str] = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else None
        if isinstance(text, str):
            texts.append(text)
    return texts
