"""What threads of a random life should look like: plain values changed by plain rules (DESIGN §5; 04).

A thread's present is a value, so an undo, a restore or a fork gives an earlier value back. The model knows no records.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Text:
    """One text that a user or a client put into the model's history; every one of the user's is a boundary there."""

    text: str
    by_user: bool = True


@dataclass(frozen=True, slots=True)
class LifeTurn:
    """A visible turn.

    Attributes:
        said: The user's texts of this turn; none for a compaction.
        keep_last: For a compaction with the caller's summary, how many boundaries it kept; None for one by the model.
        injected: Texts put in behind the turn.
        bounded: Known from the log to have a boundary although no text of it is shown, or to have none.
    """

    id: str
    said: tuple[Text, ...] = ()
    status: str = "completed"
    keep_last: int | None = None
    injected: tuple[Text, ...] = ()
    bounded: bool | None = None

    @property
    def counts(self) -> bool:
        """Whether rollback counts it; compactions go along uncounted."""
        return bool(self.said) if self.bounded is None else self.bounded

    @property
    def told(self) -> tuple[str, tuple[str, ...], str]:
        """What a client can know of it."""
        return self.id, tuple(text.text for text in self.said), self.status


@dataclass(frozen=True, slots=True)
class Present:
    """What a thread is at one point of its life.

    Attributes:
        first: Texts injected before the first turn.
        opaque: The model's texts cannot be told by these rules: a point inside a turn, or between texts, was cut.
    """

    turns: tuple[LifeTurn, ...] = ()
    first: tuple[Text, ...] = ()
    opaque: bool = False

    @property
    def counted(self) -> int:
        """How many turns a rollback may remove."""
        return sum(turn.counts for turn in self.turns)

    def texts(self) -> list[str]:
        """The texts in the model's history, oldest first; compactions drop and keep as 04 §3 says."""
        found = list(self.first)
        for turn in self.turns:
            found = [*(found if turn.said else list(_compacted(found, turn.keep_last))), *turn.said, *turn.injected]
        return [text.text for text in found]

    def with_turn(self, turn: LifeTurn) -> "Present":
        """A turn ended."""
        return replace(self, turns=(*self.turns, turn))

    def with_text(self, text: Text) -> "Present":
        """A text was put behind everything."""
        if not self.turns:
            return replace(self, first=(*self.first, text))
        last = self.turns[-1]
        return replace(self, turns=(*self.turns[:-1], replace(last, injected=(*last.injected, text))))

    def kept(self, count: int) -> "Present":
        """Only the first `count` turns."""
        return replace(self, turns=self.turns[:count])

    def rolled_back(self, number: int) -> "Present":
        """Without the newest `number` counted turns and the uncounted ones behind or between them."""
        for index in range(len(self.turns) - 1, -1, -1):
            number -= self.turns[index].counts
            if number == 0:
                return self.kept(index)
        raise AssertionError("more turns than there are")


def _compacted(found: list[Text], keep_last: int | None) -> Iterator[Text]:
    """By the model: all messages of the user. With a caller's summary: everything from the newest boundaries on."""
    if keep_last is None:
        yield from (text for text in found if text.by_user)
        return
    starts = [index for index, text in enumerate(found) if text.by_user]
    if keep_last > len(starts):
        yield from found
    elif keep_last:
        yield from found[starts[-keep_last] :]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the log that a step ended at, and what the thread was there."""

    rollout_id: str
    ordinal: int
    present: Present


@dataclass(slots=True)
class LifeThread:
    """One thread as its user knows it.

    Attributes:
        past: What undo after undo brings back, the newest last.
        vague: A legacy log was copied, cuts of its source included: what an undo brings back is not told here.
    """

    id: str
    mode: str
    present: Present = field(default_factory=Present)
    past: tuple[Present, ...] = ()
    marks: list[Mark] = field(default_factory=list)
    ephemeral: bool = False
    vague: bool = False
    written: bool = False
    archived: bool = False
    name: str | None = None
    model: str = ""
    source: str | None = None

    @property
    def open(self) -> bool:
        """Loaded and able to run."""
        return not self.archived

    @property
    def kept(self) -> bool:
        """On disk and not archived."""
        return self.written and not self.archived and not self.ephemeral

    def add(self, turn: LifeTurn) -> None:
        """A turn ended."""
        self.present = self.present.with_turn(turn)
        self.written = True

    def cut_to(self, present: Present) -> None:
        """A rollback, revert or restore; an undo brings the old present back."""
        self.past = (*self.past, self.present)
        self.present = present

    def bring_back(self) -> None:
        """The newest cut is undone; what was done since is out of sight."""
        *older, self.present = self.past
        self.past = tuple(older)
