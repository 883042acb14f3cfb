"""Codex sessions folders, copied byte for byte to the same places of our home (01 §4).

Every version's files, plain and compressed, segments and by-reference forks alike: our home reads them as they are.
What a fork points at is brought along where the source has it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from unspool_protocol.log import HistoryMode, RecordType

from ..store.lines import parse_line
from ..store.names import Entry
from .report import FileReport, Outcome
from .source import opened
from .target import Home

FORMAT = "codex"
INDEX = "session_index.jsonl"
ARCHIVE = "archived_sessions"

_BLOCK_BYTES = 1 << 20
_DATED_PARTS = 3


@dataclass(frozen=True, slots=True)
class Rollout:
    """One file of the source, and the place that its name and folder ask for."""

    path: Path
    entry: Entry


def is_rollout_name(name: str) -> bool:
    """Whether a file name is a rollout's."""
    return Entry.parse(name) is not None


def rollout_at(path: Path) -> Rollout | None:
    """The rollout that a file is by its name; None for other files. It keeps its dated folder."""
    archived = path.parent.name == ARCHIVE
    dated = path.parent.parts[-_DATED_PARTS:]
    usual = len(dated) == _DATED_PARTS and [len(part) for part in dated] == [4, 2, 2] and "".join(dated).isdecimal()
    entry = Entry.parse(path.name, folder="/".join(dated) if usual and not archived else "", archived=archived)
    return None if entry is None else Rollout(path, entry)


def home_of(path: Path) -> Path | None:
    """The source's home: the folder that holds `sessions` or `archived_sessions` around a path."""
    for folder in (path, *path.parents):
        if folder.name in ("sessions", ARCHIVE):
            return folder.parent
        if folder.is_dir() and ((folder / "sessions").is_dir() or (folder / ARCHIVE).is_dir()):
            return folder
    return None


def rollouts_below(folder: Path) -> Iterator[Rollout]:
    """All rollouts of a folder tree, live ones before archived ones, in the order of their names."""
    found = (rollout_at(path) for path in sorted(folder.rglob("rollout-*.jsonl*")) if path.is_file())
    yield from sorted((each for each in found if each is not None), key=lambda each: each.entry.archived)


class CodexImport:
    """Copies rollouts into a home, with what they depend on and their names."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._by_source: dict[Path, Mapping[str, Path]] = {}
        self._threads: dict[Path, set[str]] = {}
        self._done: set[Path] = set()

    def take(self, path: Path) -> Iterator[FileReport]:
        """Copy one rollout, and before it those it depends on that were not asked for. Raises nothing."""
        waiting = [path]
        chain: list[tuple[Path, FileReport, str | None]] = []
        while waiting:
            at = waiting.pop()
            if at in self._done:
                continue
            self._done.add(at)
            report = FileReport(str(at), FORMAT)
            rollout = rollout_at(at)
            if rollout is None:
                report.fail("file", "The file's name is not that of a rollout.")
                yield report
                continue
            base = self._base(rollout, report)
            chain.append((at, report, base))
            if base is not None and not self._home.rollouts(base):
                found = self._sibling(at, base)
                if found is not None:
                    waiting.append(found)
        for at, report, base in reversed(chain):
            rollout = rollout_at(at)
            if rollout is not None and report.outcome is not Outcome.FAILED:
                self._copy(rollout, report, base)
            yield report

    def names(self) -> Iterator[FileReport]:
        """Bring along the names of all threads that came over and have none here yet."""
        known = _names(self._home.path / INDEX)
        for source, threads in self._threads.items():
            path = source / INDEX
            lines = {thread_id: line for thread_id, line in _names(path).items() if thread_id in threads - known.keys()}
            if not lines:
                continue
            report = FileReport(str(path), FORMAT, Outcome.IMPORTED)
            try:
                self._home.add_names(lines)
            except OSError as error:
                report.fail("name", f"The names could not be written: {error.strerror or error}")
            known |= lines
            yield report

    def _base(self, rollout: Rollout, report: FileReport) -> str | None:
        """Read the header: the rollout that this one's history begins in. What cannot be opened is a loss."""
        try:
            header = _header(rollout.path)
        except OSError as error:
            report.fail("file", f"The file cannot be read: {error.strerror or error}")
            return None
        if header is None:
            report.lose("session_meta", "The log has no header: it is copied, but cannot be opened before a repair.")
            return None
        if header.get("id") != rollout.entry.thread_id:
            report.lose("session_meta", "The header names another thread than the file: it is copied, but not opened.")
        if header.get("history_mode", HistoryMode.LEGACY) not in tuple(HistoryMode):
            report.lose("session_meta", "The history mode is unknown: the log is copied, but cannot be opened.")
        base = header.get("history_base")
        named = base.get("thread_id") if isinstance(base, dict) else None
        return named if isinstance(named, str) else None

    def _sibling(self, path: Path, rollout_id: str) -> Path | None:
        source = home_of(path)
        if source is None:
            return None
        if source not in self._by_source:
            folders = [folder for folder in (source / "sessions", source / ARCHIVE) if folder.is_dir()]
            found = [each for folder in folders for each in rollouts_below(folder)]
            self._by_source[source] = {each.entry.rollout_id: each.path for each in reversed(found)}
        return self._by_source[source].get(rollout_id)

    def _copy(self, rollout: Rollout, report: FileReport, base: str | None) -> None:
        entry = rollout.entry
        report.threads.append(entry.thread_id)
        try:
            self._copy_or_compare(rollout, report)
        except OSError as error:
            report.fail("file", f"The file cannot be copied: {error.strerror or error}")
            return
        source = home_of(rollout.path)
        if source is not None and report.outcome is not Outcome.FAILED:
            self._threads.setdefault(source, set()).add(entry.thread_id)
        if base is not None and not self._home.rollouts(base):
            why = "The log whose history it continues is neither in the source nor in the home; the thread begins late."
            report.lose("history_base", why, item_id=base)

    def _copy_or_compare(self, rollout: Rollout, report: FileReport) -> None:
        present = self._home.rollouts(rollout.entry.rollout_id)
        if not present:
            self._home.copy(rollout.path, rollout.entry)
            report.did(Outcome.IMPORTED)
            return
        for entry in present:
            if self._home.dry_run and not self._home.place(entry).exists():
                return
            if starts_with(self._home.place(entry), rollout.path):
                return
        own = replace(rollout.entry, compressed=False)
        clash = any(replace(entry, compressed=False) == own for entry in present)
        same_name = "of this name" if clash else "of this thread under another name"
        report.fail("file", f"The home has a different log {same_name}; it was left as it is.")


def starts_with(path: Path, prefix: Path) -> bool:
    """Whether a file (unpacked) is the other one, or the other one with lines added. Raises OSError."""
    with opened(path) as here, opened(prefix) as there:
        for ours, theirs in zip_longest(_blocks(here), _blocks(there), fillvalue=b""):
            if not ours.startswith(theirs):
                return False
            if len(theirs) < _BLOCK_BYTES:
                return True
    return True


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Whole blocks, the last one shorter; reading may give less than was asked for."""
    while True:
        block = b""
        while len(block) < _BLOCK_BYTES and (part := file.read(_BLOCK_BYTES - len(block))):
            block += part
        if block:
            yield block
        if len(block) < _BLOCK_BYTES:
            return


def _header(path: Path) -> Mapping[str, Any] | None:
    """The payload of the first `session_meta` (01 §2). Raises OSError."""
    with opened(path) as file:
        for line in _lines(file):
            if b"session_meta" not in line:
                continue
            for value, _ in parse_line(line).objects:
                payload = value.get("payload")
                if value["type"] == RecordType.SESSION_META and isinstance(payload, dict):
                    return payload
    return None


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines without line feed; unpacking streams cannot iterate themselves."""
    rest = b""
    for block in _blocks(file):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _names(path: Path) -> dict[str, bytes]:
    """Thread id -> its newest line in an index of names; empty where there is none."""
    names: dict[str, bytes] = {}
    try:
        content = path.read_bytes()
    except OSError:
        return names
    for line in content.split(b"\n"):
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict) and isinstance(value.get("id"), str) and isinstance(value.get("thread_name"), str):
            names[value["id"]] = line
    return names
