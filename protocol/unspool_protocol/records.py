"""Payloads of log records and their events as typed models (01 §3): snake_case, open, lenient to old versions.

They describe and check; reconstruction itself reads raw payloads, because a payload that does not fit must not stop it.
Copies of records are copies of raw lines, never dumps of these models (01 §2).
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from unspool_protocol.log import RecordType

LOST_RECORDS = "unspool_lost_records"
"""Our note, written by a repair, that the records with the numbers `from` to this one's are lost; readers of the format
pass over record types they do not know."""


class LogModel(BaseModel):
    """A part of a log line; unknown members are kept."""

    model_config = ConfigDict(extra="allow", frozen=True)


class HistoryBase(LogModel):
    """Where the older part of a history lives; `thread_id` holds a rollout id (01 §3.1)."""

    thread_id: str
    end_ordinal_exclusive: int
    end_byte_offset: int | None = None


class LogGitInfo(LogModel):
    """Git facts from when the log was first written."""

    commit_hash: str | None = None
    branch: str | None = None
    repository_url: str | None = None


class SessionMeta(LogModel):
    """`session_meta`: identity, lineage, and facts frozen at creation. The file's first one is the thread's own."""

    id: str
    session_id: str | None = None
    forked_from_id: str | None = None
    forked_from_ordinal_exclusive: int | None = None
    history_base: HistoryBase | None = None
    parent_thread_id: str | None = None
    timestamp: str | None = None
    cwd: str | None = None
    runtime_workspace_roots: list[str] | None = None
    originator: str | None = None
    cli_version: str | None = None
    source: str | Mapping[str, Any] | None = None
    thread_source: str | Mapping[str, Any] | None = None
    model_provider: str | None = None
    base_instructions: Mapping[str, Any] | None = None
    dynamic_tools: list[Any] | Mapping[str, Any] | None = None
    selected_capability_roots: list[Any] | None = None
    history_mode: str | None = None
    context_window: Mapping[str, Any] | None = None
    multi_agent_version: str | None = None
    memory_mode: str | None = None
    account_scoped: bool | None = None
    git: LogGitInfo | None = None


class ResponseItem(LogModel):
    """`response_item`: one Responses item, input or output; `system` messages are passed over when read."""

    type: str
    id: str | None = None
    role: str | None = None
    call_id: str | None = None


class InterAgentCommunication(LogModel):
    """`inter_agent_communication`: a message from one agent to another."""

    trigger_turn: bool | None = None


class InterAgentCommunicationMetadata(LogModel):
    """`inter_agent_communication_metadata`: only whether the message begins a turn."""

    trigger_turn: bool | None = None


class LogTokenUsage(LogModel):
    """Tokens of one response, a turn or a thread."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0


class TokenUsageRecord(LogModel):
    """`token_usage_record`: the exact account of one response."""

    thread_id: str | None = None
    turn_id: str | None = None
    session_id: str | None = None
    root_turn_id: str | None = None
    response_id: str | None = None
    usage: LogTokenUsage | None = None
    turn_token_usage: LogTokenUsage | None = None
    thread_token_usage: LogTokenUsage | None = None


class ResumeMetadata(LogModel):
    """What a checkpoint keeps for a resume; its presence marks the newer contract (01 §3.3)."""

    previous_turn_settings: Mapping[str, Any] | None = None
    last_started_turn_id: str | None = None
    multi_agent_version: str | None = None
    turn_attribution: Mapping[str, Any] | None = None
    dynamic_tools: list[Any] | Mapping[str, Any] | None = None


class Compacted(LogModel):
    """`compacted`: a checkpoint. Without `replacement_history` it is the legacy kind, a summary only."""

    message: str = ""
    replacement_history: list[Mapping[str, Any]] | None = None
    replacement_history_metadata: list[Mapping[str, Any] | None] | None = None
    window_number: int | None = None
    first_window_id: str | None = None
    previous_window_id: str | None = None
    window_id: str | int | None = None
    resume_metadata: ResumeMetadata | None = None
    latest_token_usage_record: TokenUsageRecord | None = None
    compaction_response_id: str | None = None
    retained_context: Any = None


class TurnContext(LogModel):
    """`turn_context`: a claim that these settings were in force, no proof of what the model saw (01 §3.4)."""

    turn_id: str | None = None
    root_turn_id: str | None = None
    cwd: str | None = None
    approval_policy: str | Mapping[str, Any] | None = None
    approvals_reviewer: str | None = None
    sandbox_policy: Mapping[str, Any] | None = None
    permission_profile: Mapping[str, Any] | None = None
    model: str | None = None
    comp_hash: str | None = None
    effort: str | None = None
    summary: str | None = None
    personality: str | None = None
    collaboration_mode: Mapping[str, Any] | None = None
    realtime_active: bool | None = None
    current_date: str | None = None
    timezone: str | None = None
    network: Any = None
    truncation_policy: Mapping[str, Any] | None = None
    disabled_plugin_ids: list[str] | None = None
    multi_agent_version: str | None = None


class WorldState(LogModel):
    """`world_state`: a full snapshot of the environment, or a merge patch (RFC 7396) of the one before."""

    full: bool = False
    state: Mapping[str, Any] = Field(default_factory=dict)


class RolledBack(LogModel):
    """`rolled_back`: a marker of the teaching implementation; not written here."""

    num_turns: int | None = None


class TaskStarted(LogModel):
    """`task_started`: a turn began; times of turns are seconds since the epoch."""

    turn_id: str | None = None
    root_turn_id: str | None = None
    started_at: int | None = None
    model_context_window: int | None = None
    collaboration_mode_kind: str | None = None
    turn_attribution: Mapping[str, Any] | None = None


class LogTurnError(LogModel):
    """Why a turn failed."""

    message: str = ""
    codex_error_info: str | Mapping[str, Any] | None = None


class TaskComplete(LogModel):
    """`task_complete`: a turn ended, well or with an `error`."""

    turn_id: str | None = None
    root_turn_id: str | None = None
    last_agent_message: str | None = None
    error: LogTurnError | None = None
    started_at: int | None = None
    completed_at: int | None = None
    duration_ms: int | None = None
    time_to_first_token_ms: int | None = None


class TurnAborted(LogModel):
    """`turn_aborted`: a turn was cut; old versions leave the turn's id out."""

    turn_id: str | None = None
    root_turn_id: str | None = None
    reason: str | None = None
    started_at: int | None = None
    completed_at: int | None = None
    duration_ms: int | None = None


class UserMessageEvent(LogModel):
    """`user_message`: user input in legacy logs."""

    message: str = ""
    images: list[Any] | None = None
    local_images: list[Any] | None = None
    text_elements: list[Any] | None = None


class AgentMessageEvent(LogModel):
    """`agent_message`: assistant text in legacy logs."""

    message: str = ""
    phase: str | None = None
    memory_citation: Any = None


class AgentReasoningEvent(LogModel):
    """`agent_reasoning`: a reasoning summary in legacy logs."""

    text: str = ""


class ItemCompletedEvent(LogModel):
    """`item_completed`: a whole item in paginated logs; item types are UpperCamelCase here, times milliseconds."""

    thread_id: str | None = None
    turn_id: str | None = None
    item: Mapping[str, Any] = Field(default_factory=dict)
    started_at_ms: int | None = None
    completed_at_ms: int | None = None


class ContextCompacted(LogModel):
    """`context_compacted`: a compaction was done, in legacy logs."""


class TokenCountInfo(LogModel):
    """Usage of the thread and of the newest response."""

    total_token_usage: LogTokenUsage
    last_token_usage: LogTokenUsage
    model_context_window: int | None = None


class TokenCount(LogModel):
    """`token_count`: usage as clients are told it; `info` is null before the first response."""

    info: TokenCountInfo | None = None
    rate_limits: Mapping[str, Any] | None = None


class ThreadSettingsApplied(LogModel):
    """`thread_settings_applied`: the settings for the next turn."""

    thread_id: str | None = None
    thread_settings: Mapping[str, Any] = Field(default_factory=dict)


class ThreadRolledBack(LogModel):
    """`thread_rolled_back`: the undo marker of legacy logs."""

    num_turns: int = Field(ge=0)


class ThreadNameUpdated(LogModel):
    """`thread_name_updated`: the thread got a name; null takes it away."""

    thread_id: str | None = None
    thread_name: str | None = None


class OtherEvent(LogModel):
    """An event that carries no meaning here."""


RECORDS: Mapping[str, type[LogModel]] = {
    RecordType.SESSION_META: SessionMeta,
    RecordType.RESPONSE_ITEM: ResponseItem,
    RecordType.INTER_AGENT: InterAgentCommunication,
    RecordType.INTER_AGENT_METADATA: InterAgentCommunicationMetadata,
    RecordType.COMPACTED: Compacted,
    RecordType.ROLLED_BACK: RolledBack,
    RecordType.TURN_CONTEXT: TurnContext,
    RecordType.WORLD_STATE: WorldState,
    RecordType.TOKEN_USAGE: TokenUsageRecord,
}
"""Models of record payloads by record type."""

EVENTS: Mapping[str, type[LogModel]] = {
    "task_started": TaskStarted,
    "task_complete": TaskComplete,
    "turn_aborted": TurnAborted,
    "user_message": UserMessageEvent,
    "agent_message": AgentMessageEvent,
    "agent_reasoning": AgentReasoningEvent,
    "item_completed": ItemCompletedEvent,
    "context_compacted": ContextCompacted,
    "token_count": TokenCount,
    "thread_settings_applied": ThreadSettingsApplied,
    "thread_rolled_back": ThreadRolledBack,
    "thread_name_updated": ThreadNameUpdated,
}
"""Models of `event_msg` payloads by event name."""


def record_model(record_type: str, payload: Mapping[str, Any]) -> type[LogModel] | None:
    """The model that describes a record's payload; None for record types that are only kept."""
    if record_type == RecordType.EVENT_MSG:
        return EVENTS.get(str(payload.get("type")), OtherEvent)
    return RECORDS.get(record_type)


def parse_record(record_type: str, payload: Mapping[str, Any]) -> LogModel | None:
    """A record's payload as its model; None for record types that are only kept.

    Raises:
        pydantic.ValidationError: The payload does not fit its type.
    """
    model = record_model(record_type, payload)
    return None if model is None else model.model_validate(payload)
