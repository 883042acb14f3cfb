"""One streamed response of the model within a turn: items are recorded, deltas are shown.

Knows nothing of what happens between two requests (`turn.py`) nor how a call is run (`tools.py`).
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from unspool_protocol.items import AgentMessageItem, ReasoningItem, WebSearchItem
from unspool_protocol.log import NewRecord

from unspool_server.history.prompt import base_item, prompt_items
from unspool_server.model.contract import (
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    ResponseDone,
    TextDelta,
)
from unspool_server.sessions.clock import new_id, now_ms
from unspool_server.sessions.model_calls import asked
from unspool_server.sessions.records import item_record
from unspool_server.sessions.tools.calls import note_call
from unspool_server.sessions.tools.toolbox import Toolbox
from unspool_server.sessions.usage import usage_records

if TYPE_CHECKING:
    from unspool_server.sessions.session import Session
    from unspool_server.sessions.turn import Turn


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
            **changes,
        }
    )


class Sampling:
    """Runs one request for a turn."""

    def __init__(self, turn: "Turn") -> None:
        self._turn = turn
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
            await self._turn.session.step(self._turn.partial_text.keep)
            self._turn.live.clear()
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _stream(self) -> None:
        turn = self._turn
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
        match item.get("type"):
            case "message":
                shown: Any = AgentMessageItem(id=str(item.get("id")), text="", phase=item.get("phase"))
            case "reasoning":
                shown = ReasoningItem(id=str(item.get("id")), summary=(), content=())
            case _:
                return
        self._turn.show_started(shown)

    def _text_delta(self, item_id: str, delta: str) -> None:
        if item_id not in self._turn.live:
            self._announce({"type": "message", "id": item_id})
        live = self._turn.live[item_id]
        self._turn.report.shown()
        live.item["text"] = live.item.get("text", "") + delta
        self._turn.session.publish(
            "item/agentMessage/delta", {"turnId": self._turn.id, "itemId": item_id, "delta": delta}
        )
        self._turn.partial_text.grew()

    def _reasoning_delta(self, event: ReasoningDelta) -> None:
        if event.item_id not in self._turn.live:
            self._announce({"type": "reasoning", "id": event.item_id})
        summary = event.kind == "summary"
        parts = self._turn.live[event.item_id].item.setdefault("summary" if summary else "content", [])
        while len(parts) <= event.index:
            parts.append("")
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
        if not isinstance(item.get("id"), str) or not item["id"]:
            item = {**item, "id": f"{_PREFIXES.get(str(item.get('type')), 'item')}_{new_id()}"}
        live = turn.live.pop(item["id"], None)
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
        await self._turn.session.record(*usage_records(self._turn, done))


_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _texts(parts: Any, key: str = "text") -> list[str]:
    return [part[key] for part in parts or () if isinstance(part, Mapping) and isinstance(part.get(key), str)]


def _shown(item: Mapping[str, Any]) -> AgentMessageItem | ReasoningItem | WebSearchItem | None:
    """What clients see of a finished output item; calls are shown by whoever runs them."""
    match item.get("type"):
        case "message" if item.get("role") == "assistant":
            return AgentMessageItem(id=item["id"], text="".join(_texts(item.get("content"))), phase=item.get("phase"))
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
