"""Parts of messages that both foreign formats share: texts and images, and what can be neither."""

from collections.abc import Callable, Sequence
from typing import Any

from .source import Entry, text_at
from .story import Part

Lose = Callable[[str, str], None]
"""Notes a part that does not come over: kind and reason."""


def parts_of(content: Any, lose: Lose) -> list[Part]:
    """The texts and images of a message's content, which is a text or a list of blocks."""
    if isinstance(content, str):
        return [{"text": content}]
    parts: list[Part] = []
    for block in content if isinstance(content, list) else ():
        part = part_of(block)
        if part is not None:
            parts.append(part)
        else:
            kind = text_at(block, "type") if isinstance(block, dict) else None
            lose(kind or "content", "This kind of content has no counterpart.")
    return parts


def part_of(block: Any) -> Part | None:
    """One block as a part, None for anything but a text or an image."""
    if isinstance(block, str):
        return {"text": block}
    if not isinstance(block, dict):
        return None
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return {"text": block["text"]}
    url = _image_url(block) if block.get("type") == "image" else None
    return None if url is None else {"image": url}


def _image_url(block: Entry) -> str | None:
    """`source: {type, media_type, data | url}` in one format, `data` and `mimeType` in the other."""
    source = block.get("source")
    if isinstance(source, dict):
        url, media, data = (text_at(source, key) for key in ("url", "media_type", "data"))
        if url is not None:
            return url
    else:
        media, data = text_at(block, "mimeType"), text_at(block, "data")
    return None if data is None else f"data:{media or 'image/png'};base64,{data}"


def text_of_parts(parts: Sequence[Part]) -> str:
    """The texts, one below the other."""
    return "\n".join(part["text"] for part in parts if "text" in part)
