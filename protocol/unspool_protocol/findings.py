"""What a check of a log found (`thread/verify`, `unspool verify`), and what a repair left out (DESIGN §4)."""

from enum import StrEnum

from unspool_protocol.base import WireModel


class Severity(StrEnum):
    """How bad a finding is. Only errors make `unspool verify` fail."""

    ERROR = "error"
    """Something that was recorded is lost, changed or cannot be reached."""
    WARNING = "warning"
    """Odd, but nothing is lost, or only something of no weight."""
    INFO = "info"
    """Worth knowing: another writer, a newer format, an older one."""


class Finding(WireModel):
    """One thing that is wrong or odd in a log.

    Attributes:
        code: Stable, for programs.
        rollout_id: The file; a thread's log may consist of several.
        line: Line number in the file as editors count, from 1; null where no single line is meant.
        ordinal: The record's position (legacy logs: line index), where it is known.
        what: What is wrong, in one sentence.
        lost: What cannot be had any more because of it; null where nothing is lost.
        still_works: What can be done with the thread all the same.
    """

    severity: Severity
    code: str
    rollout_id: str
    line: int | None = None
    ordinal: int | None = None
    what: str
    lost: str | None = None
    still_works: str


class Verdict(StrEnum):
    """A check in one word."""

    CLEAN = "clean"
    """Neither errors nor warnings."""
    USABLE = "usable"
    """The thread opens; what is wrong with it is among the findings."""
    UNUSABLE = "unusable"
    """The thread cannot be opened; `unspool repair` may help."""


class VerifySummary(WireModel):
    """What was looked at, and how often each code was found.

    Attributes:
        counts: Code -> how often; complete, also where `findings` was cut short.
        truncated: More findings of a code than are listed.
    """

    rollouts: int = 0
    lines: int = 0
    records: int = 0
    bytes: int = 0
    errors: int = 0
    warnings: int = 0
    infos: int = 0
    counts: dict[str, int] = {}
    truncated: bool = False


class ThreadVerifyParams(WireModel):
    """Parameters of `thread/verify`."""

    thread_id: str


class ThreadVerifyResult(WireModel):
    """Result of `thread/verify`. Findings stand in the order of the files, oldest first."""

    thread_id: str | None
    verdict: Verdict
    summary: VerifySummary
    findings: tuple[Finding, ...]
