"""Token estimates and the cuts that keep texts within a limit: ceil(UTF-8 bytes / 4) everywhere (DESIGN §5)."""

from collections.abc import Iterable, Mapping
from typing import Any

from .state import Item

BYTES_PER_TOKEN = 4


def utf8(text: str) -> bytes:
    """The text's bytes; lone surrogates, which some logs hold, survive."""
    return text.encode("utf-8", "surrogatepass")


def tokens_of_bytes(size: int) -> int:
    """Estimated tokens of a number of bytes, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


def estimate_text(text: str) -> int:
    """Estimated tokens of a text."""
    return tokens_of_bytes(len(utf8(text)))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            text = part.get("text") if isinstance(part, Mapping) else None
            if isinstance(text, str):
                yield text


def estimate_tokens(item: Item) -> int:
    """Estimated tokens of an item: the bytes of its texts (content, summary, arguments, input, output)."""
    size = 0
    for key in ("content", "summary", "arguments", "input", "output", "encrypted_content"):
        size += sum(len(utf8(text)) for text in _texts(item.get(key)))
    return tokens_of_bytes(size)


def estimate_history(items: Iterable[Item]) -> int:
    """Estimated tokens of a whole history."""
    return sum(estimate_tokens(item) for item in items)


def head_of(content: bytes, size: int) -> bytes:
    """At most `size` first bytes, ending on a character border."""
    end = min(size, len(content))
    while 0 < end < len(content) and content[end] & 0xC0 == 0x80:
        end -= 1
    return content[:end]


def tail_of(content: bytes, size: int) -> bytes:
    """At most `size` last bytes, beginning on a character border."""
    start = max(len(content) - size, 0)
    while 0 < start < len(content) and content[start] & 0xC0 == 0x80:
        start += 1
    return content[start:]


def cut_middle(text: str, limit_bytes: int, marker: str) -> str:
    """Head and tail of half the limit each, with `marker` between; the text itself when it fits."""
    content = utf8(text)
    if len(content) <= limit_bytes:
        return text
    half = limit_bytes // 2
    head, tail = head_of(content, half), tail_of(content, half)
    return head.decode("utf-8", "surrogatepass") + marker + tail.decode("utf-8", "surrogatepass")
