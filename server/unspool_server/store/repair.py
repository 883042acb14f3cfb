"""Writing a clean copy of a damaged log. The old file is only read; the new one appears whole or not at all.

Sound lines are copied byte for byte. Records that shared a line get lines of their own, records without a usable number
get the next one, check values are computed anew only where what stands before a line changed, and a record of ours says
which numbers are lost. Nothing that other files refer to changes, since they refer to the old file.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

import orjson
from unspool_protocol.finding_words import finding
from unspool_protocol.findings import Finding, Severity
from unspool_protocol.log import HistoryMode, Record, RecordType
from unspool_protocol.records import LOST_RECORDS

from ..errors import LogCorrupt
from .blocks import Bytes, lines_forward
from .index import find_header, header_info
from .line_checks import LineChecks
from .lines import chain_link, line_ordinal, parse_line, resealed, verify_check
from .names import Entry
from .verify import looks_legacy

MAX_DROPPED = 1000
"""Dropped lines that a report names; more are counted."""

_LOSSES = frozenset({"invalidJson", "invalidUtf8", "notARecord", "tornTail", "zeroBytes", "duplicate", "extraHeader"})
"""Findings whose line, or a part of it, is not in the new file."""

Decoded = dict[str, Any]


@dataclass(slots=True)
class RepairReport:
    """What was done; see `findings.RepairResult`."""

    copied: int = 0
    recovered: int = 0
    renumbered: int = 0
    resealed: int = 0
    header: str = "kept"
    dropped_count: int = 0
    dropped: list[Finding] = field(default_factory=list)
    needed: bool = False

    def take(self, one: Finding) -> None:
        """Hear of a finding: anything but an info is a reason to write a new file."""
        self.needed = self.needed or one.severity is not Severity.INFO
        if one.code in _LOSSES:
            self.dropped_count += 1
            if len(self.dropped) < MAX_DROPPED:
                self.dropped.append(one)


@dataclass(frozen=True, slots=True)
class LogHeader:
    """The header of the new file: the decoded line, and whether it was there."""

    value: Decoded
    ordinal: int
    legacy: bool
    first: int
    made: bool = False


async def read_header(data: Bytes, entry: Entry) -> LogHeader:
    """The header of a file as it is, or one made from its name and first records."""
    record = await find_header(data, entry.rollout_id)
    if record is not None:
        with suppress(LogCorrupt):
            info = header_info(entry, record)
            value = parse_line(record.raw).objects[0][0]
            first = info.base.ordinal if info.base else 0
            legacy = info.mode is HistoryMode.LEGACY
            # A header that lost its number gets the first one.
            own = line_ordinal(value)
            return LogHeader(dict(value), first if own is None else own, legacy, first)
    legacy = await looks_legacy(data)
    return LogHeader(await _made_header(data, entry, legacy=legacy), 0, legacy, 0, made=True)


async def _made_header(data: Bytes, entry: Entry, *, legacy: bool) -> Decoded:
    """As much of a header as the name and the first settings in the file tell."""
    day, _, clock = entry.stamp.partition("T")
    stamp = f"{day}T{clock.replace('-', ':')}.000Z"
    payload: Decoded = {
        "id": entry.thread_id,
        "session_id": entry.thread_id,
        "timestamp": stamp,
        "cwd": "",
        "originator": "unspool repair",
        "cli_version": "",
        "source": "unknown",
        "model_provider": "",
    }
    payload |= await _first_settings(data)
    if not legacy:
        payload["history_mode"] = HistoryMode.PAGINATED.value
    return {"timestamp": stamp, "type": RecordType.SESSION_META.value, "payload": payload}


async def _first_settings(data: Bytes) -> Decoded:
    found: Decoded = {}
    async with aclosing(lines_forward(data)) as lines:
        async for line in lines:
            for value, _ in parse_line(line.content).objects:
                payload = value.get("payload")
                settings = payload.get("thread_settings", payload) if isinstance(payload, dict) else None
                if isinstance(settings, dict):
                    _note_setting(found, "cwd", settings.get("cwd"))
                    _note_setting(found, "model_provider", settings.get("model_provider_id"))
            if len(found) == 2:
                break
    return found


def _note_setting(found: Decoded, key: str, value: object) -> None:
    if isinstance(value, str) and value:
        found.setdefault(key, value)


class Repair:
    """Copies one file.

    Args:
        write: Gets the lines of the new file, line feed included, in order.
        mark: Members of ours for the header (`unspool`), which is then written anew; None keeps the header's bytes.
    """

    def __init__(
        self, data: Bytes, entry: Entry, write: Callable[[bytes], object], mark: Mapping[str, Any] | None
    ) -> None:
        self._data, self._entry, self._write, self._mark = data, entry, write, mark
        self.report = RepairReport()
        self._link = b""
        self._next = 0
        self._legacy = False

    async def run(self) -> RepairReport:
        """Do it. The report's `needed` is False when the old file had nothing worse than oddities."""
        header = await read_header(self._data, self._entry)
        self._legacy, self._next = header.legacy, header.first
        report = self.report
        checks = LineChecks(self._entry.rollout_id, legacy=header.legacy, first_ordinal=header.first, add=report.take)
        seen_header = header.made
        if header.made:
            report.header, report.needed = "made", True
        self._put_header(header)
        async with aclosing(lines_forward(self._data)) as lines:
            async for line in lines:
                records = checks.feed(line)
                for record in records:
                    if self._is_own_header(record):
                        if seen_header:
                            report.take(finding("extraHeader", record.rollout_id, checks.lines, record.ordinal))
                        elif checks.records > 1:
                            report.header, report.needed = "moved", True
                        seen_header = True
                        continue
                    self._copy(record, glued=len(records) > 1)
        checks.finish()
        return report

    def _is_own_header(self, record: Record) -> bool:
        if record.type != RecordType.SESSION_META:
            return False
        return not self._legacy or record.payload.get("id") == self._entry.thread_id

    def _put_header(self, header: LogHeader) -> None:
        value = dict(header.value)
        payload = dict(value.get("payload") or {})
        payload["id"] = self._entry.thread_id
        value |= {"payload": payload}
        value.pop("check", None)
        if not header.legacy:
            value["ordinal"] = header.ordinal
            self._next = header.ordinal + 1
        if self._mark is not None:
            ours = value.get("unspool")
            tenant = ours.get("tenant") if isinstance(ours, dict) else None
            value["unspool"] = {**({"tenant": tenant} if isinstance(tenant, str) else {}), **self._mark}
        self._put(orjson.dumps(value))

    def _copy(self, record: Record, *, glued: bool) -> None:
        raw, mended = _as_utf8(record.raw)
        changed = mended or glued
        if not self._legacy:
            raw, numbered = self._numbered(raw, record)
            self.report.renumbered += numbered
            changed = changed or numbered
        sealed = raw if verify_check(self._link, raw) is not False else resealed(self._link, raw)
        self.report.resealed += sealed != raw
        self.report.recovered += mended or glued
        self.report.copied += not changed and sealed == raw
        self._put(sealed)

    def _numbered(self, raw: bytes, record: Record) -> tuple[bytes, bool]:
        """The line with a number that rises. Numbers that are skipped are noted as lost."""
        value = parse_line(raw).objects[0][0]
        own = line_ordinal(value)
        if own is not None and own >= self._next:
            if own > self._next and value.get("type") != LOST_RECORDS:
                self._put_loss(self._next, own - 1, record)
            self._next = own + 1
            return raw, False
        number, self._next = self._next, self._next + 1
        members = {key: part for key, part in value.items() if key != "ordinal"}
        stamp = {"timestamp": members.pop("timestamp")} if "timestamp" in members else {}
        return orjson.dumps({**stamp, "ordinal": number, **members}), True

    def _put_loss(self, first: int, last: int, record: Record) -> None:
        note = {"timestamp": record.timestamp, "ordinal": last, "type": LOST_RECORDS, "payload": {"from": first}}
        self._put(orjson.dumps(note))
        self.report.needed = True

    def _put(self, line: bytes) -> None:
        self._link = chain_link(line)
        self._write(line + b"\n")


def _as_utf8(raw: bytes) -> tuple[bytes, bool]:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode(errors="replace").encode(), True
    return raw, False


def repair_mark(entry: Entry, end_ordinal: int) -> Mapping[str, Any]:
    """What the header of a repaired part of a thread says of its origin (DESIGN §4)."""
    return {"branch": "repair", "left": {"rolloutId": entry.rollout_id, "endOrdinal": end_ordinal}}


def new_entry(newest: Entry, rollout_id: str, moment: Any) -> Entry:
    """Name the repaired file so that it is the thread's present."""
    return replace(Entry.new(newest.thread_id, rollout_id, moment, after=newest), archived=newest.archived)


class NewFile:
    """A file that appears under its name when it is complete. Raises FileExistsError, OSError."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._temporary = path.with_name(f".{path.name}.{token_hex(4)}.tmp")
        self._file: IO[bytes] = self._temporary.open("xb")

    def write(self, content: bytes) -> None:
        """Add bytes."""
        self._file.write(content)

    def keep(self) -> None:
        """Give the file its name; an existing file of that name is never replaced."""
        self._file.flush()
        os.fsync(self._file.fileno())
        try:
            os.link(self._temporary, self.path)
        except FileExistsError:
            raise
        except OSError:
            # A medium without hard links: the name is taken first, so that nothing is replaced unseen.
            self.path.touch(exist_ok=False)
            self._temporary.replace(self.path)

    def close(self) -> None:
        """Remove what was not kept."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)
