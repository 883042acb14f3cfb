"""What threads should look like: a plain list of turns per thread, changed by plain rules (DESIGN §5; 04).

The model knows no records: it is what a user would say happened.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """A visible turn: the user's texts in it, and what was injected before the next one began."""

    id: str
    texts: tuple[str, ...] = ()
    status: str = "completed"
    injected: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether rollback counts it; compactions go along uncounted."""
        return bool(self.texts)


Turns = tuple[ModelTurn, ...]


@dataclass(frozen=True, slots=True)
class Past:
    """What an undo goes back to: the turns, and the next older thing to undo."""

    turns: Turns
    before: "Past | None"


@dataclass(slots=True)
class ModelThread:
    """One thread as its user knows it.

    `undo` is what an undo would bring back; `vague` is set where it came with the copied log of a source.
    """

    id: str
    mode: str
    ephemeral: bool = False
    turns: Turns = ()
    first: tuple[str, ...] = ()
    undo: Past | None = None
    vague: bool = False
    written: bool = False
    archived: bool = False
    name: str | None = None
    model: str = ""
    source: str | None = None
    created: int = 0
    oldest_text: str = ""
    children: list[str] = field(default_factory=list)

    @property
    def counted(self) -> int:
        """How many turns a rollback may remove."""
        return sum(turn.counts for turn in self.turns)

    @property
    def compacted(self) -> bool:
        """Whether a visible turn compacted the history."""
        return any(not turn.texts for turn in self.turns)

    @property
    def preview(self) -> str:
        """The oldest text in the log: a legacy log still holds what was rolled back."""
        if self.mode == "legacy":
            return self.oldest_text
        return next((turn.texts[0] for turn in self.turns if turn.texts), "")

    def said(self) -> Iterator[str]:
        """Every text in the model's history as long as nothing was compacted, oldest first."""
        yield from self.first
        for turn in self.turns:
            yield from turn.texts
            yield from turn.injected

    def add(self, turn: ModelTurn) -> None:
        """A turn ended."""
        self.turns = (*self.turns, turn)
        self.written = True
        self.oldest_text = self.oldest_text or "".join(turn.texts[:1])

    def inject(self, text: str) -> None:
        """An item was put behind everything."""
        self.written = True
        if not self.turns:
            self.first = (*self.first, text)
            return
        last = self.turns[-1]
        self.turns = (*self.turns[:-1], replace(last, injected=(*last.injected, text)))

    def keep(self, count: int) -> None:
        """Only the first `count` turns stay; an undo brings the others back."""
        self.undo = Past(self.turns, self.undo)
        self.turns = self.turns[:count]

    def rollback(self, number: int) -> None:
        """The newest `number` counted turns go, with uncounted ones behind or between them."""
        for index in range(len(self.turns) - 1, -1, -1):
            number -= self.turns[index].counts
            if number == 0:
                return self.keep(index)
        raise AssertionError("more turns than there are")

    def bring_back(self) -> None:
        """Undo the newest cut; turns made since then are out of sight again."""
        assert self.undo is not None
        self.turns, self.undo = self.undo.turns, self.undo.before
