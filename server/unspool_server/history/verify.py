"""Checks of what a log says, record by record: pairs of calls and outputs, turns without an end, unknown types.

Pure, and bounded in memory: of the past it keeps calls and turns that are still open. Bytes, numbers and references
are checked below `store/`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from unspool_protocol.finding_words import finding
from unspool_protocol.findings import Finding
from unspool_protocol.log import Record, RecordType
from unspool_protocol.records import EVENTS, LOST_RECORDS

from .checkpoints import checkpoint_of, is_invalid_checkpoint
from .event_shapes import TURN_ENDS, TURN_STARTS
from .fields import flag_of, text_of
from .prompt import OUTPUT_OF

MAX_OPEN = 10_000
"""Calls, outputs and turns remembered at a time; beyond that the oldest is reported as it stands."""

_RECORDS = frozenset({*RecordType, "forked", LOST_RECORDS})
_ITEMS = frozenset(
    {
        *OUTPUT_OF,
        *OUTPUT_OF.values(),
        *("message", "reasoning", "web_search_call", "image_generation_call", "agent_message", "ghost_snapshot"),
        *("compaction", "compaction_summary", "context_compaction", "additional_tools"),
    }
)
_PASSED_EVENTS = frozenset(
    [
        "agent_reasoning_raw_content",
        "agent_reasoning_section_break",
        "agent_message_delta",
        "agent_reasoning_delta",
        "agent_message_content_delta",
        "reasoning_content_delta",
        "item_started",
        "error",
        "warning",
        "stream_error",
        "background_event",
        "exec_command_begin",
        "exec_command_end",
        "exec_command_output_delta",
        "terminal_interaction",
        "exec_approval_request",
        "apply_patch_approval_request",
        "patch_apply_begin",
        "patch_apply_end",
        "patch_apply_updated",
        "turn_diff",
        "plan_update",
        "plan_delta",
        "mcp_tool_call_begin",
        "mcp_tool_call_end",
        "mcp_startup_update",
        "mcp_startup_complete",
        "web_search_begin",
        "web_search_end",
        "view_image_tool_call",
        "image_generation_begin",
        "image_generation_end",
        "dynamic_tool_call_request",
        "dynamic_tool_call_response",
        "elicitation_request",
        "request_user_input",
        "entered_review_mode",
        "exited_review_mode",
        "undo_started",
        "undo_completed",
        "session_configured",
        "shutdown_complete",
        "model_reroute",
        "thread_goal_updated",
        "deprecation_notice",
        "raw_response_item",
        "collab_agent_spawn_begin",
        "collab_agent_spawn_end",
        "collab_agent_interaction_begin",
        "collab_agent_interaction_end",
        "collab_waiting_begin",
        "collab_waiting_end",
        "collab_close_begin",
        "collab_close_end",
        "collab_resume_begin",
        "collab_resume_end",
        "sub_agent_activity",
    ]
)
"""Events of the format that carry nothing for us, or nothing beside their items."""


@dataclass(frozen=True, slots=True)
class _Place:
    rollout_id: str
    line: int | None
    ordinal: int


@dataclass(slots=True)
class RecordChecks:
    """Takes the records of a thread's present, oldest first; `add` gets the findings."""

    add: Callable[[Finding], None]
    _calls: dict[tuple[str, str], _Place] = field(default_factory=dict)
    _early: dict[tuple[str, str], _Place] = field(default_factory=dict)
    _answered: dict[tuple[str, str], None] = field(default_factory=dict)
    _turn: tuple[str, _Place] | None = None
    _world: bool = False

    def feed(self, record: Record, line: int | None) -> None:
        """Check the next record."""
        place = _Place(record.rollout_id, line, record.ordinal)
        match record.type:
            case RecordType.RESPONSE_ITEM:
                self._item(record.payload, place)
            case RecordType.EVENT_MSG:
                self._event(record, place)
            case RecordType.WORLD_STATE:
                self._world_state(record, place)
            case _ if record.type not in _RECORDS:
                self._report("unknownRecord", place, record.type)
            case _:
                self._checkpoint(record, place)

    def finish(self) -> None:
        """Report what is still open at the end."""
        for (_, call_id), place in self._calls.items():
            self._report("callWithoutOutput", place, call_id)
        for (_, call_id), place in self._early.items():
            self._report("outputWithoutCall", place, call_id)
        if self._turn is not None:
            self._report("turnUnfinished", self._turn[1], self._turn[0])

    def _report(self, code: str, place: _Place, detail: str = "") -> None:
        self.add(finding(code, place.rollout_id, place.line, place.ordinal, detail[:100]))

    def _item(self, payload: Mapping[str, object], place: _Place) -> None:
        kind = text_of(payload, "type") or ""
        if kind not in _ITEMS:
            if payload:
                self._report("unknownItem", place, kind)
            return
        call_id = text_of(payload, "call_id")
        if call_id is None:
            return
        if kind in OUTPUT_OF:
            key = (OUTPUT_OF[kind], call_id)
            if self._early.pop(key, None) is None:
                self._calls[key] = place
                self._bound(self._calls, "callWithoutOutput")
        elif kind.endswith("_output"):
            self._output((kind, call_id), place)

    def _output(self, key: tuple[str, str], place: _Place) -> None:
        if self._calls.pop(key, None) is not None:
            self._answered[key] = None
            if len(self._answered) > MAX_OPEN:
                del self._answered[next(iter(self._answered))]
        elif key not in self._answered:
            self._early[key] = place
            self._bound(self._early, "outputWithoutCall")

    def _bound(self, held: dict[tuple[str, str], _Place], code: str) -> None:
        if len(held) > MAX_OPEN:
            key = next(iter(held))
            self._report(code, held.pop(key), key[1])

    def _event(self, record: Record, place: _Place) -> None:
        name = record.event
        if name in TURN_STARTS:
            if self._turn is not None:
                self._report("turnUnfinished", self._turn[1], self._turn[0])
            self._turn = (text_of(record.payload, "turn_id") or "", place)
        elif name in TURN_ENDS:
            self._turn = None
        elif name is not None and name not in EVENTS and name not in _PASSED_EVENTS:
            self._report("unknownEvent", place, name)

    def _world_state(self, record: Record, place: _Place) -> None:
        if flag_of(record.payload, "full"):
            self._world = True
        elif not self._world:
            self._report("patchWithoutBase", place)

    def _checkpoint(self, record: Record, place: _Place) -> None:
        if is_invalid_checkpoint(record):
            self._report("invalidCheckpoint", place)
            return
        found = checkpoint_of(record)
        if found is None:
            return
        self._world = False
        if found.replacement is None:
            self._report("legacyCompaction", place)
