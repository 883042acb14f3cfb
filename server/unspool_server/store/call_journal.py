"""Keyed calls that no thread's log can tell of: what creates, moves or removes whole threads.

An append-only journal with a line before such a call is carried out and one after it, so that a call that was cut off
by the end of the process is known as begun. One file a day; whole days are dropped when they are too old. Owns neither
what a call does nor what its repetition gets (`sessions/repeats/home_calls.py`).
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import orjson

from unspool_server.errors import WriteFailed

FOLDER = "unspool_calls"
"""Below the home; other readers of a home pass it over."""

KEPT_DAYS = 7
"""Whole days that a call is remembered at least."""


@dataclass(frozen=True, slots=True)
class HomeCall:
    """A keyed call as the journal has it.

    Attributes:
        thread_id: The thread that it is about, or that it creates.
        result: Its answer; None while it is only begun.
    """

    scope: str
    method: str
    key: str
    about: str
    digest: str
    thread_id: str
    result: Mapping[str, Any] | None = None

    @property
    def id(self) -> tuple[str, str, str, str]:
        """What makes it the same call: whose, which method, on which thread, which key."""
        return (self.scope, self.method, self.about, self.key)


class CallJournal(Protocol):
    """Where such calls are kept; see `LocalJournal`."""

    def begin(self, call: HomeCall) -> HomeCall | None:
        """Write that a call begins, unless it is known: then that is given. Raises WriteFailed; nothing was written."""

    def end(self, call: HomeCall, result: Mapping[str, Any]) -> None:
        """Write that a call was carried out. Raises WriteFailed."""

    def withdraw(self, call: HomeCall) -> None:
        """Write that a call changed nothing; its key is free again. Raises WriteFailed."""


class MemoryJournal:
    """A journal for as long as the process lives."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str, str, str], HomeCall] = {}

    def begin(self, call: HomeCall) -> HomeCall | None:
        """See `CallJournal`."""
        known = self._calls.get(call.id)
        if known is None:
            self._calls[call.id] = call
        return known

    def end(self, call: HomeCall, result: Mapping[str, Any]) -> None:
        """See `CallJournal`."""
        self._calls[call.id] = replace(call, result=result)

    def withdraw(self, call: HomeCall) -> None:
        """See `CallJournal`."""
        self._calls.pop(call.id, None)


class LocalJournal:
    """The journal of a home, shared by all processes that serve it: an advisory lock keeps their lines apart.

    Blocking; lines are few and short. Nothing is read or made before the first call with a key.

    Args:
        durable: Lines also survive power loss.
    """

    def __init__(self, home: Path, *, durable: bool = False) -> None:
        self._folder = home / FOLDER
        self._durable = durable
        self._calls: dict[tuple[str, str, str, str], HomeCall] = {}
        self._read: dict[str, int] = {}

    def begin(self, call: HomeCall) -> HomeCall | None:
        """See `CallJournal`."""
        with self._locked():
            self._refresh()
            known = self._calls.get(call.id)
            if known is None:
                self._append("begun", call)
            return known

    def end(self, call: HomeCall, result: Mapping[str, Any]) -> None:
        """See `CallJournal`."""
        with self._locked():
            self._append("done", replace(call, result=result))

    def withdraw(self, call: HomeCall) -> None:
        """See `CallJournal`."""
        with self._locked():
            self._append("withdrawn", call)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise WriteFailed("the journal of calls cannot be written") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise WriteFailed("the journal of calls cannot be written") from error
        finally:
            os.close(lock)

    def _append(self, what: str, call: HomeCall) -> None:
        day = self._folder / f"{datetime.now(UTC).date().isoformat()}.jsonl"
        told = {"at": datetime.now(UTC).isoformat(), "what": what, **_fields(call)}
        with day.open("ab") as file:
            start = file.tell()
            line = orjson.dumps(told) + b"\n"
            try:
                # A line that was torn by the end of a process is closed, so that this one can be read.
                file.write(line if self._ends_whole(day, start) else b"\n" + line)
                file.flush()
                if self._durable:
                    os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), start)
                raise
        self._take(what, call)

    @staticmethod
    def _ends_whole(day: Path, size: int) -> bool:
        if size == 0:
            return True
        with day.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) == b"\n"

    def _refresh(self) -> None:
        """Read what came since the last time, from other processes too; drop days that are too old."""
        oldest = datetime.now(UTC).date() - timedelta(days=KEPT_DAYS)
        days = {path: day for path in sorted(self._folder.glob("*.jsonl")) if (day := _day(path)) is not None}
        for path in [path for path, day in days.items() if day < oldest]:
            path.unlink(missing_ok=True)
            del days[path]
            self._calls, self._read = {}, {}
        for path in days:
            with path.open("rb") as file:
                file.seek(self._read.get(path.name, 0))
                new = file.read()
            whole = new.rfind(b"\n") + 1
            self._read[path.name] = self._read.get(path.name, 0) + whole
            for line in new[:whole].splitlines():
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        try:
            told = orjson.loads(line)
            call = HomeCall(**{name: told[name] for name in _NAMES}, result=told.get("result"))
            self._take(told["what"], call)
        except (ValueError, KeyError, TypeError):
            return  # a torn line: what it told of was never acknowledged

    def _take(self, what: str, call: HomeCall) -> None:
        if what == "withdrawn":
            self._calls.pop(call.id, None)
        else:
            self._calls[call.id] = call


_NAMES = ("scope", "method", "key", "about", "digest", "thread_id")


def _fields(call: HomeCall) -> dict[str, Any]:
    told = {name: getattr(call, name) for name in _NAMES}
    return told if call.result is None else {**told, "result": call.result}


def _day(path: Path) -> date | None:
    try:
        return date.fromisoformat(path.stem)
    except ValueError:
        return None
