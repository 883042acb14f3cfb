"""Message bytes: JSON in, JSON out. One JSON object is one message; framing is the channels' business."""

import json
from collections.abc import Mapping
from typing import Any

import orjson


def encode(message: Mapping[str, Any]) -> bytes:
    """One line of JSON without its line feed. Lone surrogates, which orjson refuses, go out as escapes."""
    try:
        return orjson.dumps(message)
    except TypeError:
        return json.dumps(message, separators=(",", ":")).encode()


def decode(raw: bytes) -> dict[str, Any] | None:
    """The message, or None where the bytes are no JSON object."""
    try:
        message = orjson.loads(raw)
    except ValueError:
        try:
            message = json.loads(raw)
        except (ValueError, RecursionError):
            return None
    return message if isinstance(message, dict) else None
