"""Random lives of threads: every point that was ever the present reads, later, exactly as live memory was then."""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import example, given, settings
from unspool_protocol.positions import LogPosition
from unspool_server.history.reconstruct import reconstruct
from unspool_server.history.state import Reconstruction
from unspool_server.sessions.views.positions import resolve

from tests.examples import examples
from tests.interaction.test_time_travel import MODES, begin, end
from tests.state.agreement import assert_memory_is_the_log, without_spans
from tests.state.inprocess import Client, House, Message, Refused, house

STEP = st.tuples(
    st.sampled_from(
        ["turn", "turn", "tool", "fail", "rollback", "undo", "compact", "settings", "restore", "restore", "reopen"]
    ),
    st.integers(0, 9),
)


@dataclass
class Life:
    """One thread, and what was its present after each step."""

    thread_id: str
    past: list[tuple[Message, Reconstruction, list[Message]]] = field(default_factory=list)


async def shown(client: Client, thread_id: str, at: Message | None = None) -> list[Message]:
    more = {} if at is None else {"at": at}
    read = await client.call("thread/read", threadId=thread_id, includeTurns=True, **more)
    turns: list[Message] = read["thread"]["turns"]
    return turns


async def step(home: House, client: Client, life: Life, what: str, number: int) -> None:
    thread_id = life.thread_id
    script = home.services.env.providers.get("offline").script  # type: ignore[attr-defined]
    match what:
        case "tool":
            script.replies.append([{"say": "let me see"}, {"call": "look"}, {"call": "look"}])
        case "fail":
            script.replies.append([{"say": "well"}, {"fail": "invalid_prompt"}])
        case "rollback":
            await client.call("thread/rollback", threadId=thread_id, numTurns=1 + number % 3)
            return
        case "undo":
            await client.call("thread/rollback/undo", threadId=thread_id)
            return
        case "compact":
            await client.call("thread/compact", threadId=thread_id, summary=f"summary {number}", keepLast=number % 3)
            return
        case "settings":
            await client.call("thread/settings/update", threadId=thread_id, model=f"model-{number % 3}")
            return
        case "restore":
            await _restore(home, client, life, number)
            return
    await client.turn(thread_id, f"said {number}")


async def _restore(home: House, client: Client, life: Life, number: int) -> None:
    at, then, turns = life.past[number % len(life.past)]
    restored = await client.call("thread/restore", threadId=life.thread_id, at=at)
    assert restored["thread"]["turns"] == turns
    context = await client.call("thread/context", threadId=life.thread_id)
    before = await client.call("thread/context", threadId=life.thread_id, at=at)
    assert [one["item"] for one in context["items"]] == [one["item"] for one in before["items"]]
    assert context["previousTurnSettings"] == before["previousTurnSettings"]
    now = home.session(life.thread_id).history.state
    assert (now.history, now.previous_settings) == (then.history, then.previous_settings)


async def note(home: House, client: Client, life: Life) -> None:
    """Remember the present, once memory and log were found to agree."""
    await assert_memory_is_the_log(home, life.thread_id)
    state = without_spans(home.session(life.thread_id).history.state)
    life.past.append((end(home, life.thread_id), state, await shown(client, life.thread_id)))


async def look_back(home: House, client: Client, life: Life) -> None:
    """Every remembered point reads as it was; every place of every rollout reads the same bounded and as a whole."""
    info = await home.store.find(life.thread_id)
    for at, state, turns in life.past:
        point = await resolve(home.store, info, LogPosition.model_validate(at))
        assert without_spans((await point.history(home.store)).state) == state
        assert await shown(client, life.thread_id, at) == turns
    for rollout in await home.store.rollouts(life.thread_id):
        own = [record async for record in home.store.read(rollout.rollout_id)]
        for record in own:
            if record.rollout_id != rollout.rollout_id or record.type == "session_meta":
                continue
            place = LogPosition(rollout_id=rollout.rollout_id, ordinal=record.ordinal)
            point = await resolve(home.store, info, place)
            header = point.info.header
            assert header is not None
            before = [one async for one in point.records(home.store)]
            whole = [header, *(one for one in before if one.position != header.position)]
            bounded = await point.history(home.store)
            assert without_spans(bounded.state) == without_spans(reconstruct(whole, point.info.mode))


async def live(folder: Path, mode: str, steps: list[tuple[str, int]]) -> None:
    life: Life | None = None
    left: list[tuple[str, int]] = [("turn", 0), *steps, ("look", 0)]
    while left:
        async with house(folder, thread_unload_delay_secs=600) as home, home.client() as client:
            if life is None:
                life = Life(await begin(client, mode))
            else:
                await client.call("thread/resume", threadId=life.thread_id, excludeTurns=True)
            while left:
                what, number = left.pop(0)
                if what == "reopen":
                    break
                if what == "look":
                    await look_back(home, client, life)
                    continue
                try:
                    await step(home, client, life, what, number)
                except Refused as refused:
                    assert refused.data["reason"] in ("turnsOutOfRange", "nothingToUndo"), refused.data
                await note(home, client, life)


DEEP: list[tuple[str, int]] = [
    ("turn", 1), ("rollback", 0), ("turn", 2), ("undo", 0), ("restore", 3), ("compact", 1), ("turn", 3), ("restore", 1),
    ("undo", 0), ("undo", 0), ("rollback", 1), ("tool", 4), ("reopen", 0), ("undo", 0), ("restore", 9), ("rollback", 0),
]  # fmt: skip


@settings(max_examples=examples(4), deadline=None)
@given(st.sampled_from(MODES), st.lists(STEP, max_size=10))
@example("paginated", DEEP)
@example("legacy", DEEP)
def test_every_point_that_was_the_present_reads_as_it_was(mode: str, steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory(prefix="unspool-lives-") as folder, asyncio.Runner(debug=True) as runner:
        runner.run(live(Path(folder), mode, steps))


def test_positions_are_compared_as_they_are_on_the_wire() -> None:
    at: dict[str, Any] = {"rolloutId": "r", "ordinal": 3}
    assert LogPosition.model_validate(at).model_dump(by_alias=True) == at
