"""A home as the target of an import: converted threads and copied logs are put in place whole, or not at all.

Nothing that is there is ever overwritten, and nothing outside the home is written. Converted threads are streamed into
a hidden file beside their place, which then gets its name. Names and lines are those of the store.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, Protocol

from unspool_protocol.log import HistoryMode, NewRecord, RecordType

from ..store.files import LocalShelf
from ..store.lines import chain_link, encode_record, parse_line, seal_line
from ..store.names import Entry
from .draft import Converted, Mark, ThreadDraft
from .identity import as_uuid, derived_id, iso_time
from .report import FileReport, Outcome
from .source import opened

CLI_VERSION = "0.171.0"
"""The version of the reference whose format the lines have."""

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where a mark came to lie: the rollout, the ordinal just behind it, and its byte offset."""

    rollout_id: str
    ordinal: int
    offset: int


class _Differs(Exception):
    """What is there is not what was to be written."""


class _Sink(Protocol):
    """Takes the lines of a log in order."""

    def line(self, content: bytes) -> None:
        """Take one line with its line feed. Raises _Differs, OSError."""


class Home:
    """The home that an import writes to.

    Args:
        dry_run: Only say what would happen.
    """

    def __init__(self, home: Path, *, dry_run: bool = False) -> None:
        self.path = home
        self.dry_run = dry_run
        self._shelf = LocalShelf(home)
        self._threads: dict[str, list[Entry]] = {}
        self._rollouts: dict[str, list[Entry]] = {}
        self._sources: dict[str, str] = {}
        for entry in self._shelf.scan():
            self.note(entry)

    def note(self, entry: Entry) -> None:
        """Remember a log that is there, or would be."""
        self._threads.setdefault(entry.thread_id, []).append(entry)
        self._rollouts.setdefault(entry.rollout_id, []).append(entry)

    def rollouts(self, rollout_id: str) -> list[Entry]:
        """The logs that are there under a rollout id: live, archived, compressed."""
        return self._rollouts.get(rollout_id, [])

    def place(self, entry: Entry) -> Path:
        """Where a log lies or would lie."""
        return self._shelf.path(entry)

    def put_session(self, converted: Converted, report: FileReport) -> None:
        """Put all threads of a converted session in place. Raises OSError for a home that cannot be written."""
        marks: dict[tuple[int, int], _Placed] = {}
        for number, draft in enumerate(converted.drafts):
            base = None if draft.base is None else marks.get((draft.base.draft, draft.base.node))
            if draft.base is not None and base is None:
                report.did(Outcome.FAILED)
                report.lose("thread", "What it was forked from was not imported.", item_id=draft.origin.get("branch"))
                continue
            marks |= self._put(converted, number, draft, base, report)

    def _put(
        self, converted: Converted, number: int, draft: ThreadDraft, base: _Placed | None, report: FileReport
    ) -> dict[tuple[int, int], _Placed]:
        """Put one thread in place, or see that it is there; returns its marks, none when it could not be done."""
        thread_id, existing = self._choose(draft)
        entry = existing or Entry.new(thread_id, thread_id, datetime.fromtimestamp(draft.ms / 1000, UTC))
        report.threads.append(thread_id)
        if "branch" not in draft.origin:
            self._sources[_source_key(draft.origin)] = thread_id
        found: dict[tuple[int, int], _Placed] = {}
        try:
            with self._sink(entry, existing) as sink:
                lines = _Lines(sink, base)
                lines.put(self._header(draft, thread_id, base))
                for record in converted.records(number, thread_id):
                    if isinstance(record, Mark):
                        found[number, record.node] = _Placed(thread_id, lines.ordinal, lines.offset)
                    elif not lines.put(record):
                        report.lose(record.type, "Its content cannot be written as JSON.", item_id=thread_id)
        except _Differs:
            report.did(Outcome.FAILED)
            why = "The source has changed since it was imported; the thread was left as it is."
            report.detail = why
            report.lose("thread", why, item_id=thread_id)
            return {}
        report.did(Outcome.UNCHANGED if existing is not None else Outcome.IMPORTED)
        if existing is None:
            self.note(entry)
        return found

    def _choose(self, draft: ThreadDraft) -> tuple[str, Entry | None]:
        """The id that the thread gets, and the log that it has already from an earlier import."""
        for thread_id in (draft.wanted_id, draft.spare_id):
            if thread_id is None:
                continue
            entries = self._threads.get(thread_id, [])
            if not entries:
                return thread_id, None
            for entry in entries:
                if self._origin(entry) == draft.origin:
                    return thread_id, entry
        spare = derived_id(draft.ms, draft.spare_id, "taken")
        return spare, next((entry for entry in self._threads.get(spare, []) if not entry.segment), None)

    def _origin(self, entry: Entry) -> Mapping[str, Any] | None:
        try:
            with opened(self.place(entry)) as file:
                objects = parse_line(file.readline().rstrip(b"\n")).objects
        except OSError:
            return None
        ours = objects[0][0].get("unspool") if objects else None
        origin = ours.get("import") if isinstance(ours, dict) else None
        return origin if isinstance(origin, dict) and not entry.segment else None

    def _header(self, draft: ThreadDraft, thread_id: str, base: _Placed | None) -> NewRecord:
        stamp = iso_time(draft.ms)
        payload: dict[str, Any] = {"session_id": thread_id, "id": thread_id}
        if base is not None:
            payload |= {"forked_from_id": base.rollout_id, "forked_from_ordinal_exclusive": base.ordinal}
        elif draft.forked_from is not None:
            source = self._thread_of(draft.origin["from"], draft.forked_from)
            payload |= {} if source is None else {"forked_from_id": source}
        parent = None if draft.parent is None else self._thread_of(draft.origin["from"], draft.parent)
        if parent is not None:
            payload["parent_thread_id"] = parent
            payload["source"] = {"subagent": {"thread_spawn": {"parent_thread_id": parent, "depth": 1}}}
        payload |= {"timestamp": stamp, "cli_version": CLI_VERSION, **draft.header}
        payload.setdefault("source", "cli")
        payload["context_window"] = {"window_id": derived_id(draft.ms, draft.spare_id, "window")}
        payload["history_mode"] = HistoryMode.PAGINATED.value
        if base is not None:
            payload["history_base"] = {
                "thread_id": base.rollout_id,
                "end_ordinal_exclusive": base.ordinal,
                "end_byte_offset": base.offset,
            }
        extra = {"unspool": {"import": dict(draft.origin)}}
        return NewRecord(RecordType.SESSION_META, payload, extra=extra, timestamp=stamp)

    def _thread_of(self, form: str, session: str) -> str | None:
        """The thread that a session of the source has become; its own id, if usable, where it was not met (yet)."""
        return self._sources.get(f"{form}\0{session}\0") or as_uuid(session)

    @contextmanager
    def _sink(self, entry: Entry, existing: Entry | None) -> Iterator[_Sink]:
        if existing is not None:
            with opened(self.place(existing)) as file:
                yield _Comparison(file)
        elif self.dry_run:
            yield _Nothing()
        else:
            with self._new_file(self.place(entry)) as file:
                yield _File(file)

    @contextmanager
    def _new_file(self, path: Path) -> Iterator[BinaryIO]:
        """A file that gets its name when everything is in it. Raises FileExistsError, OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{token_hex(4)}.tmp")
        with ExitStack() as stack:
            stack.callback(lambda: _remove(temporary))
            with temporary.open("xb", buffering=_BLOCK_BYTES) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _give_name(temporary, path)

    def copy(self, source: Path, entry: Entry) -> None:
        """Put a byte for byte copy of a log in place. Raises FileExistsError, OSError."""
        if not self.dry_run:
            with source.open("rb") as original, self._new_file(self.place(entry)) as file:
                while block := original.read(_BLOCK_BYTES):
                    file.write(block)
        self.note(entry)

    def add_names(self, lines: Mapping[str, bytes]) -> None:
        """Append lines to the index of names. Raises OSError."""
        if self.dry_run or not lines:
            return
        path = self.path / "session_index.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = False
        with suppress(FileNotFoundError), path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            torn = end > 0 and file.read(1) != b"\n"
        with path.open("ab") as file:
            file.write((b"\n" if torn else b"") + b"".join(line + b"\n" for line in lines.values()))


class _Lines:
    """Numbers and seals records (01 §2, DESIGN §4)."""

    def __init__(self, sink: _Sink, base: _Placed | None) -> None:
        self._sink = sink
        self._link = b""
        self.ordinal = 0 if base is None else base.ordinal
        self.offset = 0

    def put(self, record: NewRecord) -> bool:
        """Take one record; False for one that JSON cannot hold."""
        try:
            encoded = encode_record(record)
        except TypeError:
            return False
        stamp = record.timestamp or ""
        line = seal_line(encoded, timestamp=stamp, ordinal=self.ordinal, previous=self._link)
        self._sink.line(line + b"\n")
        self._link = chain_link(line)
        self.ordinal += 1
        self.offset += len(line) + 1
        return True


class _File:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def line(self, content: bytes) -> None:
        """Write."""
        self._file.write(content)


class _Comparison:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def line(self, content: bytes) -> None:
        """Compare; what follows in the file was added since."""
        if self._file.read(len(content)) != content:
            raise _Differs


class _Nothing:
    def line(self, content: bytes) -> None:
        """Pass over."""


def _source_key(origin: Mapping[str, str]) -> str:
    return f"{origin['from']}\0{origin['session']}\0{origin.get('part', '')}"


def _give_name(temporary: Path, path: Path) -> None:
    """Never over a file that is there."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links: create the name first, so that nobody else's file is replaced.
        with path.open("xb"):
            pass
        temporary.replace(path)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
