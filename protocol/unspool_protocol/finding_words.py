"""What each finding code means, in words for people: one table for checks, warnings and the manual."""

from collections.abc import Mapping
from dataclasses import dataclass

from unspool_protocol.findings import Finding, Severity

_ALL_ELSE = "All other lines are used."
_NOTHING = "Nothing is affected."


@dataclass(frozen=True, slots=True)
class Meaning:
    """A code's fixed part; see `findings.Finding` for the members."""

    severity: Severity
    what: str
    lost: str | None = None
    still_works: str = _NOTHING


def _error(what: str, lost: str, still_works: str = _ALL_ELSE) -> Meaning:
    return Meaning(Severity.ERROR, what, lost, still_works)


def _warning(what: str, still_works: str, lost: str | None = None) -> Meaning:
    return Meaning(Severity.WARNING, what, lost, still_works)


def _info(what: str, still_works: str = _NOTHING) -> Meaning:
    return Meaning(Severity.INFO, what, None, still_works)


MEANINGS: Mapping[str, Meaning] = {
    # -- lines
    "invalidJson": _error("A line is no JSON.", "The record on this line."),
    "invalidUtf8": _error("A line is no UTF-8.", "The record on this line."),
    "mendedUtf8": _warning(
        "Some bytes of a record are no UTF-8.", "It is used, with U+FFFD in their place.", "These bytes of a text."
    ),
    "notARecord": _error("A line holds JSON, but no record with a type.", "What the line was meant to hold."),
    "tornTail": _error(
        "The last line was cut off while it was written.",
        "The record that was being written.",
        "All other lines are used; the next write goes to a line of its own.",
    ),
    "zeroBytes": _warning(
        "Zero bytes, as a power cut leaves them behind.", _ALL_ELSE, "What was being written there, if anything."
    ),
    "gluedRecords": _warning("Several records share one line.", "All of them are used."),
    "repeatedLine": _warning("A line stands there twice in a row.", "It counts twice, as other readers count it."),
    "duplicate": _warning("A record was written twice with the same number.", "It counts once."),
    "byteOrderMark": _warning("A byte order mark stands in front of the record.", "It is passed over."),
    "carriageReturns": _info("Lines end in carriage return and line feed.", "The carriage returns are passed over."),
    "blankLine": _info("A line is blank.", "It is passed over."),
    "noFinalNewline": _info("The last line has no line feed.", "It is used; the next write adds the line feed."),
    "halfCharacter": _info("A text holds half a character (a lone surrogate).", "It is shown as U+FFFD."),
    "timestampUnreadable": _info("A record has no readable time.", "It is used; times of its turn may be missing."),
    "payloadMissing": _warning("A record has no payload.", "It is passed over.", "What the record was meant to say."),
    # -- numbers
    "ordinalMissing": _warning("A record has no number.", "It is numbered by its position."),
    "ordinalFalling": _warning("A number is lower than the one before.", "Records are read in the order of the file."),
    "ordinalRepeated": _warning("Two different records have one number.", "Both are used, in the order of the file."),
    "ordinalGap": _error("Numbers are skipped.", "The records with the numbers between."),
    "lostRecords": _info("A repair noted that records are lost.", "All other lines are used."),
    "ordinalInLegacyLog": _info("A record of a legacy log carries a number.", "The line index is its number."),
    # -- check values
    "lineChanged": _error(
        "A line was changed after it was written: its check value does not fit.",
        "What the line said at first.",
        "The line is used as it stands now.",
    ),
    "linesMissing": _error("Lines were removed before this one: its check value does not fit.", "The records between."),
    "lineInserted": _warning(
        "A line was put in between two lines that belong together.", "The line is used as it stands."
    ),
    "chainBroken": _error(
        "The check value does not fit the line before, which another program wrote.",
        "Perhaps what the line before said at first, or lines between.",
        "All lines are used as they stand.",
    ),
    "foreignLines": _info("Lines without check values, written by another program or cut off."),
    "noCheckValues": _info("No line has a check value, so later changes cannot be noticed."),
    # -- headers and references
    "unreadable": _error("The file cannot be read.", "Everything in it.", "Other files of the thread are used."),
    "emptyLog": _error("The file is empty.", "Everything that was in it.", "Nothing; the thread cannot be opened."),
    "noHeader": _error(
        "The log has no session_meta record, so it does not say what it is.",
        "Identity, mode and lineage of the thread.",
        "`unspool repair` makes a header from the file's name; until then the thread cannot be opened.",
    ),
    "headerUnusable": _error(
        "The header cannot be used.", "The mode of the log or its lineage.", "Nothing; the thread cannot be opened."
    ),
    "headerNotFirst": _warning("The header is not the first record.", "The first session_meta is taken as the header."),
    "headerOtherThread": _warning("The header names another thread than the file's name.", "The file's name counts."),
    "extraHeader": _warning("There is a second header of the same thread.", "The first one counts."),
    "baseMissing": _error(
        "The log that this one continues is not there.",
        "The older part of the history.",
        "The records of this file can be read; the thread cannot be opened.",
    ),
    "baseCycle": _error(
        "The logs continue each other in a circle.",
        "Where the history begins.",
        "Nothing; the thread cannot be opened.",
    ),
    "baseTooShort": _error(
        "The log that this one continues ends before the point where it is continued.",
        "The records between.",
        "Everything that is there is used.",
    ),
    "baseBorder": _warning(
        "The recorded byte offset is not where the continued log is cut.", "The number of the record decides."
    ),
    "strayFile": _info("A file beside the logs is no log by its name, perhaps a copy.", "It is passed over."),
    # -- records
    "callWithoutOutput": _warning(
        "A tool call has no output.",
        "The model is told that the call was aborted.",
        "What the tool answered, if it did.",
    ),
    "outputWithoutCall": _warning(
        "A tool output has no call before it.", "It is not sent to the model.", "Which call it belongs to."
    ),
    "turnUnfinished": _warning("A turn has no end.", "It is shown as interrupted.", "What came after, if anything."),
    "unknownRecord": _info("A record of an unknown type.", "It is kept and passed over."),
    "unknownEvent": _info("An event of an unknown type.", "It is kept and passed over."),
    "unknownItem": _info("A model item of an unknown type.", "It is kept and passed over."),
    "legacyCompaction": _warning(
        "An old compaction without the history that it made.",
        "History is rebuilt from user messages and the stored summary.",
        "Answers and tool calls before it, for the model.",
    ),
    "invalidCheckpoint": _warning("A compaction that cannot be read.", "It is passed over."),
    "patchWithoutBase": _warning("A change to an environment state that is not known.", "It is passed over."),
}
"""Every code of a finding."""


def finding(
    code: str, rollout_id: str, line: int | None = None, ordinal: int | None = None, detail: str = ""
) -> Finding:
    """Build a finding; `detail` is added to what is wrong."""
    meaning = MEANINGS[code]
    return Finding(
        severity=meaning.severity,
        code=code,
        rollout_id=rollout_id,
        line=line,
        ordinal=ordinal,
        what=f"{meaning.what} ({detail})" if detail else meaning.what,
        lost=meaning.lost,
        still_works=meaning.still_works,
    )
