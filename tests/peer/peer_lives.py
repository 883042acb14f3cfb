"""Random lives lived twice, on our server and on the real Codex, step by step with the same model replies.

Whatever both know may happen; after every step the inputs that the two models were sent are compared. A life is a
function of its seed. Many lives share one pair of processes, and a restart of both in the middle.
"""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.peer.codex_peer import Json, PeerHome, Refused, Server, Who, normal_input, texts
from tests.peer.operations import TOOL

SIDES: tuple[Who, Who] = ("ours", "codex")
STEPS = 8

FREE_TEXTS = ("<turn_aborted>", "<model_switch>")
"""Opening tags of context whose words are each server's own."""

INTENDED: Mapping[str, str] = {
    "fork": "A fork goes on with its source's model here, in Codex with the configured one: both are told the model.",
}
"""Differences that are meant, by the operation that is lived in a way that avoids them, and why they are."""


@dataclass
class Side:
    """One server with its home; `turns` tells per life and thread the ids of the visible turns."""

    who: Who
    home: PeerHome
    server: Server

    def restart(self) -> None:
        """End the process in order and start another one on the same home."""
        self.server.close()
        self.server = self.home.open(self.who)
        self.server.tools["lookup"] = found


def found(arguments: Any) -> str:
    """What the client's tool answers."""
    return f"found {arguments['key']}"


@dataclass
class PeerThread:
    """One thread of a life on both sides: its ids, the ids of its visible turns, and whether it is loaded."""

    ids: list[str]
    mode: str
    tools: bool
    turns: list[list[str]] = field(default_factory=list)
    loaded: bool = True
    model: str = "mock-model"


@dataclass
class Figures:
    """What was done, for people who want to know how much was compared."""

    lives: int = 0
    steps: int = 0
    requests: int = 0
    differences: list[str] = field(default_factory=list)


class PeerLife:
    """One life on two sides."""

    def __init__(self, seed: int, sides: list[Side], cwd: Path, figures: Figures) -> None:
        self.random = random.Random(seed)
        self.seed, self.sides, self.cwd, self.figures = seed, sides, cwd, figures
        self.threads: list[PeerThread] = []
        self.told: list[str] = []
        self.count = 0
        self.over = False
        figures.lives += 1

    def step(self, *, last: bool = False) -> None:
        """Do one thing on both sides and compare what their models were sent; the first difference ends the life."""
        if self.over:
            return
        before = [len(side.home.mock.requests) for side in self.sides]
        self.figures.steps += 1
        difference = self._finish() if last else self._act()
        sent = [
            [normal(request) for request in side.home.mock.requests[start:]]
            for side, start in zip(self.sides, before, strict=True)
        ]
        for side in self.sides:
            side.home.mock.replies.clear()
            side.home.mock.compact_replies.clear()
        self.figures.requests += len(sent[1])
        difference = difference or differing(*sent)
        if difference is not None:
            self.over = True
            told = "\n".join(f"  {number}. {text}" for number, text in enumerate(self.told, 1))
            self.figures.differences.append(f"seed {self.seed}\n{told}\n{difference}")

    def unload(self) -> None:
        """Both servers were restarted."""
        for thread in self.threads:
            thread.loaded = False
        self.told.append("restart")

    # -- what happens ----------------------------------------------------------------------------------------------

    def _act(self) -> str | None:
        if not self.threads:
            return self._start()
        thread = self.random.choice(self.threads)
        acts = [self._turn] * 5 + [self._with_settings] * 2 + [self._interrupt, self._interrupt, self._compact]
        acts += [self._inject, self._fork, self._fork, self._update]
        if thread.mode == "paginated" and thread.turns:
            acts += [self._revert] * 2
        if len(self.threads) < 2:
            acts.append(lambda _: self._start())
        act = self.random.choice(acts)
        return self._load(thread) or act(thread)

    def _finish(self) -> str | None:
        """A last turn in every thread, so that nothing that was done stays unseen."""
        for thread in self.threads:
            difference = self._load(thread) or self._turn(thread, "plain")
            if difference is not None:
                return difference
        return None

    def _load(self, thread: PeerThread) -> str | None:
        if thread.loaded:
            return None
        thread.loaded = True
        return self._both("thread/resume", thread)[0]

    def _start(self) -> str | None:
        mode, tools = self.random.choice(["paginated", "paginated", "legacy"]), self.random.random() < 0.5
        self.told.append(f"start {mode}{' with tools' * tools}")
        given = {"dynamicTools": [TOOL]} if tools else {}
        ids = [side.server.start(self.cwd, historyMode=mode, **given) for side in self.sides]
        self.threads.append(PeerThread(ids, mode, tools))
        return self._turn(self.threads[-1])

    def _turn(self, thread: PeerThread, how: str | None = None, **settings: Any) -> str | None:
        kinds = ["plain", "plain", "reason", "cut"] + ["tool", "parallel"] * thread.tools
        how = how or self.random.choice(kinds)
        self.count += 1
        n, name = self.count, f"{self.seed}_{self.count}"
        self.told.append(f"{self.threads.index(thread)} turn {n} {how} {settings or ''}")
        call: Json = {"call": "lookup", "args": {"key": f"k{n}"}, "id": f"call_{name}"}
        replies: dict[str, list[list[Json]]] = {
            "plain": [],
            "reason": [[{"reason": f"thought {n}"}, {"say": f"first {n}"}, {"say": f"then {n}"}]],
            "cut": [[{"say": f"whole {n}"}, {"cut": True}]],
            "tool": [[{"say": "let me see"}, call]],
            "parallel": [
                [call, {**call, "id": f"call_{name}b"}, {"say": f"both {n}"}],
                [{**call, "id": f"call_{name}c"}],
            ],
        }
        for side in self.sides:
            for reply in replies[how]:
                side.home.mock.push(*reply)
            if how != "cut":
                side.home.mock.push({"say": f"answer {n}"})
        return self._run(thread, f"text {n}", "failed" if how == "cut" else "completed", settings)

    def _run(self, thread: PeerThread, text: str, status: str, settings: Mapping[str, Any]) -> str | None:
        ids = []
        for side, thread_id in zip(self.sides, thread.ids, strict=True):
            side.server.forget()
            turn = side.server.turn(thread_id, text, **settings)
            if turn["status"] != status:
                return f"the turn ended {turn['status']} in {side.who}, {status} was expected: {turn.get('error')}"
            ids.append(turn["id"])
        thread.turns.append(ids)
        thread.model = settings.get("model", thread.model)
        return None

    def _with_settings(self, thread: PeerThread) -> str | None:
        return self._turn(thread, "plain", **self._settings())

    def _settings(self) -> Json:
        folder = self.cwd / f"sub-{self.random.randrange(2)}"
        folder.mkdir(exist_ok=True)
        changes: list[Json] = [
            {"model": self.random.choice(["mock-model", "other-model"])},
            {"cwd": str(folder)},
            {"sandboxPolicy": {"type": self.random.choice(["readOnly", "dangerFullAccess"])}},
            {"approvalPolicy": self.random.choice(["never", "on-request"])},
            {"effort": self.random.choice(["low", "high"])},
        ]
        chosen: Json = {}
        for change in self.random.sample(changes, self.random.randint(1, 2)):
            chosen |= change
        return chosen

    def _update(self, thread: PeerThread) -> str | None:
        settings = self._settings()
        self.told.append(f"{self.threads.index(thread)} settings {settings}")
        thread.model = settings.get("model", thread.model)
        return self._both("thread/settings/update", thread, **settings)[0]

    def _interrupt(self, thread: PeerThread) -> str | None:
        self.count += 1
        n = self.count
        after_tool = thread.tools and self.random.random() < 0.5
        self.told.append(f"{self.threads.index(thread)} turn {n} interrupted{' after a tool' * after_tool}")
        ids = []
        for side, thread_id in zip(self.sides, thread.ids, strict=True):
            side.server.forget()
            if after_tool:
                side.home.mock.push({"call": "lookup", "args": {"key": f"k{n}"}, "id": f"call_{self.seed}_{n}"})
            side.home.mock.push({"say": f"a beginning {n}", "partial": True}, {"hang": True})
            turn_id = side.server.begin(thread_id, f"text {n}")
            side.server.wait("item/agentMessage/delta", thread_id)
            side.server.call("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
            status = side.server.wait("turn/completed", thread_id)["turn"]["status"]
            if status != "interrupted":
                return f"the turn ended {status} in {side.who}"
            ids.append(turn_id)
        thread.turns.append(ids)
        return None

    def _compact(self, thread: PeerThread) -> str | None:
        self.count += 1
        self.told.append(f"{self.threads.index(thread)} compact {self.count}")
        ids = []
        for side, thread_id in zip(self.sides, thread.ids, strict=True):
            side.server.forget()
            side.home.mock.push_compact({"say": f"summary {self.count}"})
            side.server.call("thread/compact/start", {"threadId": thread_id})
            turn = side.server.wait("turn/completed", thread_id)["turn"]
            if turn["status"] != "completed":
                return f"the compaction ended {turn['status']} in {side.who}"
            ids.append(turn["id"])
        thread.turns.append(ids)
        return None

    def _inject(self, thread: PeerThread) -> str | None:
        self.count += 1
        role = self.random.choice(["user", "developer"])
        self.told.append(f"{self.threads.index(thread)} inject {self.count} as {role}")
        content = [{"type": "input_text", "text": f"put in {self.count}"}]
        item = {"type": "message", "role": role, "content": content}
        return self._both("thread/inject_items", thread, items=[item])[0]

    def _revert(self, thread: PeerThread) -> str | None:
        index = self.random.randrange(len(thread.turns))
        self.told.append(f"{self.threads.index(thread)} revert to before its turn {index}")
        before = [{"beforeTurnId": id_} for id_ in thread.turns[index]]
        difference, answers = self._both_of("thread/revert", thread, before)
        if difference is None and answers:
            del thread.turns[index:]
        return difference

    def _fork(self, thread: PeerThread) -> str | None:
        cut = self.random.choice(["whole", "last", "before"]) if thread.turns else "whole"
        kept, params = len(thread.turns), [Json(), Json()]
        if cut != "whole":
            index = self.random.randrange(kept)
            kept = index + (cut == "last")
            params = [{f"{cut}TurnId": id_} for id_ in thread.turns[index]]
        self.told.append(f"{self.threads.index(thread)} fork {cut} keeps {kept} of {len(thread.turns)}")
        given = {"excludeTurns": True, "model": thread.model}  # see INTENDED
        difference, answers = self._both_of("thread/fork", thread, [{**given, **one} for one in params])
        if difference is None and answers:
            ids = [str(answer["thread"]["id"]) for answer in answers]
            self.threads.append(PeerThread(ids, thread.mode, thread.tools, thread.turns[:kept], model=thread.model))
        return difference

    # -- asking both -----------------------------------------------------------------------------------------------

    def _both(self, method: str, thread: PeerThread, **params: Any) -> tuple[str | None, list[Json]]:
        return self._both_of(method, thread, [params, params])

    def _both_of(self, method: str, thread: PeerThread, params: list[Json]) -> tuple[str | None, list[Json]]:
        """Ask both; that one refuses what the other does is a difference, that both refuse is none."""
        answers: list[Json] = []
        refusals: list[str] = []
        for side, thread_id, own in zip(self.sides, thread.ids, params, strict=True):
            side.server.forget()
            try:
                answers.append(side.server.call(method, {"threadId": thread_id, **own}))
            except Refused as error:
                refusals.append(f"{side.who}: {error}")
        if len(refusals) == 1:
            return f"{method} was refused by one: {refusals[0]}", []
        return None, answers


def normal(request: Mapping[str, Any]) -> list[Json]:
    """A request's input without what each server words or numbers by itself."""
    items: list[Json] = []
    for item in normal_input(request):
        content = item.get("content")
        if isinstance(content, list):
            item["content"] = [normal_part(part) for part in content]
        items.append(item)
    return items


def normal_part(part: Json) -> Json:
    """A part of an item, its text as `normal_text` gives it."""
    return {**part, "text": normal_text(part["text"])} if "text" in part else part


def normal_text(text: str) -> str:
    """Without the words of interruptions and model switches, the sentence before a summary, and dates."""
    for opening in FREE_TEXTS:
        if text.startswith(opening):
            return opening
    if re.search(r"\nsummary \d+$", text):
        return "SUMMARY " + text.rsplit("\n", 1)[1]
    return re.sub(r"\d{4}-\d\d-\d\d", "DATE", text)


def differing(ours: list[list[Json]], theirs: list[list[Json]]) -> str | None:
    """What differs between the inputs, for people; None where nothing does."""
    if len(ours) != len(theirs):
        return f"{len(ours)} requests of ours, {len(theirs)} of Codex'"
    for number, (mine, yours) in enumerate(zip(ours, theirs, strict=True)):
        if mine != yours:
            return f"request {number}, " + shown(mine, yours)
    return None


def shown(mine: list[Json], yours: list[Json]) -> str:
    """Two inputs in short, and the first item that differs in full."""
    pairs = enumerate(zip(mine, yours, strict=False))
    place = next((index for index, (one, other) in pairs if one != other), min(len(mine), len(yours)))
    lines = [f"item {place} of {len(mine)} and {len(yours)}"]
    for name, items in (("ours: ", mine), ("codex:", yours)):
        lines += [f"  {name} {text[:160]}" for text in texts(items)]
        lines.append(f"  {name} {json.dumps(items[place : place + 1])[:600]}")
    return "\n".join(lines)


def live_together(seeds: range, sides: list[Side], cwd: Path, *, steps: int = STEPS) -> Figures:
    """Live many lives on one pair of servers, one step of each after the other, with one restart in the middle."""
    figures = Figures()
    lives = [PeerLife(seed, sides, cwd, figures) for seed in seeds]
    for number in range(steps):
        if number == steps // 2:
            for side in sides:
                side.restart()
            for life in lives:
                life.unload()
        for life in lives:
            life.step()
    for life in lives:
        life.step(last=True)
    return figures
