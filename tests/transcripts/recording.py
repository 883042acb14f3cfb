"""The recorded conversations and what they say about the model that answered during them. No I/O but reading files."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMPACTION = "(compaction)"
"""Stands for the question in samplings that make a summary."""

FOLDER = Path(__file__).parents[1] / "fixtures" / "transcripts"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a recording: a message, text that is none (`raw`), or a note."""

    index: int
    conn: str
    sent: bool
    message: Mapping[str, Any] | None
    raw: str | None
    note: str | None

    @property
    def method(self) -> str:
        """The method, empty for answers, raw text and notes."""
        return str((self.message or {}).get("method", ""))

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters, empty where there are none."""
        params = (self.message or {}).get("params")
        return params if isinstance(params, Mapping) else {}

    @property
    def is_answer(self) -> bool:
        """Whether it answers a request, of either side."""
        return self.message is not None and "method" not in self.message


@dataclass(slots=True)
class Sampling:
    """One request to the model as the recording shows it.

    Attributes:
        asked: The newest text of a user that the model saw; empty for input that is no text.
        deltas: What it streamed, piece by piece.
        ending: `done`, `fail` with the text's own code, or `hang` when it was cut off.
        gates: For the start, each delta and the end: the entry at which the recording shows it.
        early: Deltas that somebody who came later was shown first, with the entry.
        call: The call that it made instead of a message: `name` and `arguments`.
    """

    asked: str
    deltas: list[str] = field(default_factory=list)
    ending: str = "hang"
    text: str = ""
    gates: list[int] = field(default_factory=list)
    early: dict[str, int] = field(default_factory=dict)
    call: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """One file."""

    name: str
    entries: tuple[Entry, ...]

    def samplings(self) -> list[Sampling]:
        """What the model was asked and how it answered, in the order in which the answers began."""
        return list(_samplings(self.entries))

    def known_ids(self) -> set[str]:
        """Ids of the threads that the server named in it."""
        return {str(e.params["threadId"]) for e in self.entries if "threadId" in e.params}


def load(name: str) -> Recording:
    """Read a recording by the number its file name begins with."""
    (path,) = FOLDER.glob(f"{name}-*.jsonl")
    lines = path.read_text("utf-8").split("\n")
    entries = [_entry(i, json.loads(line)) for i, line in enumerate(lines) if line]
    return Recording(name, tuple(_without_races(entries)))


def _without_races(entries: list[Entry]) -> Iterator[Entry]:
    """A delta that another connection was shown just after a request was sent was on its way before."""
    for number, (entry, following) in enumerate(zip(entries, [*entries[1:], None], strict=True)):
        late = following is not None and following.method == "item/agentMessage/delta" and following.conn != entry.conn
        if entry.sent and late and following is not None:
            entries[number + 1] = entry
            yield following
        else:
            yield entry


def _entry(index: int, line: Mapping[str, Any]) -> Entry:
    message, note = line.get("msg"), line.get("note")
    if note is not None and ": connection ended" in note:
        line = {**line, "conn": note.partition(":")[0]}
    return Entry(
        index=index,
        conn=str(line.get("conn", "")),
        sent=line.get("dir") == "c2s",
        message=message if isinstance(message, Mapping) else None,
        raw=line.get("raw"),
        note="close" if note and ("ended" in note or note == "close") else note,
    )


def _samplings(entries: tuple[Entry, ...]) -> Iterator[Sampling]:
    yield from _unseen(entries)
    asked: dict[str, str] = {}
    found: dict[str, Sampling] = {}
    counted: dict[tuple[str, str], int] = {}
    for entry in entries:
        if entry.sent or "threadId" not in entry.params:
            continue
        item, thread = entry.params.get("item") or {}, str(entry.params["threadId"])
        item_id = str(item.get("id") or entry.params.get("itemId") or f"error {entry.params.get('turnId')}")
        if item_id not in found and (whole := _at_once(entry, asked.get(thread, ""), entries)) is not None:
            found[item_id] = whole
            yield whole
        match entry.method, item.get("type"):
            case "item/started", "userMessage":
                asked[thread] = "".join(part.get("text", "") for part in item["content"])
            case "item/started", "agentMessage" if item_id not in found:
                sampling = found[item_id] = Sampling(asked.get(thread, ""), gates=[entry.index])
                yield sampling
            case "item/agentMessage/delta", _:
                key = (entry.conn, item_id)
                counted[key] = counted.get(key, 0) + 1
                _stream(found, item_id, counted[key], entry)
            case "item/completed", "agentMessage" if item_id in found:
                if found[item_id].ending == "hang":
                    found[item_id].ending, found[item_id].text = "done", item["text"]
                    found[item_id].gates.append(entry.index)
    _finish_unwatched(found, entries)


def _at_once(entry: Entry, asked: str, entries: tuple[Entry, ...]) -> Sampling | None:
    """A sampling that one entry shows whole: a call, a summary or a failure."""
    item = entry.params.get("item") or {}
    match entry.method, item.get("type"):
        case "item/started", "commandExecution" | "dynamicToolCall":
            return Sampling(asked, ending="done", gates=[-1], call=_call(item, entries))
        case "item/completed", "contextCompaction":
            return Sampling(COMPACTION, ["summary"], "done", "summary", [entry.index] * 3)
        case "error", _:  # the status is shown just before it
            return Sampling(asked, ending="fail", gates=[entry.index - 1])
    return None


def _call(item: Mapping[str, Any], entries: tuple[Entry, ...]) -> dict[str, Any]:
    """The call behind an item; why a command needs approval was said in its arguments."""
    if item["type"] == "dynamicToolCall":
        return {"name": item["tool"], "arguments": item["arguments"]}
    asked = [entry.params for entry in entries if entry.params.get("itemId") == item["id"]]
    reason = next((params["reason"] for params in asked if "reason" in params), None)
    (action,) = item["commandActions"]
    return {"name": "exec_command", "arguments": {"cmd": action["command"], "justification": reason}}


def _unseen(entries: tuple[Entry, ...]) -> Iterator[Sampling]:
    """Turns that ran while nobody was subscribed: all that is known is the answer that the model always gave."""
    seen = {str(entry.params["turnId"]) for entry in entries if entry.method == "item/started"}
    for entry in entries:
        if entry.sent and entry.method == "turn/start":
            turn = next(((e.message or {})["result"]["turn"]["id"] for e in entries if _answers(e, entry)), None)
            text = "".join(part.get("text", "") for part in entry.params["input"] if isinstance(part, Mapping))
            if turn is not None and turn not in seen:
                yield Sampling(text, [f"reply to: {text}"], "done", f"reply to: {text}", [entry.index] * 3)


def _finish_unwatched(found: Mapping[str, Sampling], entries: tuple[Entry, ...]) -> None:
    """Messages that were finished when nobody watched any more are whole in what was read later."""
    results = [(entry.message or {}).get("result") or {} for entry in entries if entry.is_answer]
    turns = [turn for result in results for turn in (result.get("thread") or {}).get("turns", ())]
    for item in (item for turn in turns if turn["status"] == "completed" for item in turn["items"]):
        sampling = found.get(item["id"])
        if sampling is not None and sampling.ending == "hang":
            closed = (entry.index for entry in entries if entry.note == "close")
            sampling.ending, sampling.text = "done", item["text"]
            sampling.gates.append(next(index for index in closed if index > sampling.gates[-1]))


def _answers(entry: Entry, request: Entry) -> bool:
    """Whether an entry is a good answer to a request."""
    message, asked = entry.message or {}, request.message or {}
    return not entry.sent and entry.conn == request.conn and message.get("id") == asked["id"] and "result" in message


def _stream(found: Mapping[str, Sampling], item_id: str, count: int, entry: Entry) -> None:
    """A delta counts once, whoever saw it. Who came later saw fewer, so only the longest count adds to the text."""
    sampling = found.get(item_id)
    if sampling is None or sampling.ending != "hang":
        return
    delta = str(entry.params["delta"])
    if count > len(sampling.deltas):
        sampling.gates.append(sampling.early.pop(delta, entry.index))
        sampling.deltas.append(delta)
    elif delta not in sampling.deltas:
        sampling.early[delta] = entry.index
