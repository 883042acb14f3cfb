"""Random lives of threads on a daemon in this process: seeded, fast, compared in every view after every step.

A life is a function of its seed. Where it differs from the plain model, `LifeDiffers` tells its seed and its steps.
"""

import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from unspool_protocol.log import Position
from unspool_server.history.call_cuts import has_open_call
from unspool_server.model.offline import OfflineProvider
from unspool_server.sessions.loading import load

from tests.state.agreement import whole_log, without_spans
from tests.state.inprocess import TOOL, Client, House, Message, Refused, as_after_a_crash, house
from tests.state.life_model import LifeThread, LifeTurn, Mark, Present, Text
from tests.state.life_views import Seen, place_of, read_as, see, told_of

STEPS = 30
MOST_THREADS = 6
FAST = Path("/dev/shm")


class LifeDiffers(AssertionError):
    """A life went another way than it should have."""


async def live(seed: int, steps: int = STEPS) -> "Life":
    """Live one life to its end. Raises LifeDiffers with everything that is needed to live it again."""
    life = Life(seed)
    try:
        await life.begin()
        for _ in range(steps):
            await life.step()
    except Exception as error:
        told = "\n".join(f"  {number}. {text}" for number, text in enumerate(life.told, 1))
        raise LifeDiffers(f"seed {seed}, step {len(life.told)}: {error!r}\n{told}") from error
    finally:
        await life.end()
    return life


class Life:
    """One daemon, one client, a few threads, and what should be true of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.looking_back = random.Random(~seed)
        self.folder = Path(tempfile.mkdtemp(prefix="unspool-life-", dir=FAST if FAST.is_dir() else None))
        self.home = self.folder / "home-0"
        self.home.mkdir()
        self.stack = AsyncExitStack()
        self.threads: dict[str, LifeThread] = {}
        self.seen: dict[str, Seen] = {}
        self.told: list[str] = []
        self.texts = self.homes = 0
        self.cut_off: dict[str, dict[str, str]] = {}
        self.provider: OfflineProvider
        self.house: House
        self.client: Client

    # -- the machinery ---------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Open the first daemon."""
        await self._open()

    async def end(self) -> None:
        """Close everything and leave nothing behind."""
        try:
            await self.stack.aclose()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def step(self) -> None:
        """Do one thing that can be done now, then hold every thread's views against each other."""
        possible = [(weight, act) for weight, act in self._acts() if act is not None]
        [(_, act)] = self.random.choices(possible, [weight for weight, _ in possible])
        await act()
        await self._compare()

    async def _open(self) -> None:
        self.provider = OfflineProvider()
        opened = house(self.home, self.provider, thread_unload_delay_secs=600, model_auto_compact_token_limit=0)
        self.house = await self.stack.enter_async_context(opened)
        self.client = await self.stack.enter_async_context(self.house.client(tool=self._look))

    async def _look(self, request: Message) -> Mapping[str, Any]:
        call_id = str(request["params"]["callId"])
        return {"contentItems": [{"type": "inputText", "text": f"saw {call_id}"}], "success": not call_id.endswith("1")}

    async def _compare(self) -> None:
        for thread in self.threads.values():
            seen = await see(self.house, thread)
            if seen is None:
                continue
            self.seen[thread.id] = seen
            for turn in seen.turns:
                kept = texts_by_item(turn.model_dump(by_alias=True, mode="json"))
                for item_id, text in self.cut_off.pop(turn.id, {}).items():
                    assert kept[item_id].startswith(text), f"text of {turn.id} that was shown before a crash is gone"
            mark = Mark(seen.info.rollout_id, seen.end, thread.present)
            if not thread.marks or thread.marks[-1] != mark:
                thread.marks.append(mark)
        await self._look_back()

    async def _look_back(self) -> None:
        """An earlier point of some branch reads backwards as it reads as a whole, and clients see its turns."""
        marked = [thread for thread in self.threads.values() if thread.marks and not thread.ephemeral]
        if not marked:
            return
        thread = self.looking_back.choice(marked)
        mark = self.looking_back.choice(thread.marks)
        at = {"rolloutId": mark.rollout_id, "ordinal": mark.ordinal}
        before = await self._at(thread, at)
        assert before is not None
        bounded = await load(self.house.store, before.info, end=Position(mark.rollout_id, mark.ordinal))
        assert without_spans(bounded.state) == before.state, f"bounded reading before {at} differs from whole replay"
        assert bounded.settings == before.settings, f"settings before {at} differ from whole replay"
        read = await self._call("thread/read", thread, includeTurns=True, at=at)
        told = tuple(told_of(turn) for turn in read["thread"]["turns"])
        assert told == before.told == tuple(turn.told for turn in mark.present.turns), f"the turns before {at} differ"

    def _acts(self) -> list[tuple[int, Callable[[], Awaitable[None]] | None]]:
        """Everything that can be done, with how often; None where nothing fits."""
        return [
            (3 if self.threads else 100, self._start if len(self.threads) < MOST_THREADS - 1 else None),
            (16, self._on(self._turn, lambda t: t.open)),
            (3, self._on(self._settings, lambda t: t.open)),
            (3, self._on(self._inject, lambda t: t.open)),
            (1, self._on(self._rename, lambda t: t.kept)),
            (4, self._on(self._compact, lambda t: t.open and t.written)),
            (5, self._on(self._rollback, lambda t: t.open and t.present.counted > 0)),
            (4, self._on(self._undo, lambda t: t.open and t.written)),
            (4, self._on(self._restore, lambda t: t.open and t.written and not t.ephemeral)),
            (3, self._on(self._revert, lambda t: t.kept and t.mode == "paginated" and bool(t.present.turns))),
            (6, self._on(self._fork, lambda t: t.kept) if len(self.threads) < MOST_THREADS else None),
            (1, self._on(self._archive, lambda t: t.kept)),
            (2, self._on(self._unarchive, lambda t: t.archived)),
            (1, self._on(self._delete, lambda t: t.kept) if len(self.threads) > 3 else None),
            (1, self._on(self._ask_wrongly, lambda t: t.open)),
            (2, self._crash if self.threads else None),
            (1, self._restart if self.threads else None),
        ]

    def _on(
        self, act: Callable[[LifeThread], Awaitable[None]], which: Callable[[LifeThread], bool]
    ) -> Callable[[], Awaitable[None]] | None:
        fitting = [thread for thread in self.threads.values() if which(thread)]
        return partial(act, self.random.choice(fitting)) if fitting else None

    def _tell(self, thread: LifeThread | None, text: str) -> None:
        """Note what is about to be done, for people who have to live it again."""
        names = list(self.threads)
        self.told.append(text if thread is None else f"{thread.mode[0]}{names.index(thread.id)} {text}")

    def _text(self) -> Text:
        self.texts += 1
        return Text(f"t{self.texts}")

    async def _call(self, method: str, thread: LifeThread, **params: Any) -> Message:
        return await self.client.call(method, threadId=thread.id, **params)

    # -- starting and running --------------------------------------------------------------------------------------

    async def _start(self) -> None:
        mode, ephemeral = self.random.choice(["paginated", "legacy"]), self.random.random() < 0.15
        self.told.append(f"start {mode}{' ephemeral' * ephemeral}")
        made = await self.client.call("thread/start", historyMode=mode, ephemeral=ephemeral, dynamicTools=[TOOL])
        thread_id = made["thread"]["id"]
        self.threads[thread_id] = LifeThread(thread_id, mode, ephemeral=ephemeral, model=made["model"])

    async def _turn(self, thread: LifeThread) -> None:
        kinds = ["plain"] * 3 + ["tool", "parallel", "reason", "fail", "cut", "interrupt", "interruptTool", "steer"]
        await self._turn_of(thread, self.random.choice(kinds))

    async def _turn_of(self, thread: LifeThread, how: str, **settings: Any) -> None:
        self._tell(thread, f"turn {how} {settings or ''}")
        said: tuple[Text, ...] = (self._text(),)
        status, since = "completed", len(self.client.log)
        self.provider.script.replies += [list(reply) for reply in REPLIES.get(how, ())]
        asked = [{"type": "text", "text": said[0].text}]
        turn_id = (await self._call("turn/start", thread, input=asked, **settings))["turn"]["id"]
        if how in ("interrupt", "interruptTool", "steer"):
            await self.client.event("item/agentMessage/delta", after=since, turnId=turn_id)
        if how == "steer":
            said = (*said, self._text())
            more = [{"type": "text", "text": said[1].text}]
            await self._call("turn/steer", thread, expectedTurnId=turn_id, input=more)
        if how in ("interrupt", "interruptTool"):
            await self._call("turn/interrupt", thread, turnId=turn_id)
            status = "interrupted"
        if how in ("fail", "cut"):
            status = "failed"
        ended = await self.client.ended(turn_id)
        assert ended["status"] == status, f"the turn ended {ended['status']}"
        self.provider.script.replies.clear()
        thread.add(LifeTurn(turn_id, said, status))
        await self._assert_streamed(thread, turn_id, since)

    async def _assert_streamed(self, thread: LifeThread, turn_id: str, since: int) -> None:
        """The items that clients were told of are those that the log tells of."""
        told = [
            message["params"]["item"]
            for message in self.client.log[since:]
            if message["method"] == "item/completed" and message["params"]["turnId"] == turn_id
        ]
        place = await place_of(self.house, thread)
        assert place is not None
        if thread.ephemeral:
            return
        page = await self._call("thread/turns/list", thread, limit=1, itemsView="full", sortDirection="desc")
        [stored] = page["data"]
        assert stored["id"] == turn_id
        assert told == stored["items"], "the streamed items differ from the stored ones"
        if stored["status"] == "interrupted":
            assert shown_texts(self.client.log[since:], turn_id) == texts_by_item(stored), "text that was shown is gone"

    async def _settings(self, thread: LifeThread) -> None:
        folder = self.folder / f"cwd-{self.random.randrange(3)}"
        folder.mkdir(exist_ok=True)
        changes: list[dict[str, Any]] = [
            {"model": self.random.choice(["model-a", "model-b"])},
            {"cwd": str(folder)},
            {"effort": self.random.choice(["low", "high"])},
        ]
        if self.random.random() < 0.5:
            chosen = self.random.choice([*changes, {"sandbox": self.random.choice(["read-only", "workspace-write"])}])
            self._tell(thread, f"settings {chosen}")
            await self._call("thread/settings/update", thread, **chosen)
        else:
            policy = {"sandboxPolicy": {"type": self.random.choice(["readOnly", "dangerFullAccess"])}}
            chosen = self.random.choice([*changes, policy])
            await self._turn_of(thread, "plain", **chosen)
        thread.model = chosen.get("model", thread.model)

    async def _inject(self, thread: LifeThread) -> None:
        by_user = self.random.random() < 0.3
        self.texts += 1
        text = Text(f"injected {self.texts}", by_user)
        self._tell(thread, f"inject {'user' if by_user else 'developer'}")
        content = [{"type": "input_text", "text": text.text}]
        item = {"type": "message", "role": "user" if by_user else "developer", "content": content}
        await self._call("thread/inject_items", thread, items=[item])
        thread.present, thread.written = thread.present.with_text(text), True

    async def _rename(self, thread: LifeThread) -> None:
        thread.name = self._text().text
        self._tell(thread, f"rename {thread.name}")
        await self._call("thread/name/set", thread, name=thread.name)
        assert (await self._call("thread/read", thread))["thread"]["name"] == thread.name

    # -- transformations -------------------------------------------------------------------------------------------

    async def _compact(self, thread: LifeThread) -> None:
        if self.random.random() < 0.5:
            self._tell(thread, "compact by the model")
            since = len(self.client.log)
            await self._call("thread/compact/start", thread)
            begun = await self.client.event("turn/started", after=since, threadId=thread.id)
            ended = await self.client.ended(begun["params"]["turn"]["id"])
            assert ended["status"] == "completed"
            thread.add(LifeTurn(ended["id"]))
            return
        keep = self.random.randrange(4)
        self._tell(thread, f"compact, keep {keep}")
        answer = await self._call("thread/compact", thread, summary="In short.", keepLast=keep)
        newest = answer["thread"]["turns"][-1]
        thread.add(LifeTurn(newest["id"], keep_last=keep))

    async def _rollback(self, thread: LifeThread) -> None:
        count = self.random.randint(1, min(3, thread.present.counted))
        self._tell(thread, f"rollback {count}")
        answer = await self._call("thread/rollback", thread, numTurns=count)
        thread.cut_to(thread.present.rolled_back(count))
        assert_answer(thread, answer)

    async def _undo(self, thread: LifeThread) -> None:
        self._tell(thread, "undo")
        if thread.vague:
            answered = await (await self.client.begin("thread/rollback/undo", threadId=thread.id))
            if "result" in answered:
                thread.present = Present(await turns_in_log(self.house, thread), opaque=True)
                assert_answer(thread, answered["result"])
            return
        if not thread.past:
            refused = await self.client.refused("thread/rollback/undo", threadId=thread.id)
            assert refused.data["reason"] == "nothingToUndo"
            return
        answer = await self._call("thread/rollback/undo", thread)
        thread.bring_back()
        assert_answer(thread, answer)

    async def _restore(self, thread: LifeThread) -> None:
        """Back to the end of an earlier step, or to any record of any branch."""
        if self.random.random() < 0.5 and thread.marks:
            mark = self.random.choice(thread.marks)
            self._tell(thread, f"restore to the end of an earlier step, {mark.rollout_id}:{mark.ordinal}")
            at = {"rolloutId": mark.rollout_id, "ordinal": mark.ordinal}
            answer = await self._call("thread/restore", thread, at=at)
            thread.cut_to(mark.present)
            assert_answer(thread, answer)
            return
        branches = (await self._call("thread/branches", thread))["data"]
        branch = self.random.choice(branches)
        ordinal = self.random.randrange(branch["endOrdinal"] + 1)
        await self._restore_to(thread, {"rolloutId": branch["rolloutId"], "ordinal": ordinal})

    async def _restore_to(self, thread: LifeThread, at: Message) -> None:
        self._tell(thread, f"restore to {at['rolloutId']}:{at['ordinal']}")
        before = await self._at(thread, at)
        try:
            answer = await self._call("thread/restore", thread, at=at)
        except Refused as error:
            self._assert_refused(error, before)
            return
        assert before is not None, "a position inside the header was accepted"
        thread.cut_to(Present(before.adopted(), opaque=True))
        place = await place_of(self.house, thread)
        assert place is not None
        assert place[2] is not None
        assert place[2].history.state.history == before.state.history, "the model sees something else than was restored"
        assert [told_of(turn)[0] for turn in answer["thread"]["turns"]] == [turn.id for turn in before.turns]

    def _assert_refused(self, error: Refused, before: Seen | None) -> None:
        if error.data.get("reason") == "cutsCall":
            assert before is not None
            assert has_open_call(before.records)
        else:
            assert error.data.get("reason") == "positionInvalid", error.data
            assert before is None or len(before.records) <= 1

    async def _at(self, thread: LifeThread, at: Message) -> Seen | None:
        """What the log says before a position, by whole replay; None inside a header."""
        rollout = await self.house.store.rollout(at["rolloutId"])
        records = [record async for record in self.house.store.read(rollout.rollout_id, end=at["ordinal"])]
        header = rollout.header
        if not records:
            return None
        return read_as(rollout, [header, *(record for record in records if record.position != header.position)])

    async def _revert(self, thread: LifeThread) -> None:
        index = self.random.randrange(len(thread.present.turns))
        self._tell(thread, f"revert to before turn {index}")
        await self._call("thread/revert", thread, beforeTurnId=thread.present.turns[index].id)
        thread.cut_to(thread.present.kept(index))

    # -- forks -----------------------------------------------------------------------------------------------------

    async def _fork(self, source: LifeThread) -> None:
        cut = self.random.choice(["whole", "last", "before", "at", "mark"])
        if cut in ("last", "before") and not source.present.turns:
            cut = "whole"
        ephemeral = self.random.random() < 0.2
        before, present, named = self.seen[source.id], source.present, dict[str, Any]()
        history = before.state.history if cut == "whole" else None
        if cut in ("last", "before"):
            index = self.random.randrange(len(present.turns))
            named = {f"{cut}TurnId": present.turns[index].id}
            present = present.kept(index + (cut == "last"))
            present = Present(present.turns, present.first, opaque=source.present.opaque)
        elif cut == "at":
            at = {"rolloutId": before.info.rollout_id, "ordinal": self.random.randrange(before.end + 1)}
            await self._fork_at(source, at, ephemeral)
            return
        elif cut == "mark" and source.marks:
            mark = self.random.choice(source.marks)
            named, present = {"at": {"rolloutId": mark.rollout_id, "ordinal": mark.ordinal}}, mark.present
        self._tell(source, f"fork {cut}{' ephemeral' * ephemeral} {named}")
        child = await self._made(source, ephemeral, named)
        await self._take_in(source, child, present, history)

    async def _fork_at(self, source: LifeThread, at: Message, ephemeral: bool) -> None:
        self._tell(source, f"fork at {at['rolloutId']}:{at['ordinal']}{' ephemeral' * ephemeral}")
        before = await self._at(source, at)
        try:
            child = await self._made(source, ephemeral, {"at": at})
        except Refused as error:
            self._assert_refused(error, before)
            return
        assert before is not None, "a position inside the header was accepted"
        await self._take_in(source, child, Present(before.adopted(), opaque=True), before.state.history)

    async def _made(self, source: LifeThread, ephemeral: bool, named: Message) -> LifeThread:
        answer = await self._call("thread/fork", source, ephemeral=ephemeral, excludeTurns=ephemeral, **named)
        assert answer["thread"]["forkedFromId"] == source.id
        return LifeThread(
            answer["thread"]["id"],
            source.mode,
            ephemeral=ephemeral,
            vague=source.mode == "legacy",
            written=True,
            model=answer["model"],
            source=source.id,
        )

    async def _take_in(self, source: LifeThread, child: LifeThread, present: Present, history: Any) -> None:
        """The source is what it was; the child is the source up to the cut."""
        self.threads[child.id] = child
        child.present = present
        again = await see(self.house, source)
        assert again is not None
        assert [record.raw for record in again.records] == [record.raw for record in self.seen[source.id].records]
        place = await place_of(self.house, child)
        assert place is not None
        assert place[2] is not None
        seen = place[2].history.state.history
        if history is not None:
            assert seen[: len(history)] == history, "the child's model sees something else than its source's"
            assert len(seen) <= len(history) + 1, "the child's model sees more than its source's"
        if child.ephemeral and source.mode == "paginated" and not present.opaque:
            # It holds what the model needs, from the newest checkpoint on.
            page = await turns_in_log(self.house, child)
            kept = present.turns[len(present.turns) - len(page) :]
            child.present = Present(kept, present.first, opaque=len(kept) < len(present.turns))
        elif child.ephemeral and source.mode == "paginated":
            child.present = Present(await turns_in_log(self.house, child), opaque=True)

    # -- whole threads and the process -----------------------------------------------------------------------------

    async def _archive(self, thread: LifeThread) -> None:
        self._tell(thread, "archive")
        await self._call("thread/archive", thread)
        thread.archived = True
        await self.client.refused("thread/fork", threadId=thread.id)

    async def _unarchive(self, thread: LifeThread) -> None:
        self._tell(thread, "unarchive")
        await self._call("thread/unarchive", thread)
        thread.archived = False
        await self._resume(thread)

    async def _delete(self, thread: LifeThread) -> None:
        self._tell(thread, "delete")
        answer = await (await self.client.begin("thread/delete", threadId=thread.id))
        if "error" in answer:
            assert answer["error"]["data"]["reason"] == "dependentThreads", answer
            assert set(answer["error"]["data"]["threadIds"]) <= set(self.threads) - {thread.id}
            return
        del self.threads[thread.id]
        await self.client.refused("thread/read", threadId=thread.id)

    async def _ask_wrongly(self, thread: LifeThread) -> None:
        self._tell(thread, "ask wrongly")
        for count in (0, thread.present.counted + 1, True, "1", 1.5):
            await self.client.refused("thread/rollback", threadId=thread.id, numTurns=count)
        await self.client.refused("thread/revert", threadId=thread.id, beforeTurnId="no such turn")
        await self.client.refused("thread/fork", threadId=thread.id, lastTurnId="no such turn")
        await self.client.refused("thread/restore", threadId=thread.id, at={"ordinal": 1 << 40})
        await self.client.refused("thread/compact", threadId=thread.id, summary="s", keepLast=-1)
        await self.client.refused("thread/inject_items", threadId=thread.id, items=[{"no": "type"}])

    async def _crash(self) -> None:
        """Die between two turns or in the middle of one, and come back on what is on disk."""
        running = self._on(self._die_running, lambda t: t.open) if self.random.random() < 0.6 else None
        if running is not None:
            await running()
        else:
            self._tell(None, "crash")
        self.homes += 1
        home = as_after_a_crash(self.home, self.folder / f"home-{self.homes}")
        await self.stack.aclose()
        shutil.rmtree(self.home)
        self.home = home
        await self._reopen()

    async def _die_running(self, thread: LifeThread) -> None:
        how = self.random.choice(["interrupt", "interruptTool"])
        self._tell(thread, f"crash in a turn, {how}")
        text, since = self._text(), len(self.client.log)
        self.provider.script.replies += [list(reply) for reply in REPLIES[how]]
        turn_id = (await self._call("turn/start", thread, input=[{"type": "text", "text": text.text}]))["turn"]["id"]
        await self.client.event("item/agentMessage/delta", after=since, turnId=turn_id)
        # Items of a running turn are only accepted when they are shown; the writer is a moment behind.
        session = self.house.session(thread.id)
        if self.looking_back.random() < 0.7 and session.turn is not None:
            self._tell(None, "its text was waiting for long enough")
            await session.step(session.turn.partial_text.keep)
            self.cut_off[turn_id] = shown_texts(self.client.log[since:], turn_id)
        await session.log.flush()
        thread.add(LifeTurn(turn_id, (text,), "interrupted"))

    async def _restart(self) -> None:
        self._tell(None, "restart")
        await self.stack.aclose()
        await self._reopen()

    async def _reopen(self) -> None:
        await self._open()
        for thread in list(self.threads.values()):
            if thread.ephemeral or not thread.written:
                del self.threads[thread.id]
            elif not thread.archived:
                await self._resume(thread)

    async def _resume(self, thread: LifeThread) -> None:
        size = self._bytes_of_logs()
        answer = await self._call("thread/resume", thread)
        assert self._bytes_of_logs() == size, "resuming wrote something"
        assert_answer(thread, answer)
        assert answer["thread"]["name"] == thread.name, f"{answer['thread']['name']} is not {thread.name}"
        assert answer["thread"]["forkedFromId"] == thread.source

    def _bytes_of_logs(self) -> int:
        return sum(path.stat().st_size for path in self.home.rglob("*.jsonl"))


REPLIES: Mapping[str, list[list[dict[str, Any]]]] = {
    "tool": [[{"say": "let me see"}, {"call": "look"}]],
    "parallel": [[{"call": "look"}, {"call": "look"}, {"call": "look"}], [{"call": "look"}]],
    "reason": [[{"reason": "first think"}, {"say": "then speak"}]],
    "fail": [[{"say": "well"}, {"fail": "invalid_prompt"}]],
    "cut": [[{"call": "look"}], [{"say": "well"}, {"fail": "invalid_prompt"}]],
    "interrupt": [[{"say": "first words", "partial": True}, {"hang": True}]],
    "interruptTool": [[{"call": "look"}], [{"say": "first words", "partial": True}, {"hang": True}]],
    "steer": [[{"say": "first words", "partial": True}, {"hang": True}]],
}
"""What the model answers in each kind of turn."""


def shown_texts(messages: list[Message], turn_id: str) -> dict[str, str]:
    """What the deltas of a turn's messages add up to, by item."""
    texts: dict[str, str] = {}
    for message in messages:
        params = message["params"]
        if message["method"] == "item/agentMessage/delta" and params["turnId"] == turn_id:
            texts[params["itemId"]] = texts.get(params["itemId"], "") + params["delta"]
    return texts


def texts_by_item(turn: Message) -> dict[str, str]:
    """The texts of a turn's messages, cut off or whole, by item."""
    return {item["id"]: item["text"] for item in turn["items"] if item["type"] == "agentMessage"}


def assert_answer(thread: LifeThread, answer: Message) -> None:
    """The answer shows the turns that the plain model knows."""
    told = [told_of(turn) for turn in answer["thread"]["turns"]]
    turns = [turn.told for turn in thread.present.turns]
    assert told == turns, f"the answer's turns {told} are not those of the plain model, {turns}"


async def turns_in_log(house: House, thread: LifeThread) -> tuple[LifeTurn, ...]:
    """The turns of a loaded thread, by its whole log."""
    place = await place_of(house, thread)
    assert place is not None
    store, info, _ = place
    return read_as(info, await whole_log(store, info)).adopted()
