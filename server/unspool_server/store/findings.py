"""What a check of a log collects: findings, bounded, and the figures over all of them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from unspool_protocol.findings import Finding, Severity, Verdict, VerifySummary
from unspool_protocol.log import Record

MAX_OF_A_CODE = 50
"""Findings of one code that are kept in full; the others are counted."""

OnRecord = Callable[[Record, int], None]
"""Gets a record of the thread's present and its line number."""


@dataclass(slots=True)
class FoundList:
    """Findings in order, bounded."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    severities: Counter[Severity] = field(default_factory=Counter)
    rollouts: int = 0
    lines: int = 0
    records: int = 0
    bytes: int = 0
    usable: bool = True

    def add(self, one: Finding) -> None:
        """Count a finding and keep it, unless there are too many of its kind."""
        self.counts[one.code] += 1
        self.severities[one.severity] += 1
        if self.counts[one.code] <= MAX_OF_A_CODE:
            self.kept.append(one)

    @property
    def verdict(self) -> Verdict:
        """All of it in one word."""
        if not self.usable:
            return Verdict.UNUSABLE
        bad = self.severities[Severity.ERROR] + self.severities[Severity.WARNING]
        return Verdict.USABLE if bad else Verdict.CLEAN

    def summary(self) -> VerifySummary:
        """The figures."""
        return VerifySummary(
            rollouts=self.rollouts,
            lines=self.lines,
            records=self.records,
            bytes=self.bytes,
            errors=self.severities[Severity.ERROR],
            warnings=self.severities[Severity.WARNING],
            infos=self.severities[Severity.INFO],
            counts=dict(sorted(self.counts.items())),
            truncated=any(count > MAX_OF_A_CODE for count in self.counts.values()),
        )
