"""Replays the client side of recordings against a daemon, and tells what the daemon did differently."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from unspool_protocol.methods import METHODS

from tests.interaction.house import House
from tests.interaction.wire import Client, Message
from tests.transcripts.comparing import Names, compare
from tests.transcripts.recording import Entry, Recording
from tests.transcripts.scripted_model import ScriptedModel
from tests.transcripts.wires import Door, door

WAIT_S = 10.0
"""Longest wait for a message; the first turn loads the library of the model service."""
READS = (
    "thread/read",
    "thread/list",
    "thread/turns/list",
    "thread/items/list",
    "thread/loaded/list",
    "plugin/installed",
    "skills/list",
    "collaborationMode/list",
    "configRequirements/read",
    "hooks/list",
)
"""Answers to these may come in any order when several were asked at once."""

Label = tuple[str, str, str, str]
"""What identifies a message: a method or `answer`, its thread or id, its turn, and what it is about."""


@dataclass
class Report:
    """What was different, as `NUMBER WHERE PLACE KIND` lines."""

    name: str
    found: list[str] = field(default_factory=list)

    def add(self, *lines: str) -> None:
        self.found += [f"{self.name} {line}" for line in lines]


class Line:
    """One recorded connection and ours beside it: which messages are counterparts of which."""

    def __init__(self, client: Client, names: Names) -> None:
        self.client, self._names = client, names
        self.asked: dict[str, Mapping[str, Any]] = {}
        self.counts: Counter[Label] = Counter()
        self.matched: list[tuple[Entry, int]] = []
        self.excused: list[Entry] = []

    def label_recorded(self, entry: Entry) -> Label:
        """The label of a recorded message."""
        assert entry.message is not None
        return _label(entry.message, lambda thread: thread if thread in self._names.ours else "new")

    def label_ours(self, message: Message) -> Label:
        """The label of one of our messages, in the recording's names."""
        return _label(message, lambda thread: self._names.recorded.get(thread, "new"))

    def counterpart(self, entry: Entry, among: range | None = None) -> int | None:
        """Where among our messages the counterpart of a recorded one is; None: it has not come."""
        wanted = self.label_recorded(entry)
        taken = {place for _, place in self.matched}
        for place in among or range(len(self.client.seen)):
            if place not in taken and self.label_ours(self.client.seen[place]) == wanted:
                return place
        return None


class Player:
    """Plays recordings one after the other on one home; what they learn of names is kept."""

    def __init__(self, house: House, model: ScriptedModel, names: Names, absent: Callable[[str], bool]) -> None:
        self._house, self._model, self._names, self._absent = house, model, names, absent
        self._lines: dict[str, Line] = {}
        self._unsent: set[tuple[str, str]] = set()

    async def play(self, recording: Recording, transport: str) -> Report:
        """One recording on a daemon of its own."""
        report = Report(recording.name)
        self._unsent.clear()
        self._model.begin(recording.samplings())
        async with AsyncExitStack() as stack:
            daemon = await stack.enter_async_context(self._house.daemon())
            way = await stack.enter_async_context(door(daemon.shared, transport, self._house.home))
            try:
                for entry in recording.entries:
                    await self._step(entry, way, transport, report)
                for conn in list(self._lines):
                    await self._finish(conn, self._lines.pop(conn), report)
            finally:
                for line in self._lines.values():
                    await line.client.close()
                self._lines.clear()
                self._model.reach(1 << 30)
        report.add(*(f"model asked {asked!r} unplanned" for asked in self._model.unplanned))
        self._model.unplanned.clear()
        return report

    async def _step(self, entry: Entry, way: Door, transport: str, report: Report) -> None:
        self._model.reach(entry.index)
        if entry.note is not None:
            if entry.conn in self._lines and entry.note == "close":
                await self._finish(entry.conn, self._lines.pop(entry.conn), report)
            return
        if entry.conn not in self._lines:
            if transport == "stdio":  # a process serves one client
                for conn in list(self._lines):
                    await self._finish(conn, self._lines.pop(conn), report)
            self._lines[entry.conn] = Line(Client(await way.open()), self._names)
        line = self._lines[entry.conn]
        if entry.sent:
            if METHODS.get(entry.method) is not None and METHODS[entry.method].ours:
                report.add(f"{entry.method} unsent")
                self._unsent.add((entry.conn, repr((entry.message or {})["id"])))
                return
            await self._send(entry, line)
        elif (entry.conn, repr((entry.message or {}).get("id"))) in self._unsent:
            return
        elif entry.message is not None:
            await self._expect(entry, line, report)

    async def _send(self, entry: Entry, line: Line) -> None:
        if entry.message is None:
            line.asked |= {repr(request["id"]): request for request in _requests(entry.raw or "")}
            await line.client.send_bytes((entry.raw or "").encode())
            return
        if entry.method and "id" in entry.message:
            line.asked[repr(entry.message["id"])] = entry.message
        await line.client.send(self._names.translate(dict(entry.message)))

    async def _expect(self, entry: Entry, line: Line, report: Report) -> None:
        """Wait for the counterpart of a recorded message and compare the two."""
        where = self._where(entry, line)
        if self._absent(f"{report.name} {where} missing"):
            line.excused.append(entry)
            return
        try:
            async with asyncio.timeout(WAIT_S):
                while (place := line.counterpart(entry)) is None:
                    await line.client.news()
        except (TimeoutError, EOFError):
            report.add(f"{where} missing")
            return
        self._match(entry, place, line, report)

    def _match(self, entry: Entry, place: int, line: Line, report: Report) -> None:
        line.matched.append((entry, place))
        assert entry.message is not None
        found = self._compared(entry.message, dict(line.client.seen[place]))
        where = self._where(entry, line)
        report.add(*(f"{where} {one}" for one in found))

    def _compared(self, recorded: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
        found = []
        for part in ("params", "result", "error"):
            if part in recorded and part in ours:
                found += list(compare(recorded[part], ours[part], self._names, part))
            elif part in recorded or part in ours:
                theirs = recorded.get("error") or "a result"
                found.append(f"{part} outcome {theirs} {ours.get('error') or 'a result'}")
        return found

    def _where(self, entry: Entry, line: Line) -> str:
        if entry.is_answer:
            assert entry.message is not None
            question = line.asked.get(repr(entry.message.get("id")))
            return f"answer:{question['method'] if question else '?'}"
        kind = _about(entry.message or {})
        return f"{entry.method}:{kind}" if kind else entry.method

    async def _finish(self, conn: str, line: Line, report: Report) -> None:
        """What came beyond the recording or not at all, and in which order everything came."""
        await line.client.close()
        for entry in line.excused:  # nobody waited for these
            among = self._between(entry, line)
            place = line.counterpart(entry, among) if among else None
            if place is None:
                report.add(f"{self._where(entry, line)} missing")
            else:
                self._match(entry, place, line, report)
        line.matched.sort(key=lambda pair: pair[0].index)
        matched = {place for _, place in line.matched}
        for place, message in enumerate(line.client.seen):
            if place not in matched:
                kind = _about(message)
                word = str(message.get("method", f"answer {message.get('id')} {message.get('error')}"))
                report.add(f"{word}:{kind} surplus" if kind else f"{word} surplus")
        report.add(*self._disorder(line))

    def _between(self, entry: Entry, line: Line) -> range:
        """Where our counterpart of a message can be, if the thread's other messages are in order."""
        thread = self._thread(entry, line)
        near = [(one.index, place) for one, place in line.matched if self._thread(one, line) == thread]
        first = max((place for index, place in near if index < entry.index), default=-1)
        last = min((place for index, place in near if index > entry.index), default=len(line.client.seen))
        return range(first + 1, last)

    def _disorder(self, line: Line) -> list[str]:
        """Pairs of a thread's messages that came in another order."""
        places: dict[str, list[tuple[int, str]]] = {}
        for entry, place in line.matched:
            where = self._where(entry, line)
            if where.removeprefix("answer:") not in READS:
                places.setdefault(self._thread(entry, line), []).append((place, where))
        found = []
        for sequence in places.values():
            for (one, first), (other, second) in itertools.pairwise(sequence):
                if one > other:
                    found.append(f"{first} before {second} order")
        return found

    def _thread(self, entry: Entry, line: Line) -> str:
        if not entry.is_answer:
            return _label(entry.message or {}, str)[1]
        question = line.asked.get(repr((entry.message or {}).get("id")))
        return str(_params(question or {}).get("threadId", ""))


def _requests(raw: str) -> list[Mapping[str, Any]]:
    """The requests in raw text, which may hold several lines or nothing that is JSON."""
    found: list[Mapping[str, Any]] = []
    for line in raw.split("\n"):
        with suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict) and "method" in message and "id" in message:
                found.append(message)
    return found


def _label(message: Mapping[str, Any], name: Callable[[str], str]) -> Label:
    if "method" not in message:
        return "answer", repr(message.get("id")), "", ""
    params = _params(message)
    thread = params.get("threadId") or (params.get("thread") or {}).get("id")
    turn = params.get("turnId") or (params.get("turn") or {}).get("id")
    return str(message["method"]), name(thread) if thread else "", name(turn) if turn else "", _about(message)


def _params(message: Mapping[str, Any]) -> Mapping[str, Any]:
    params = message.get("params")
    return params if isinstance(params, Mapping) else {}


def _about(message: Mapping[str, Any]) -> str:
    params = _params(message)
    if message.get("method") == "thread/status/changed":
        return str(params["status"]["type"])
    return str((params.get("item") or {}).get("type", ""))
