"""Recorded messages against ours: same members, same types, same values, with ids mapped one to one. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

IDS = frozenset(
    (
        *("id", "threadId", "turnId", "itemId", "callId", "sessionId", "rootTurnId", "forkedFromId", "requestId"),
        *("processId", "revision", "nextCursor", "backwardsCursor", "turnsBackwardsCursor", "itemsBackwardsCursor"),
    )
)
"""Members whose values mean nothing but the same thing everywhere."""

FREE = frozenset(
    (
        *("startedAt", "completedAt", "durationMs", "startedAtMs", "completedAtMs", "createdAt", "updatedAt"),
        *("recencyAt", "emittedAtMs", "path", "totalTokens", "inputTokens", "cachedInputTokens", "outputTokens"),
        *("cacheWriteInputTokens", "reasoningOutputTokens", "modelContextWindow", "userAgent", "installationId"),
        "serverName",
    )
)
"""Members of which only the type has to agree: times, sizes, names of machines."""

_PLACEHOLDER = re.compile(r"<[a-z]+ text, \d+ chars>|<text>|<all method names>")


@dataclass
class Names:
    """What the recording calls things, and what we call them."""

    ours: dict[str, str] = field(default_factory=dict)
    recorded: dict[str, str] = field(default_factory=dict)

    def bind(self, recorded: str, ours: str) -> bool:
        """Learn a pair; False when either is already half of another one."""
        known = self.ours.setdefault(recorded, ours), self.recorded.setdefault(ours, recorded)
        return known == (ours, recorded)

    def translate(self, value: Any) -> Any:
        """A recorded value in our names."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.translate(one) for one in value]
        if isinstance(value, Mapping):
            return {name: self.translate(one) for name, one in value.items()}
        return value

    def _text(self, text: str) -> str:
        if text in self.ours:
            return self.ours[text]
        for recorded, ours in self.ours.items():
            if len(recorded) > 8 and recorded in text:
                text = text.replace(recorded, ours)
        return text


def compare(recorded: Any, ours: Any, names: Names, place: str = "") -> Iterator[str]:
    """What differs, each as `PLACE KIND`, with indexes of lists left out of the place."""
    if isinstance(recorded, Mapping) and isinstance(ours, Mapping):
        yield from _objects(recorded, ours, names, place)
    elif isinstance(recorded, list) and isinstance(ours, list):
        if len(recorded) != len(ours):
            yield f"{place} length {len(recorded)} {len(ours)}"
        for one, other in _pairs(recorded, ours, names):
            yield from compare(one, other, names, f"{place}[]")
    elif kind(recorded) != kind(ours):
        yield f"{place} type {kind(recorded)} {kind(ours)}"
    elif isinstance(recorded, str) and _PLACEHOLDER.search(recorded):
        return
    elif names.translate(recorded) != ours:
        yield f"{place} value {recorded!r} {ours!r}"


def _objects(recorded: Mapping[str, Any], ours: Mapping[str, Any], names: Names, place: str) -> Iterator[str]:
    recorded = {names.ours.get(name, name): value for name, value in recorded.items()}
    for name in sorted(recorded.keys() - ours.keys()):
        yield f"{place}.{name} absent"
    for name in sorted(ours.keys() - recorded.keys()):
        yield f"{place}.{name} added"
    for name in sorted(recorded.keys() & ours.keys()):
        yield from _member(name, recorded[name], ours[name], names, f"{place}.{name}")


def _pairs(recorded: list[Any], ours: list[Any], names: Names) -> Iterator[tuple[Any, Any]]:
    """Entries that belong together: by their known ids where lists of unequal length have them, else by place."""
    if len(recorded) == len(ours) or not all(_identity(one) for one in (*recorded, *ours)):
        yield from zip(recorded, ours, strict=False)
        return
    known = {_identity(one): one for one in ours}
    for one in recorded:
        other = known.get(names.ours.get(_identity(one), ""))
        if other is not None:
            yield one, other


def _identity(entry: Any) -> str:
    """The id of an entry of a list, or of the item in it; empty where it has none."""
    if not isinstance(entry, Mapping):
        return ""
    return str(entry.get("id") or (entry.get("item") or {}).get("id") or "")


def _member(name: str, recorded: Any, ours: Any, names: Names, place: str) -> Iterator[str]:
    if name in IDS and isinstance(recorded, str) and isinstance(ours, str):
        if not names.bind(recorded, ours):
            yield f"{place} identity {recorded!r} {ours!r}"
    elif name in FREE and kind(recorded) == kind(ours) and not isinstance(recorded, Mapping | list):
        return
    else:
        yield from compare(recorded, ours, names, place)


def kind(value: Any) -> str:
    """The JSON type of a value."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    for types, name in (((int, float), "number"), (str, "string"), (list, "array")):
        if isinstance(value, types):
            return name
    return "object"
