"""What the model was asked: items of requests in words, and the prefix rule (06)."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.fixtures.mockmodel import Mock

Item = Mapping[str, Any]

CONTEXT_MARKS = ("<environment_context>", "<permissions instructions>", "<collaboration_mode>", "# AGENTS.md")


def inputs(mock: Mock) -> list[list[Item]]:
    """The items of every request so far."""
    return [request["body"]["input"] for request in mock.requests]


def text_of(item: Item) -> str:
    """All texts of an item, or its output."""
    content = item.get("content", item.get("output", ""))
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def said(items: Sequence[Item]) -> list[str]:
    """A request in words, without the base instructions: `user: text`; context as `context`, calls by their type."""
    return [_word(item) for item in items[1:]]


def _word(item: Item) -> str:
    kind = item.get("type", "message")
    if kind != "message":
        return str(kind)
    text = text_of(item)
    if any(mark in text for mark in CONTEXT_MARKS):
        return "context"
    return f"{item['role']}: {text}"


def talk(items: Sequence[Item]) -> list[str]:
    """A request in words, context left out."""
    return [word for word in said(items) if word != "context"]


def contexts(items: Sequence[Item]) -> int:
    """How many context items a request holds."""
    return said(items).count("context")


def prefix_length(shorter: Sequence[Item], longer: Sequence[Item]) -> int:
    """How many items two requests have in common at their head."""
    count = 0
    for one, other in zip(shorter, longer, strict=False):
        if one != other:
            break
        count += 1
    return count


def assert_prefix(earlier: Sequence[Item], later: Sequence[Item], *, new: int | None = None) -> None:
    """The later request starts with all items of the earlier one, and has `new` more."""
    assert list(later[: len(earlier)]) == list(earlier)
    if new is not None:
        assert len(later) == len(earlier) + new, said(later[len(earlier) - 1 :])
