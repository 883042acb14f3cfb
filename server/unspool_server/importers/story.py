"""What was said and done in a foreign session, told as records of ours (01 §3, §5).

A story is one thread. Converters tell it what happened, in order; it keeps turns, pairs calls with their outputs and
spells the records, each with its source's time. Everything it makes up (ids) follows from the source, so the same
source always gives the same records. No I/O, no clock.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unspool_protocol.items import (
    AgentMessageItem,
    CommandExecutionItem,
    ContextCompactionItem,
    DynamicToolCallItem,
    ImageInput,
    ItemStatus,
    ReasoningItem,
    TextInput,
    UserMessageItem,
)
from unspool_protocol.log import HistoryMode, NewRecord, RecordType

from ..history.compact import compacted_record, next_window, summary_item, summary_text
from ..history.fork import interruption_marker
from ..history.state import Window
from ..sessions.records import (
    attributed,
    event_record,
    item_record,
    shown_item_record,
    task_complete,
    task_started,
    turn_aborted,
)
from .identity import derived_id, iso_time

CONTEXT_WINDOW = 272_000
"""Shown for imported turns, whose model's window is not told; the next turn of ours says its own."""

Part = Mapping[str, str]
"""A piece of a message: `{"text": …}` or `{"image": URL}`."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call whose output has not come yet."""

    name: str
    arguments: Any
    command: str | None
    cwd: str
    started_ms: int


@dataclass(slots=True)
class _Turn:
    id: str
    started_ms: int
    newest_ms: int
    last_text: str | None = None
    answered: bool = False
    failed: str | None = None
    aborted: bool = False


@dataclass(slots=True)
class _State:
    """What the records to come depend on; copied where a session branches."""

    ms: int
    turn: _Turn | None = None
    newest_turn_id: str | None = None
    calls: dict[str, OpenCall] = field(default_factory=dict)
    window: Window = field(default_factory=Window)
    model: str | None = None
    effort: str | None = None

    def copied(self) -> "_State":
        """A state that changes by itself; what it holds of calls is never changed."""
        return replace(self, turn=None if self.turn is None else replace(self.turn), calls=dict(self.calls))


class Story:
    """Collects the records of one thread in `records` until `take` fetches them.

    Args:
        scope: What ids are derived from besides the entries' own: format and session.
    """

    def __init__(self, scope: Sequence[str], thread_id: str, cwd: str, ms: int) -> None:
        self.thread_id = thread_id
        self.cwd = cwd
        self.records: list[NewRecord] = []
        self._scope = tuple(scope)
        self._state = _State(ms)
        self._key: tuple[object, ...] = ()
        self._count = 0

    def take(self) -> list[NewRecord]:
        """The records told since the last time."""
        records, self.records = self.records, []
        return records

    def state(self) -> _State:
        """How things stand now, for stories that go on from here."""
        return self._state.copied()

    def go_on(self, state: _State) -> None:
        """Go on from where another story stood."""
        self._state = state.copied()

    @property
    def ms(self) -> int:
        """The time of the newest thing told."""
        return self._state.ms

    def at(self, key: str, ms: int | None) -> None:
        """Say which entry is told next, and its time; ids of what follows come from the key."""
        self._key, self._count = (key,), 0
        if ms is not None:
            self._state.ms = ms

    def uses(self, model: str | None, effort: str | None = None) -> None:
        """Note the model for the turns to come; they say it in a member of ours."""
        self._state.model = model or self._state.model
        self._state.effort = effort or self._state.effort

    def named(self, name: str) -> None:
        """Give the thread its name."""
        self._put(event_record("thread_name_updated", thread_id=self.thread_id, thread_name=name))

    def user(self, parts: Sequence[Part], *, steers: bool = False) -> None:
        """The user says something: a new turn, or more input for the running one."""
        if not steers or self._state.turn is None:
            self._end_turn()
        turn = self._running()
        turn.answered = False
        content = [_model_part(part) for part in parts]
        shown = [TextInput(text=part["text"]) if "text" in part else ImageInput(url=part["image"]) for part in parts]
        self._item({"type": "message", "id": self._id("msg"), "role": "user", "content": content})
        self._show(UserMessageItem(id=self._id(), content=tuple(shown)))

    def context(self, parts: Sequence[Part]) -> None:
        """Something that the model was told and that the user did not say."""
        content = [_model_part(part) for part in parts]
        item = {"type": "message", "id": self._id("msg"), "role": "developer", "content": content}
        turn = self._state.turn
        self._put(item_record(item if turn is None else attributed(item, turn.id, self.ms)))

    def thinking(self, text: str) -> None:
        """The model thinks; what came encrypted or signed stays behind."""
        self._running()
        item_id = self._id("rs")
        self._show(ReasoningItem(id=item_id, summary=(text,)))
        summary = [{"type": "summary_text", "text": text}]
        self._item({"type": "reasoning", "id": item_id, "summary": summary, "content": None, "encrypted_content": None})

    def said(self, text: str, *, shown_only: bool = False) -> None:
        """The model says something."""
        turn = self._running()
        item_id = self._id("msg")
        self._show(AgentMessageItem(id=item_id, text=text))
        if not shown_only:
            content = [{"type": "output_text", "text": text}]
            self._item({"type": "message", "id": item_id, "role": "assistant", "content": content})
        turn.last_text, turn.answered = text, True

    def call(self, call_id: str, name: str, arguments: Any, *, command: str | None = None) -> bool:
        """The model calls a tool; False when a call of that id is open already."""
        state, turn = self._state, self._running()
        if call_id in state.calls:
            return False
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        item = {"type": "function_call", "id": self._id("fc"), "name": name, "arguments": text, "call_id": call_id}
        self._item(item)
        state.calls[call_id] = OpenCall(name, arguments, command, self.cwd, self.ms)
        turn.answered = False
        return True

    def result(self, call_id: str, parts: Sequence[Part], *, ok: bool, exit_code: int | None = None) -> bool:
        """A tool has answered; False when no such call is open."""
        call = self._state.calls.pop(call_id, None)
        if call is None:
            return False
        self._running()
        self._show(
            _shown_call(call_id, call, parts, ok=ok, exit_code=exit_code, ms=self.ms), started_ms=call.started_ms
        )
        texts = [part for part in parts if "text" in part]
        output: Any = [_model_part(part) for part in parts]
        if len(texts) == len(parts):
            output = "\n".join(part["text"] for part in texts)
        self._item({"type": "function_call_output", "id": self._id("fco"), "call_id": call_id, "output": output})
        return True

    def shell(self, command: str, output: str, exit_code: int | None, *, hidden: bool, cancelled: bool) -> None:
        """The user ran a command; it is no turn of the model (07 §8: contextual message)."""
        alone = self._state.turn is None or self._state.turn.answered
        if alone:
            self._end_turn()
        self._running()
        failed = cancelled or exit_code not in (0, None)
        item = CommandExecutionItem(
            id=self._id(),
            command=shlex.join(["/bin/bash", "-lc", command]),
            cwd=self.cwd,
            source="userShell",
            status=ItemStatus.FAILED if failed else ItemStatus.COMPLETED,
            aggregated_output=output,
            exit_code=exit_code,
        )
        self._show(item)
        if not hidden:
            code = "cancelled" if cancelled else exit_code if exit_code is not None else "unknown"
            result = f"<result>\nExit code: {code}\nOutput:\n{output}\n</result>"
            text = f"<user_shell_command>\n<command>\n{command}\n</command>\n{result}\n</user_shell_command>"
            content = [{"type": "input_text", "text": text}]
            self._item({"type": "message", "id": self._id("msg"), "role": "user", "content": content})
        if alone:
            self._end_turn(whole=True)

    def compacted(self, summary: str, kept: Sequence[Mapping[str, Any]]) -> None:
        """History was replaced by a summary and `kept` items; inside the running turn, or as a turn of its own."""
        state = self._state
        alone = state.turn is None or (state.turn.answered and not state.calls)
        if alone:
            self._end_turn()
        turn = self._running()
        state.window = next_window(state.window, derived_id(self.ms, *self._scope, *self._key, "window"))
        message = summary_item(summary, item_id=self._id("msg"))
        self._put(
            compacted_record(
                message=summary_text(summary),
                replacement=[message, *kept],
                window=state.window,
                previous_settings=None,
                last_started_turn_id=turn.id,
            )
        )
        self._show(ContextCompactionItem(id=self._id()))
        if alone:
            self._end_turn(whole=True)

    def interrupted(self) -> bool:
        """The user stopped the running turn; False when none was running."""
        if self._state.turn is None:
            return False
        self._item(interruption_marker(self._id("msg")))
        self._state.turn.aborted = True
        self._end_turn()
        return True

    def broke(self, message: str) -> None:
        """The model's service failed; the turn ends so unless something else follows."""
        turn = self._state.turn
        if turn is not None:
            turn.failed = message

    def finish(self) -> list[NewRecord]:
        """End the running turn and fetch the last records."""
        self._end_turn()
        return self.take()

    def _running(self) -> _Turn:
        state = self._state
        if state.turn is None:
            turn = _Turn(derived_id(state.ms, *self._scope, *self._key, "turn"), state.ms, state.ms)
            state.turn, state.newest_turn_id = turn, turn.id
            told = {"model": state.model, "effort": state.effort}
            imported = {key: value for key, value in told.items() if value is not None}
            start = task_started(turn.id, state.ms // 1000, CONTEXT_WINDOW)
            extra = {"unspool": {"imported": imported}} if imported else None
            self._put(NewRecord(start.type, start.payload, extra=extra))
        state.turn.failed = None
        return state.turn

    def _end_turn(self, *, whole: bool = False) -> None:
        """End the running turn, if there is one: complete when the model had the last word or `whole` says so."""
        state, turn = self._state, self._state.turn
        if turn is None:
            return
        times = {
            "started_at": turn.started_ms // 1000,
            "completed_at": turn.newest_ms // 1000,
            "duration_ms": max(0, turn.newest_ms - turn.started_ms),
        }
        if turn.failed is not None:
            error = {"message": turn.failed, "codex_error_info": "other"}
            end = task_complete(turn.id, turn.last_text, times, error=error)
        elif not turn.aborted and (whole or (turn.answered and not state.calls)):
            end = task_complete(turn.id, turn.last_text, times)
        else:
            end = turn_aborted(turn.id, times)
        self._put(end, turn.newest_ms)
        state.turn = None
        state.calls.clear()

    def _item(self, item: Mapping[str, Any]) -> None:
        self._put(item_record(attributed(item, self._running().id, self.ms)))

    def _show(self, item: Any, *, started_ms: int | None = None) -> None:
        self._put(
            shown_item_record(
                item,
                thread_id=self.thread_id,
                turn_id=self._running().id,
                mode=HistoryMode.PAGINATED,
                started_ms=self.ms if started_ms is None else started_ms,
                completed_ms=self.ms,
            )
        )

    def _put(self, record: NewRecord, ms: int | None = None) -> None:
        stamp = iso_time(self.ms if ms is None else ms)
        if self._state.turn is not None and ms is None:
            self._state.turn.newest_ms = self.ms
        self.records.append(
            NewRecord(record.type, record.payload, metadata=record.metadata, extra=record.extra, timestamp=stamp)
        )

    def _id(self, prefix: str = "") -> str:
        self._count += 1
        made = derived_id(self.ms, *self._scope, *self._key, self._count)
        return f"{prefix}_{made}" if prefix else made


def items_told(scope: Sequence[str], cwd: str, ms: int, tell: Callable[[Story], None]) -> list[Mapping[str, Any]]:
    """The model-visible items of a part of a session, for the replacement history of a compaction."""
    story = Story(scope, "", cwd, ms)
    tell(story)
    kept: list[Mapping[str, Any]] = []
    for record in story.take():
        if record.type == RecordType.RESPONSE_ITEM:
            item = dict(record.payload)
            item.pop("internal_chat_message_metadata_passthrough", None)
            kept.append(item)
    return kept


def _model_part(part: Part) -> dict[str, str]:
    if "image" in part:
        return {"type": "input_image", "image_url": part["image"]}
    return {"type": "input_text", "text": part["text"]}


def _shown_part(part: Part) -> dict[str, str]:
    if "image" in part:
        return {"type": "inputImage", "imageUrl": part["image"]}
    return {"type": "inputText", "text": part["text"]}


def _shown_call(
    call_id: str, call: OpenCall, parts: Sequence[Part], *, ok: bool, exit_code: int | None, ms: int
) -> CommandExecutionItem | DynamicToolCallItem:
    status = ItemStatus.COMPLETED if ok else ItemStatus.FAILED
    duration_ms = max(0, ms - call.started_ms)
    if call.command is not None:
        return CommandExecutionItem(
            id=call_id,
            command=shlex.join(["/bin/bash", "-lc", call.command]),
            cwd=call.cwd,
            status=status,
            aggregated_output="\n".join(part["text"] for part in parts if "text" in part),
            exit_code=exit_code if exit_code is not None else (0 if ok else None),
            duration_ms=duration_ms,
        )
    return DynamicToolCallItem(
        id=call_id,
        tool=call.name,
        arguments=call.arguments,
        status=status,
        content_items=tuple(_shown_part(part) for part in parts),
        success=ok,
        duration_ms=duration_ms,
    )
