"""What one client was told of one thread, over all of its connections, and what it can object to at once."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson
from unspool_protocol.cursors import EventCursor

Message = dict[str, Any]

DELTA = "item/agentMessage/delta"


@lru_cache(maxsize=100_000)
def place(cursor: str) -> EventCursor:
    """A cursor, read; many clients hear the same ones."""
    return EventCursor.decode(cursor)


class Words:
    """What parameters said, by a short mark of them, so that hundreds of clients need not keep them."""

    def __init__(self) -> None:
        self._said: dict[str, bytes] = {}
        self._pieces: dict[str, str] = {}

    def mark(self, params: Mapping[str, Any]) -> str:
        """The mark of parameters."""
        said = orjson.dumps(params, option=orjson.OPT_SORT_KEYS)
        mark = hashlib.blake2b(said, digest_size=8).hexdigest()
        self._said.setdefault(mark, said)
        return mark

    def piece(self, text: str) -> str:
        """The same text, kept once for all clients."""
        return self._pieces.setdefault(text, text)

    def said(self, mark: str) -> str:
        """What a mark stands for, shortened."""
        return self._said[mark].decode()[:600]


@dataclass(frozen=True, slots=True)
class Heard:
    """One event as a client heard it: where, what, on which of its connections, and whether as a replay."""

    cursor: EventCursor
    method: str
    mark: str
    line: int
    replayed: bool

    def __str__(self) -> str:
        where = f"{self.cursor.rollout_id[-6:]}:{self.cursor.ordinal}:{self.cursor.counter}"
        return f"{where} {self.method} {self.mark}{' replayed' if self.replayed else ''} (connection {self.line})"


@dataclass(slots=True)
class Account:
    """A client's account of one thread.

    Attributes:
        cursor: Where it goes on after its next connection; None: at the thread's beginning.
        events: Everything but deltas.
        texts: Deltas of each item, by turn and item.
        path: Rollouts in the order in which they came up.
        deltas: How many deltas came.
    """

    thread_id: str
    words: Words
    cursor: str | None = None
    events: list[Heard] = field(default_factory=list)
    texts: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    deltas: int = 0

    def go_on(self, cursor: str) -> bool:
        """Go on from a place that the server named; False when that would bring events again."""
        here, there = self.cursor and place(self.cursor), place(cursor)
        if here and here.rollout_id == there.rollout_id and there.key < here.key:
            return False
        self.cursor = cursor
        return True

    def take(self, message: Message, line: int) -> Iterator[str]:
        """Take the next event; yields what is wrong about it."""
        at, method = place(message["cursor"]), message["method"]
        before = place(self.cursor) if self.cursor is not None else None
        if before is not None and before.rollout_id == at.rollout_id and at.key <= before.key:
            yield f"{method} at {at} came after {before}"
        if not self.path or self.path[-1] != at.rollout_id:
            self.path.append(at.rollout_id)
        self.cursor = message["cursor"]
        params = message["params"]
        if method == DELTA:
            self.deltas += 1
            self.texts.setdefault((params["turnId"], params["itemId"]), []).append(self.words.piece(params["delta"]))
            return
        self.events.append(Heard(at, method, self.words.mark(params), line, message.get("replayed") is True))
