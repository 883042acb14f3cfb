"""What the demo does, chapter by chapter: one thread's life, a crash, a second client, and an old Codex log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unspool_client import Client, Event, ThreadHandle

from unspool_server.cli.compacting import compact_by_model
from unspool_server.cli.demo_checks import (
    ask,
    facts,
    last_summary,
    logs,
    only_grown,
    place_codex_log,
    said,
    shown,
    tokens_sent,
)
from unspool_server.cli.demo_daemon import DaemonProcess, running_daemon
from unspool_server.cli.demo_telling import Telling

QUESTIONS = (
    "Plan a balcony garden with me. It gets sun until noon.",
    "How much room is there? Measure the balcony.",
    "What shall I plant first?",
    "And in autumn?",
)
ANSWERS = (
    "Morning sun is plenty for salads and herbs. Think of lettuce, chard, parsley and mint, and one strawberry pot.",
    "The railing takes six boxes and the floor eight pots, if the door shall still open.",
    "Sow lettuce now, every two weeks a little, and set the parsley beside it.",
    "Then lamb's lettuce and spinach: both stand frost, and both like it cool.",
)
OTHER_QUESTION = "Let us plan it with tomatoes instead."
OTHER_ANSWER = "Tomatoes want sun all day. Take the wall that faces south, and a big pot."
LONG_QUESTION = "Write me the whole plan for the year."
LONG_ANSWER = "January: order seeds. February: clean pots. March: fill the boxes with new soil and sow the first"
NAME = "Balcony"
LATE_QUESTION = "Where were we?"
LATE_ANSWER = "You asked for the whole year, and I was cut off in March."
OLD_QUESTION = "What did you run for me back then?"
OLD_ANSWER = "Two commands: echo one, and echo two, which failed with status 3 as it was meant to."

TOOL = {
    "name": "measure",
    "description": "Measure a place.",
    "inputSchema": {"type": "object", "properties": {"place": {"type": "string"}}},
}
MEASURED = "\n".join(f"railing mark {mark:2}: {mark * 25} cm from the door, free" for mark in range(1, 25))

PASSING = frozenset(
    {
        "item/agentMessage/delta",
        "item/started",
        "thread/started",
        "thread/status/changed",
        "thread/readState/changed",
        "thread/reverted",
        "serverRequest/resolved",
    }
)
"""Kinds of events that a replay after a restart may leave out: what a later event says whole, and what is no more."""

PIECES_BEFORE_KILL = 9
COMMANDS = ["echo one", "echo two; exit 3"]


@dataclass(slots=True)
class Story:
    """What chapters hand on."""

    telling: Telling
    home: Path
    seen: list[Event] = field(default_factory=list)
    thread_id: str = ""
    cut_turn: str = ""


async def tell(telling: Telling, home: Path) -> None:
    """Run all chapters. Raises ClaimFailed at the first claim that does not hold."""
    story = Story(telling, home)
    telling.say(
        "Unspool keeps conversations with a language model (threads) in append-only logs and serves them to any number "
        "of clients. Here the model is a built-in one that needs no network. A tick means: looked, and it is so."
    )
    async with running_daemon(home, _replies_before()) as daemon:
        telling.chapter("Start")
        telling.say(f"The daemon runs as process {daemon.process.pid} and listens on {daemon.url}.")
        async with daemon.client("demo-first") as client:
            await _first_life(story, daemon, client)
    old_log = place_codex_log(home)
    async with running_daemon(home, [[{"say": LATE_ANSWER}], [{"say": OLD_ANSWER}]]) as daemon:
        await _after_the_crash(story, daemon)
        await _second_client(story, daemon)
        await _old_codex_log(story, daemon, old_log)
        telling.chapter("End")
        telling.claim(await daemon.stop() == 0, "Asked to end, the daemon ends in order (status 0).")


def _replies_before() -> list[list[dict[str, Any]]]:
    measuring = [{"call": TOOL["name"], "args": {"place": "balcony"}}]
    answers: list[list[dict[str, Any]]] = [[{"say": answer}] for answer in ANSWERS]
    cut: list[dict[str, Any]] = [{"say": LONG_ANSWER, "partial": True}, {"hang": True}]
    return [answers[0], measuring, answers[1], answers[2], answers[3], [{"say": OTHER_ANSWER}], cut]


async def _first_life(story: Story, daemon: DaemonProcess, client: Client) -> None:
    client.on_notification(story.seen.append)
    thread = await _turns(story, client)
    await _compact(story, thread)
    await _fork(story, client, thread)
    await _rollback(story, thread)
    await _kill(story, daemon, thread)


async def _turns(story: Story, client: Client) -> ThreadHandle:
    telling, calls = story.telling, []

    async def measure(params: dict[str, Any]) -> Mapping[str, Any]:
        calls.append(params["arguments"])
        return {"contentItems": [{"type": "inputText", "text": MEASURED}], "success": True}

    client.on_request("item/tool/call", measure)
    thread = await client.start_thread(cwd=str(story.home), dynamic_tools=[TOOL])
    story.thread_id = thread.id
    telling.chapter("A thread and its first turns")
    telling.say("A turn is a question and all that the model does to answer it. Answers arrive word by word.")
    for question, answer in zip(QUESTIONS[:3], ANSWERS[:3], strict=True):
        asked = await ask(telling, thread, question)
        telling.claim(
            asked.ok and asked.text == answer and "".join(asked.pieces) == answer and len(asked.pieces) > 1,
            f"{len(asked.pieces)} pieces came in one after another; together they are the answer.",
        )
    telling.claim(
        calls == [{"place": "balcony"}],
        "In the second turn the model asked this client to run its tool `measure`, once, and got the result.",
    )
    return thread


async def _compact(story: Story, thread: ThreadHandle) -> None:
    telling = story.telling
    telling.chapter("Compact")
    telling.say(
        "Long threads get expensive: every question is sent with all that came before. Compacting puts a summary in "
        "its place, for the model. People still see everything."
    )
    before, sent_before = await shown(thread), tokens_sent(story.seen)
    await compact_by_model(thread)
    summary = last_summary(story.home, thread.id)
    told = [question for question in QUESTIONS[:3] if question in summary]
    telling.claim(len(told) == 3, "The summary, written by the model, tells of all three questions.")
    asked = await ask(telling, thread, QUESTIONS[3])
    sent_now = tokens_sent(story.seen)
    telling.claim(
        asked.ok and sent_now < sent_before,
        f"That question was sent with {sent_now} tokens; the one before the summary took {sent_before}.",
    )
    after = await shown(thread)
    telling.claim(after[: len(before)] == before, "Readers of the thread still see every earlier turn in full.")


async def _fork(story: Story, client: Client, thread: ThreadHandle) -> None:
    telling = story.telling
    telling.chapter("Fork")
    telling.say("A fork is a new thread that shares the past of another one up to a turn.")
    before, files_before = await shown(thread), logs(story.home)
    fork = await client.fork_thread(thread.id, last_turn_id=before[0]["id"])
    asked = await ask(telling, fork, OTHER_QUESTION)
    forked = await shown(fork)
    telling.claim(
        asked.ok and said(forked) == [QUESTIONS[0], OTHER_QUESTION],
        "The fork holds the first turn of its parent and its own new one.",
    )
    telling.claim(await shown(thread) == before, "The parent did not notice.")
    (path,) = [path for path in logs(story.home) if path not in files_before]
    telling.claim(
        before[0]["id"].encode() not in path.read_bytes(),
        f"Its log ({path.stat().st_size / 1024:.1f} KB) points at the parent's; nothing was copied.",
    )


async def _rollback(story: Story, thread: ThreadHandle) -> None:
    telling = story.telling
    telling.chapter("Roll back, and undo that")
    before, files_before = await shown(thread), logs(story.home)
    await thread.rollback(2)
    rolled = await shown(thread)
    telling.claim(
        rolled == before[:2],
        "Two turns rolled back: they are gone, and so is the summary that was made between them.",
    )
    await thread.undo_rollback()
    telling.claim(await shown(thread) == before, "Undone: the thread is as it was, item for item.")
    telling.claim(
        only_grown(files_before, logs(story.home)),
        "For neither was a byte of any log changed or removed; both only wrote something new.",
    )


async def _kill(story: Story, daemon: DaemonProcess, thread: ThreadHandle) -> None:
    telling = story.telling
    telling.chapter("Kill the daemon in mid-sentence")
    telling.quote("you", LONG_QUESTION)
    async with thread.events("now") as stream:
        story.cut_turn = (await thread.start_turn(LONG_QUESTION)).id
        pieces = 0
        async for event in stream:
            if event.method == "item/agentMessage/delta":
                telling.piece(event.params["delta"], first="" if pieces else "model")
                pieces += 1
                if pieces == PIECES_BEFORE_KILL:
                    # A name is answered once it is written, and all that came before it too (02 §4).
                    await thread.set_name(NAME)
            elif event.method == "thread/name/updated":
                break
    status = await daemon.kill()
    telling.end_pieces("— kill -9")
    telling.claim(
        status == -9, "The daemon is dead, with a turn running; it could neither say goodbye nor save anything."
    )


async def _after_the_crash(story: Story, daemon: DaemonProcess) -> None:
    telling = story.telling
    telling.chapter("Start again and resume")
    telling.say(f"A new daemon, process {daemon.process.pid}, on the same home.")
    async with daemon.client("demo-first") as client:
        thread = await client.resume_thread(story.thread_id)
        turns = await shown(thread)
        telling.claim(
            said(turns) == [*QUESTIONS, LONG_QUESTION],
            "Every question is there, the one that was being answered too.",
        )
        cut = turns[-1]
        telling.claim(
            cut["id"] == story.cut_turn and cut["status"] == "interrupted" and thread.info.name == NAME,
            f"The turn that was cut off is shown as interrupted. The name “{NAME}”, given just before, is there.",
        )
        asked = await ask(telling, thread, LATE_QUESTION)
        telling.claim(asked.ok, "The thread goes on.")


async def _second_client(story: Story, daemon: DaemonProcess) -> None:
    telling = story.telling
    telling.chapter("Replay the past to a second client")
    telling.say("Every event has a place (cursor) in its thread. A client may ask for all events behind any place.")
    async with daemon.client("demo-second") as client:
        thread = await client.resume_thread(story.thread_id)
        replayed: list[Event] = []
        async with thread.events() as stream:
            async for event in stream:
                item = event.params.get("item") or {}
                if event.turn_id == story.cut_turn and (item.get("partial") or event.method == "turn/completed"):
                    break  # how the turn was cut off is news to the first client as well
                if event.cursor is not None:  # what has no place is told of every opening anew
                    replayed.append(event)
    lived = [event for event in story.seen if event.thread_id == story.thread_id]
    kept = {event.cursor for event in replayed}
    shared = [event for event in lived if event.cursor in kept]
    left_out = {event.method for event in lived if event.cursor not in kept}
    telling.claim(
        bool(shared) and facts(shared) == facts(replayed),
        f"It got {len(replayed)} events that the first client saw live before the crash: same order, same places, "
        "same content.",
    )
    telling.claim(
        left_out <= PASSING,
        "Left out was only what has passed: single words of messages that came whole, “busy” and “idle”.",
    )


async def _old_codex_log(story: Story, daemon: DaemonProcess, path: Path) -> None:
    telling = story.telling
    telling.chapter("Go on with a thread of the real Codex")
    telling.say("This log was written by Codex 0.171.0 and ships with Unspool.")
    old = logs(story.home)[path]
    thread_id = path.stem[-36:]
    async with daemon.client("demo-first") as client:
        thread = await client.resume_thread(thread_id, model_provider="offline", model="offline-echo")
        turns = await shown(thread)
        ran = [item["command"] for turn in turns for item in turn["items"] if item["type"] == "commandExecution"]
        telling.claim(
            said(turns) == ["use a tool", "plain"] and [command.split("'")[1] for command in ran] == COMMANDS,
            f"It shows its {len(turns)} turns, and the {len(ran)} commands that Codex ran: {', '.join(COMMANDS)}.",
        )
        asked = await ask(telling, thread, OLD_QUESTION)
        telling.claim(asked.ok and (await shown(thread))[:2] == turns, "A new turn was added behind the old ones.")
        await compact_by_model(thread)
        summary = last_summary(story.home, thread_id)
        telling.claim(
            all(text in summary for text in ("use a tool", "plain", OLD_QUESTION)),
            "Asked for a summary, the model tells of the old questions too: it was sent the whole past.",
        )
    new = logs(story.home)[path]
    telling.claim(
        new.startswith(old) and len(new) > len(old),
        f"The old {len(old)} bytes of that file are untouched; {new[len(old) :].count(10)} lines were appended.",
    )
