"""Checks of one log file, line by line: encoding, order of numbers, check values (01 §2, §6; DESIGN §4).

Keeps a few values of the line before and nothing else. What records mean is judged elsewhere (`history/`).
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from unspool_protocol.finding_words import finding
from unspool_protocol.findings import Finding
from unspool_protocol.log import Record, RecordType
from unspool_protocol.records import LOST_RECORDS

from .blocks import RawLine
from .lines import BOM, chain_link, holds_half_character, line_ordinal, parse_line, record_of, verify_check


class LineChecks:
    """Takes the lines of a file, oldest first.

    Args:
        first_ordinal: The number of the first record in a paginated log.
        add: Gets the findings.
        copied: All lines but the header were copied from other files, so the second one continues nothing here.
    """

    def __init__(
        self,
        rollout_id: str,
        *,
        legacy: bool,
        first_ordinal: int,
        add: Callable[[Finding], None],
        copied: bool = False,
    ) -> None:
        self.rollout_id, self.legacy = rollout_id, legacy
        self.lines = self.records = 0
        self.expected = first_ordinal
        self._add = add
        self._copied = copied
        self._links: tuple[bytes, bytes] = (b"", b"")
        self._checked = False
        self._foreign: tuple[int, int] | None = None
        self._returns = False
        self._last_raw: bytes | None = None
        self._last_line: bytes | None = None
        self._bad_since_record = 0
        self._broken_here = False

    def feed(self, line: RawLine) -> tuple[Record, ...]:
        """Check the next line; returns its records with the numbers that readers give them."""
        self.lines += 1
        self._chain(line.content)
        self._bytes(line)
        parsed = parse_line(line.content)
        if parsed.fault is not None:
            self._fault(line, parsed.fault, parsed.detail, bool(parsed.objects))
        elif parsed.objects and holds_half_character(line.content):
            self._report("halfCharacter")
        records = tuple(
            record for value, raw in parsed.objects if (record := self._record(value, raw, line.content)) is not None
        )
        self._last_line = line.content if parsed.objects else None
        if not line.terminated and parsed.objects:
            self._report("noFinalNewline")
        return records

    def finish(self) -> None:
        """Report what is known only at the end."""
        self._end_foreign_run()
        if self.records and not self._checked:
            self._add(finding("noCheckValues", self.rollout_id))
        if self._returns:
            self._add(finding("carriageReturns", self.rollout_id))

    def _report(self, code: str, detail: str = "", ordinal: int | None = None) -> None:
        number = (self.lines - 1 if self.legacy else self.expected) if ordinal is None else ordinal
        self._add(finding(code, self.rollout_id, self.lines, number, detail))

    def _bytes(self, line: RawLine) -> None:
        content = line.content
        if content.startswith(BOM):
            self._report("byteOrderMark")
        self._returns = self._returns or content.endswith(b"\r")
        if not content.strip(b" \t\r"):
            self._report("blankLine")

    def _fault(self, line: RawLine, code: str, detail: str, whole: bool) -> None:
        if code != "zeroBytes" and not line.terminated and not whole:
            code, detail = "tornTail", ""
        self._report(code, detail)
        if code != "zeroBytes" and not whole:
            self._bad_since_record += 1

    # -- records -------------------------------------------------------------------------------------------------------

    def _record(self, value: Mapping[str, Any], raw: bytes, line: bytes) -> Record | None:
        own = line_ordinal(value)
        ordinal = self.lines - 1
        if self.legacy:
            if own is not None:
                self._report("ordinalInLegacyLog")
            if line == self._last_line and raw == self._last_raw:
                self._report("repeatedLine")
        else:
            if own is not None and raw == self._last_raw:
                self._report("duplicate", ordinal=own)
                return None
            ordinal = self._number(own, lost_from(value))
        self._shape(value, ordinal)
        self._last_raw = raw
        self._bad_since_record = 0
        self.records += 1
        return record_of(value, raw, self.rollout_id, ordinal)

    def _number(self, own: int | None, lost: int | None) -> int:
        expected = self.expected
        if own is None:
            self._report("ordinalMissing")
            own = expected
        elif lost == expected:
            self._report("lostRecords", f"{lost} to {own}", own)
        elif own == expected - 1 and self._last_raw is not None:
            self._report("ordinalRepeated", ordinal=own)
        elif own < expected:
            self._report("ordinalFalling", f"{own} after {expected - 1}", own)
        elif own > expected + self._bad_since_record and not self._broken_here:
            self._report("ordinalGap", f"{expected} to {own - 1}", own)
        self.expected = own + 1
        return own

    def _shape(self, value: Mapping[str, Any], ordinal: int) -> None:
        if not isinstance(value.get("payload"), dict):
            self._report("payloadMissing", str(value["type"])[:100], ordinal)
        time = value.get("timestamp")
        try:
            datetime.fromisoformat(time if isinstance(time, str) else "")
        except ValueError:
            self._report("timestampUnreadable", ordinal=ordinal)

    # -- check values --------------------------------------------------------------------------------------------------

    def _chain(self, content: bytes) -> None:
        """Verify the line's check value, before it is decoded; blank lines are no part of the chain."""
        self._broken_here = False
        if not content.strip():
            return
        newest, older = self._links
        result = verify_check(newest, content)
        if result is None:
            if content.strip(b" \t\r\0"):
                start = self._foreign[0] if self._foreign else self.lines
                self._foreign = (start, self.lines)
        else:
            self._checked = True
            if not result and self._begins_copy(content):
                result = None
            elif not result:
                self._break(content, older)
            self._end_foreign_run()
        self._links = (chain_link(content), newest)

    def _begins_copy(self, content: bytes) -> bool:
        """Whether a line is the first one of another file, or of a part of one, that was copied here line by line."""
        return bool(verify_check(b"", content)) or (self._copied and self.lines == 2)

    def _break(self, content: bytes, older: bytes) -> None:
        if self._foreign is not None:
            inserted = self._foreign[0] == self._foreign[1] and verify_check(older, content)
            self._report("lineInserted" if inserted else "chainBroken", f"line {self.lines - 1}" if inserted else "")
            self._broken_here = not inserted
            return
        parsed = parse_line(content).objects
        own = line_ordinal(parsed[0][0]) if parsed else None
        missing = own is not None and not self.legacy and own > self.expected
        self._broken_here = True
        self._report("linesMissing" if missing else "lineChanged", ordinal=own)

    def _end_foreign_run(self) -> None:
        """A run of lines without check values, told only where other lines have some."""
        run, self._foreign = self._foreign, None
        if run is not None and self._checked:
            first, last = run
            detail = f"lines {first} to {last}" if last > first else ""
            self._add(finding("foreignLines", self.rollout_id, first, None, detail))


def lost_from(value: Mapping[str, Any]) -> int | None:
    """The first of the numbers that a repair found missing; None for any record but a repair's note of a loss."""
    payload = value.get("payload")
    if value.get("type") != LOST_RECORDS or not isinstance(payload, dict):
        return None
    first = payload.get("from")
    return first if type(first) is int else None


def is_header(record: Record) -> bool:
    """Whether a record can be a file's header."""
    return record.type == RecordType.SESSION_META
