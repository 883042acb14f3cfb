"""What the model says within a turn: items are recorded, deltas are shown, a broken stream is asked for again.

Knows nothing of what happens between two requests (`turn.py`) nor how a call is run (`tools/`).
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from unspool_protocol.items import AgentMessageItem, ReasoningItem, WebSearchItem
from unspool_protocol.log import NewRecord

from unspool_server.errors import ModelError
from unspool_server.history.prompt import base_item, prompt_items
from unspool_server.model.contract import (
    ITEM_PREFIXES,
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    ResponseDone,
    TextDelta,
)
from unspool_server.sessions.clock import new_id, now_ms
from unspool_server.sessions.records import item_record
from unspool_server.sessions.tools.calls import note_call, run_calls
from unspool_server.sessions.tools.toolbox import Toolbox
from unspool_server.sessions.turns.model_calls import asked
from unspool_server.sessions.turns.retries import StreamRetries
from unspool_server.sessions.turns.usage import usage_records

if TYPE_CHECKING:
    from unspool_server.sessions.session import Session
    from unspool_server.sessions.turns.turn import Turn


def model_request(session: "Session", *, settings: Any, **changes: Any) -> ModelRequest:
    """The request for the thread as it is now (06 §1)."""
    state = session.history.state
    return ModelRequest(
        **{
            "model": settings.model,
            "input": [base_item(session.facts.base_instructions), *prompt_items(state.history)],
            "cache_key": session.thread_id,
            "window_id": f"{session.thread_id}:{state.window.number}",
            "tools": Toolbox(session).declarations(),
            "effort": settings.effort,
            "summary": settings.summary if settings.summary != "none" else None,
            **changes,
        }
    )


async def sample(turn: "Turn") -> None:
    """One answer of the model; a steer may cut it short (`wire` §6, turn/steer). Raises ModelError.

    When a stream breaks, what was finished stays, and calls among it are run, so that history has their outputs
    (07 §9); the model never sees the item that was not finished. Then it is asked again with all that, as often as its
    provider allows. A steer or an interrupt ends the wait as it ends a stream.
    """
    retries, wait_s = StreamRetries(turn), 0.0
    while True:
        turn.sampling = Sampling(turn, wait_s)
        try:
            return await turn.sampling.run()
        except ModelError as error:
            turn.sampling = None
            await run_calls(turn)
            again_s = retries.next_delay_s(error)
            if again_s is None:
                raise
            wait_s = again_s
            await turn.session.step(turn.take_in_round)
        finally:
            turn.sampling = None


class Sampling:
    """Runs one request for a turn.

    Args:
        wait_s: Seconds to wait before it is sent.
    """

    def __init__(self, turn: "Turn", wait_s: float = 0.0) -> None:
        self._turn = turn
        self._wait_s = wait_s
        self._shown: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._cut = False

    def cut(self) -> None:
        """End the request early because new input arrived; finished items stay."""
        self._cut = True
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Stream the response to its end, or until it is cut. Raises ModelError."""
        self._task = asyncio.create_task(self._stream(), name=f"sampling-{self._turn.id}")
        try:
            await self._task
        except asyncio.CancelledError:
            if not self._cut or not self._task.cancelled() or _being_cancelled():
                await self._stop()
                raise
            await self._keep_unfinished()
        except ModelError:
            await self._keep_unfinished()
            raise
        except BaseException:
            await self._stop()
            raise

    async def _keep_unfinished(self) -> None:
        """Items that clients were told of and that will never be whole: their text is kept, they are over."""
        await self._turn.session.step(self._turn.partial_text.keep)
        for item_id in self._shown:
            self._turn.live.pop(item_id, None)

    async def _stop(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _stream(self) -> None:
        turn = self._turn
        if self._wait_s:
            await turn.session.env.providers.sleep(self._wait_s)
        request = model_request(turn.session, settings=turn.plan.settings, output_schema=turn.plan.output_schema)
        name = turn.plan.settings.model_provider
        async with aclosing(asked(turn.session.env.providers.get(name), request, name)) as events:
            async for event in events:
                await self._take(event)

    async def _take(self, event: ModelEvent) -> None:
        turn = self._turn
        match event:
            case ItemStarted():
                self._announce(event.item)
            case TextDelta():
                self._text_delta(event.item_id, event.delta)
            case ReasoningDelta():
                self._reasoning_delta(event)
            case ItemDone():
                await turn.session.step(partial(self._record_item, event.item))
            case ResponseDone():
                await turn.session.step(partial(self._record_usage, event))

    def _announce(self, item: Mapping[str, Any]) -> None:
        item_id = item.get("id")
        if not isinstance(item_id, str) or not item_id or item_id in self._turn.live:
            return
        match item.get("type"):
            case "message":
                shown: Any = AgentMessageItem(id=item_id, text="", phase=_phase(item))
            case "reasoning":
                shown = ReasoningItem(id=item_id, summary=(), content=())
            case _:
                return
        self._shown.add(item_id)
        self._turn.show_started(shown)

    def _text_delta(self, item_id: str, delta: str) -> None:
        self._announce({"type": "message", "id": item_id})
        live = self._turn.live.get(item_id)
        if live is None:  # a delta of no item
            return
        self._turn.report.shown()
        live.item["text"] = live.item.get("text", "") + delta
        self._turn.session.publish(
            "item/agentMessage/delta", {"turnId": self._turn.id, "itemId": item_id, "delta": delta}
        )
        self._turn.partial_text.grew()

    def _reasoning_delta(self, event: ReasoningDelta) -> None:
        self._announce({"type": "reasoning", "id": event.item_id})
        live = self._turn.live.get(event.item_id)
        if live is None or not 0 <= event.index < MAX_REASONING_PARTS:
            return
        summary = event.kind == "summary"
        parts = live.item.setdefault("summary" if summary else "content", [])
        while len(parts) <= event.index:
            if summary:
                place = {"turnId": self._turn.id, "itemId": event.item_id, "summaryIndex": len(parts)}
                self._turn.session.publish("item/reasoning/summaryPartAdded", place)
            parts.append("")
        if not event.delta:
            return
        parts[event.index] += event.delta
        self._turn.session.publish(
            "item/reasoning/summaryTextDelta" if summary else "item/reasoning/textDelta",
            {
                "turnId": self._turn.id,
                "itemId": event.item_id,
                "delta": event.delta,
                ("summaryIndex" if summary else "contentIndex"): event.index,
            },
        )
        self._turn.partial_text.grew()

    async def _record_item(self, item: Mapping[str, Any]) -> None:
        turn, stamp = self._turn, now_ms()
        if not item.get("id") and (prefix := ITEM_PREFIXES.get(str(item.get("type")))) is not None:
            item = {**item, "id": f"{prefix}_{new_id()}"}
        live = turn.live.pop(str(item.get("id")), None)
        records: list[NewRecord] = []
        if (shown := _shown(item)) is not None:
            if live is None:
                turn.show_started(shown)
                live = turn.live.pop(item["id"])
            records.append(turn.item_event(shown, live.started_at_ms, stamp))
            if isinstance(shown, AgentMessageItem):
                turn.last_message = shown.text
        records.append(item_record(turn.attributed(item)))
        await turn.session.record(*records)
        note_call(turn, item)

    async def _record_usage(self, done: ResponseDone) -> None:
        """What was used is told behind the calls of the response, whose outputs come first (`wire` §4)."""
        turn = self._turn
        records = usage_records(turn, done)
        if turn.calls:
            turn.untold = records[1:]
            records = records[:1]
        await turn.session.record(*records)


MAX_REASONING_PARTS = 1000
"""Parts of one reasoning item that are shown while it is written; an index beyond is a fault of the service."""


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _texts(parts: Any) -> list[str]:
    """The texts of content parts; a refusal is told in a part of its own kind."""
    found = [part.get("text", part.get("refusal")) for part in _list(parts) if isinstance(part, Mapping)]
    return [text for text in found if isinstance(text, str)]


def _list(parts: Any) -> list[Any]:
    return parts if isinstance(parts, list) else []


def _phase(item: Mapping[str, Any]) -> str | None:
    phase = item.get("phase")
    return phase if isinstance(phase, str) else None


def _shown(item: Mapping[str, Any]) -> AgentMessageItem | ReasoningItem | WebSearchItem | None:
    """What clients see of a finished output item; calls are shown by whoever runs them."""
    match item.get("type"):
        case "message" if item.get("role") == "assistant":
            return AgentMessageItem(id=item["id"], text="".join(_texts(item.get("content"))), phase=_phase(item))
        case "reasoning":
            return ReasoningItem(
                id=item["id"],
                summary=tuple(_texts(item.get("summary"))),
                content=tuple(_texts(item.get("content"))),
            )
        case "web_search_call":
            action = item.get("action")
            query = action.get("query") if isinstance(action, Mapping) else None
            return WebSearchItem(id=item["id"], query=query if isinstance(query, str) else "")
    return None
