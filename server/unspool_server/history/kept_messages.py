"""Which user messages a compaction keeps, and how the one at the edge of the budget is cut (07 §6.2)."""

from collections.abc import Mapping, Sequence
from typing import Any

from .boundaries import is_real_user_message
from .fields import list_of, texts_of
from .state import Item
from .tokens import BYTES_PER_TOKEN, head_of, tail_of, tokens_of_bytes, utf8

KEPT_TOKENS = 20_000
"""Budget of the kept user messages together."""


def user_message(text: str) -> Item:
    """A user message of one text part."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def keep_user_messages(items: Sequence[Item], budget: int = KEPT_TOKENS) -> list[tuple[int, Item]]:
    """Choose real user messages, newest first within `budget` tokens; the one at the edge is cut, older ones go.

    Returns:
        (index in `items`, message) in the order of `items`. Images and their tags are gone.
    """
    kept: list[tuple[int, Item]] = []
    left = budget
    for index in range(len(items) - 1, -1, -1):
        if not is_real_user_message(items[index]):
            continue
        if left <= 0:
            break
        message = without_images(items[index])
        tokens = tokens_of_bytes(sum(len(utf8(text)) for text in texts_of(message)))
        if tokens > left:
            kept.append((index, _cut(message, left)))
            break
        kept.append((index, message))
        left -= tokens
    kept.reverse()
    return kept


def without_images(item: Item) -> Item:
    """The message with its text parts only; an image-only message stays as one empty part."""
    content = list_of(item, "content") or ()
    parts = [part for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    if len(parts) < len(content):
        parts = [part for part in parts if not _is_image_tag(part["text"])]
    if len(parts) == len(content) and parts:
        return item
    return _with_content(item, parts or [_text_part("")])


def _is_image_tag(text: str) -> bool:
    text = text.strip()
    return text == "</image>" or (text.startswith("<image") and text.endswith(">") and "\n" not in text)


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _with_content(item: Item, content: Sequence[Mapping[str, Any]]) -> Item:
    """The item with other parts; side data that describes parts one by one would no longer fit and goes."""
    changed = {**item, "content": list(content)}
    passthrough = item.get("internal_chat_message_metadata_passthrough")
    if isinstance(passthrough, Mapping):
        changed["internal_chat_message_metadata_passthrough"] = {
            key: value for key, value in passthrough.items() if not key.startswith("content_item_")
        }
    return changed


def _cut(item: Item, left: int) -> Item:
    """Keep the first and last half of the budget's bytes, with a part between that counts what is missing."""
    texts = [utf8(text) for text in texts_of(item)]
    budget, total = left * BYTES_PER_TOKEN, sum(map(len, texts))
    half = budget // 2
    head = _take(texts, half, head_of)
    tail = _take(list(reversed(texts)), half, tail_of)
    marker = f"…{tokens_of_bytes(total - budget)} tokens truncated…"
    parts = [*head, utf8(marker), *reversed(tail)]
    return _with_content(item, [_text_part(part.decode("utf-8", "surrogatepass")) for part in parts])


def _take(texts: Sequence[bytes], size: int, cut: Any) -> list[bytes]:
    taken: list[bytes] = []
    for text in texts:
        if size <= 0:
            break
        part = text if len(text) <= size else cut(text, size)
        if part:
            taken.append(part)
        if len(text) > size:
            break
        size -= len(text)
    return taken
