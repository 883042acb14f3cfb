"""What an import did, file by file, and what it could not carry over: values, and their two ways of being shown."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SHOWN_LOSSES = 20
"""Losses of one file that the readable report spells out; JSON holds all of them."""


class Outcome(StrEnum):
    """What became of a source file."""

    IMPORTED = "imported"
    UNCHANGED = "unchanged"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Loss:
    """One item that did not come over.

    Attributes:
        line: 1-based line of the source; None where the file as a whole is meant.
        id: The item's own id in the source, if it has one.
        kind: The item's type as the source spells it, `attachment.file` for parts of one.
        why: One sentence.
    """

    kind: str
    why: str
    line: int | None = None
    id: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The loss as JSON shows it."""
        return {"line": self.line, "id": self.id, "kind": self.kind, "why": self.why}


@dataclass(slots=True)
class FileReport:
    """One source file.

    Attributes:
        threads: Ids of the threads that it became, or that were there already.
        reduced: Parts of items that came over without them (a signature, a count of tokens), by kind.
        detail: Why nothing was done, or what was met on the way; empty when there is nothing to say.
    """

    path: str
    format: str
    outcome: Outcome = Outcome.UNCHANGED
    threads: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    reduced: Counter[str] = field(default_factory=Counter)
    detail: str = ""
    _known: set[Loss] = field(default_factory=set)

    def lose(self, kind: str, why: str, *, line: int | None = None, item_id: object = None) -> None:
        """Note an item that does not come over; the same one counts once, however often it is met."""
        loss = Loss(kind, why, line, item_id if isinstance(item_id, str) else None)
        if loss not in self._known:
            self._known.add(loss)
            self.losses.append(loss)

    def fail(self, kind: str, why: str) -> None:
        """Note that the file as a whole does not come over."""
        self.outcome = Outcome.FAILED
        self.detail = why
        self.lose(kind, why)

    def did(self, outcome: Outcome) -> None:
        """Note what became of one thread; what was imported outweighs what was there, a failure outweighs both."""
        order = (Outcome.UNCHANGED, Outcome.IMPORTED, Outcome.FAILED)
        self.outcome = max(self.outcome, outcome, key=order.index)

    @property
    def shown_path(self) -> str:
        """The path, also where its bytes are no text."""
        return self.path.encode("utf-8", "backslashreplace").decode()

    def as_json(self) -> dict[str, Any]:
        """The file as JSON shows it."""
        return {
            "path": self.shown_path,
            "format": self.format,
            "outcome": self.outcome.value,
            "threads": self.threads,
            "detail": self.detail,
            "lossCounts": dict(sorted(Counter(loss.kind for loss in self.losses).items())),
            "losses": [loss.as_json() for loss in self.losses],
            "reduced": dict(sorted(self.reduced.items())),
        }


@dataclass(slots=True)
class ImportReport:
    """A whole import."""

    files: list[FileReport] = field(default_factory=list)
    dry_run: bool = False

    @property
    def losses(self) -> int:
        """How many items did not come over."""
        return sum(len(file.losses) for file in self.files)

    @property
    def status(self) -> int:
        """The exit status: 0 when everything came over, else 1."""
        return 1 if self.losses else 0

    def counts(self) -> Mapping[str, int]:
        """Files by outcome, threads and losses."""
        outcomes = Counter(file.outcome for file in self.files)
        threads = {thread_id for file in self.files for thread_id in file.threads}
        counts = {outcome.value: outcomes[outcome] for outcome in Outcome}
        return {"files": len(self.files), **counts, "threads": len(threads), "losses": self.losses}

    def as_json(self) -> dict[str, Any]:
        """The report as JSON shows it."""
        return {"dryRun": self.dry_run, **self.counts(), "reports": [file.as_json() for file in self.files]}

    def lines(self) -> Iterator[str]:
        """The report for people: files that came over whole are counted only."""
        for file in self.files:
            if file.losses or file.detail:
                yield from _file_lines(file)
        counts = self.counts()
        would = "would be " if self.dry_run else ""
        yield (
            f"{counts['files']} files: {counts['imported']} {would}imported, {counts['unchanged']} unchanged, "
            f"{counts['failed']} failed; {counts['threads']} threads, {counts['losses']} losses"
        )


def _file_lines(file: FileReport) -> Iterator[str]:
    yield f"{file.shown_path} ({file.format}): {file.outcome.value}" + (f": {file.detail}" if file.detail else "")
    for loss in file.losses[:SHOWN_LOSSES]:
        if loss.line is None and loss.why == file.detail:
            continue
        place = f"line {loss.line}" if loss.line is not None else "file"
        name = f" {loss.id}" if loss.id else ""
        yield f"  {place}: {loss.kind}{name}: {loss.why}"
    rest = Counter(loss.kind for loss in file.losses[SHOWN_LOSSES:])
    if rest:
        yield "  and " + ", ".join(f"{count} more of {kind}" for kind, count in sorted(rest.items()))
    if file.reduced:
        yield "  without: " + ", ".join(f"{kind} ({count})" for kind, count in sorted(file.reduced.items()))
