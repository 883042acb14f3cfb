"""What the model gets of an MCP result, in the reference's form. Pure.

Structured content goes as one text; otherwise each part of the content is a part of the output, what is neither text
nor image as JSON.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

from unspool_server.history.items import OUTPUT_LIMIT_BYTES
from unspool_server.history.tokens import BYTES_PER_TOKEN, cut_middle, tokens_of_bytes, utf8

_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF")
"""How images begin that model services take; a history with any other would be refused from then on."""

_MIME = re.compile(r"image/[a-z0-9.+-]{1,40}", re.IGNORECASE)

_NO_IMAGE = "image content omitted because it could not be processed"


def model_output(
    result: Mapping[str, Any], *, wall_s: float, token_limit: int | None = None
) -> str | list[dict[str, Any]]:
    """The output of a call.

    Args:
        wall_s: Seconds since the model asked.
        token_limit: Longest text altogether, in tokens; never more than what a restart would read back (07 §5).
    """
    limit = min((token_limit or OUTPUT_LIMIT_BYTES) * BYTES_PER_TOKEN, OUTPUT_LIMIT_BYTES)
    head = f"Wall time: {wall_s:.4f} seconds\nOutput:"
    structured = result.get("structuredContent")
    if structured is not None:
        return f"{head}\n{_cut(_json(structured), limit)}"
    parts = [{"type": "input_text", "text": head}]
    for content in result.get("content") or ():
        part = _part(content)
        if "text" in part:
            size = len(utf8(part["text"]))
            part["text"] = _cut(part["text"], limit)
            limit = max(limit - size, 0)
        parts.append(part)
    return parts


def _part(content: Any) -> dict[str, Any]:
    kind = content.get("type") if isinstance(content, Mapping) else None
    if kind == "text" and isinstance(content.get("text"), str):
        return {"type": "input_text", "text": content["text"]}
    if kind == "image":
        url = _image_url(content)
        return {"type": "input_text", "text": _NO_IMAGE} if url is None else {"type": "input_image", "image_url": url}
    return {"type": "input_text", "text": _json(content)}


def _image_url(content: Mapping[str, Any]) -> str | None:
    data, mime = content.get("data"), content.get("mimeType")
    if not isinstance(data, str) or not isinstance(mime, str) or not _MIME.fullmatch(mime):
        return None
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return f"data:{mime};base64,{data}" if raw.startswith(_SIGNATURES) else None


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:  # a number beyond 64 bits
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _cut(text: str, limit: int) -> str:
    size = len(utf8(text))
    return text if size <= limit else cut_middle(text, limit, f"…{tokens_of_bytes(size - limit)} tokens truncated…")
