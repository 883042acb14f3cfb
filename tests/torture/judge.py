"""Whether what clients were told is what the log says; the first difference, in words, where it is not."""

import re
from collections.abc import Iterable, Iterator

from tests.torture.follower import Follower
from tests.torture.heard import Account, Heard, Words
from tests.torture.log_truth import Recorded, Truth

RECORDED_METHODS = frozenset(
    {
        "turn/started",
        "turn/completed",
        "item/completed",
        "thread/reverted",
        "thread/queue/changed",
        "thread/name/updated",
        "thread/tokenUsage/updated",
    }
)
"""What clients can only have been told because it is in the log."""


def objections(follower: Follower, truths: dict[str, Truth], words: Words) -> Iterator[str]:
    """What is wrong with a client's accounts: its own complaints, and the first difference of each thread."""
    yield from follower.complaints[:3]
    for thread_id, account in follower.accounts.items():
        truth = truths[thread_id]
        for objection in (*_events(account, truth, words), *_path(account, truth), *_texts(follower, account, truth)):
            yield f"thread {thread_id}: {objection}"
            break


def gathered(followers: Iterable[Follower], truths: dict[str, Truth], words: Words) -> list[str]:
    """The objections of all clients; the same one of many is told once."""
    by: dict[str, list[Follower]] = {}
    for follower in followers:
        for objection in objections(follower, truths, words):
            by.setdefault(objection, []).append(follower)
    return [f"{said[0].about}{f' and {len(said) - 1} more' if said[1:] else ''}: {what}" for what, said in by.items()]


def _events(account: Account, truth: Truth, words: Words) -> Iterator[str]:
    """Recorded events: none missing that belongs to the history of what came next, none twice, none made up."""
    before, last = -1, None
    for number, heard in enumerate(account.events):
        index = truth.index.get(heard.cursor)
        if index is None:
            if heard.method in RECORDED_METHODS:
                said = words.said(heard.mark)
                yield f"was told what the log does not say:{_beside(account.events, number)}\n  {said}"
            continue
        told = truth.events[index]
        if (told.method, told.mark) != (heard.method, heard.mark):
            yield (
                f"was told something else than the log says at {told}:\n  heard {words.said(heard.mark)}\n"
                f"  log   {words.said(told.mark)}"
            )
        if index <= before:
            yield f"was told again or too late:{_beside(account.events, number)}"
        gap = _gap(truth, before, index, last, heard)
        if gap is not None:
            yield f"was not told {truth.events[gap]} before{_beside(account.events, number)}{_around(truth, gap)}"
        before, last = index, heard
    for index in truth.present:
        if index > before:
            yield f"was not told {truth.events[index]} at the end of\n  {account.events[-3:]}{_around(truth, index)}"
            return


def _gap(truth: Truth, before: int, index: int, last: Heard | None, heard: Heard) -> int | None:
    """The first event that should have come between two others.

    Whoever was cut off is told the history of the present branch. Whoever stayed and was up to date is told everything.
    """
    stayed = last is not None and last.line == heard.line and not last.replayed
    history = truth.histories[heard.cursor.rollout_id]
    return next((i for i in range(before + 1, index) if stayed or i in history), None)


def _path(account: Account, truth: Truth) -> Iterator[str]:
    """Unrecorded events, too, never go back to a branch that was left."""
    order = {rollout_id: number for number, rollout_id in enumerate(truth.rollouts)}
    unknown = [rollout_id for rollout_id in account.path if rollout_id not in order]
    ranks = [order[rollout_id] for rollout_id in account.path if rollout_id in order]
    if unknown or ranks != sorted(set(ranks)):
        yield f"went from branch to branch as {account.path}, which are in order {truth.rollouts}"


def _texts(follower: Follower, account: Account, truth: Truth) -> Iterator[str]:
    """Deltas are pieces of the final text from its beginning; whoever lets them be dropped has some of them, in order.

    Of a turn that was cut off by the end of the process the log may have less than was shown.
    """
    for (turn_id, item_id), pieces in account.texts.items():
        final, text = truth.texts.get((turn_id, item_id)), "".join(pieces)
        cut_off = truth.turns.get(turn_id) == "interrupted"
        if final is None:
            if not cut_off and turn_id in truth.turns and truth.inputs.get(turn_id, 0) < 2:
                yield f"was shown {_short(text)} of an item {item_id} that the log does not have"
        elif follower.slow == "drop" and not cut_off:
            place = 0
            for piece in pieces:
                place = final.find(piece, place)
                if place < 0:
                    yield f"was shown {_short(piece)}, which is not in {_short(final)} at its place"
                    break
                place += len(piece)
        elif follower.slow != "drop" and not (final.startswith(text) or (cut_off and text.startswith(final))):
            yield f"was shown {_short(text)}, the log says {_short(final)} (item {item_id}, {truth.turns.get(turn_id)})"


def _beside(events: list[Heard], number: int) -> str:
    shown = events[max(0, number - 2) : number + 2]
    return "".join(f"\n  {'>' if event is events[number] else ' '} heard {event}" for event in shown)


def _around(truth: Truth, index: int) -> str:
    shown: list[Recorded] = truth.events[max(0, index - 2) : index + 3]
    return "".join(f"\n    log {event}" for event in shown)


def _short(text: str) -> str:
    """A text for a report: without the filling of long words."""
    return repr(re.sub("-{20,}", "…", text))[:600]
