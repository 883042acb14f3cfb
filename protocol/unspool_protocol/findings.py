"""What a check of a log found (`thread/verify`, `unspool verify`), and what a repair left out (DESIGN §4)."""

from enum import StrEnum

from pydantic import Field

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
    counts: dict[str, int] = Field(default_factory=dict)
    truncated: bool = False


class RepairResult(WireModel):
    """What a repair did (`unspool repair`). The old file is never touched.

    Attributes:
        source: The file that was read; `target` the one that was written, null where nothing had to be mended.
        rollout_id: Of the new file, where it is a new part of the thread.
        copied: Lines copied byte for byte.
        recovered: Records that shared a line with others, or whose text held bytes that are no UTF-8.
        renumbered: Records that got another number, or one at all.
        resealed: Lines whose check value was computed anew, since what stands before them changed.
        header: `kept`, `moved` (it was not the first record) or `made` (there was none).
        dropped: What was left out, and why; the first 1000.
        remaining: Findings that a new file cannot mend, for example in an older file that this one continues.
    """

    thread_id: str | None
    source: str
    target: str | None
    rollout_id: str | None = None
    copied: int = 0
    recovered: int = 0
    renumbered: int = 0
    resealed: int = 0
    header: str = "kept"
    dropped_count: int = 0
    dropped: tuple[Finding, ...] = ()
    remaining: tuple[Finding, ...] = ()


class ThreadVerifyParams(WireModel):
    """Parameters of `thread/verify`."""

    thread_id: str


class ThreadVerifyResult(WireModel):
    """Result of `thread/verify`. Findings stand in the order of the files, oldest first."""

    thread_id: str | None
    verdict: Verdict
    summary: VerifySummary
    findings: tuple[Finding, ...]
