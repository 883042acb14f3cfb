"""Token accounting of a live thread, and when it is full (07 §6.3)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unspool_protocol.log import NewRecord, RecordType

from unspool_server.history.state import Item
from unspool_server.history.tokens import estimate_tokens
from unspool_server.model.contract import ResponseDone, Usage

if TYPE_CHECKING:
    from unspool_server.sessions.session import Session
    from unspool_server.sessions.turns.turn import Turn

_FIELDS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "total_tokens",
)
_MODEL_OUTPUT = frozenset({"reasoning", "function_call", "custom_tool_call", "web_search_call", "local_shell_call"})


def usage_records(turn: "Turn", done: ResponseDone) -> list[NewRecord]:
    """What one response used: the exact record and the totals that clients see; empty when the service said nothing.

    The response is added to the turn's own total, which the reference wants to read in the exact record.
    """
    if done.usage is None:
        return []
    session = turn.session
    last = usage_fields(done.usage)
    total = _sum(thread_total(session), last)
    turn.token_usage = _sum(_numbers(turn.token_usage), last)
    exact = {
        "thread_id": session.thread_id,
        "turn_id": turn.id,
        "session_id": session.thread_id,
        "root_turn_id": turn.id,
        "response_id": done.response_id,
        "usage": last,
        "turn_token_usage": turn.token_usage,
        "thread_token_usage": total,
    }
    return [NewRecord(RecordType.TOKEN_USAGE, exact), token_count_record(session, total, last)]


def take_untold(turn: "Turn") -> list[NewRecord]:
    """The count that waited for the outputs of its response's calls; it is recorded with the last of them."""
    untold, turn.untold = turn.untold, []
    return untold


def token_count_record(session: "Session", total: Mapping[str, int], last: Mapping[str, int]) -> NewRecord:
    """The `token_count` event (01 §3.6)."""
    info = {
        "total_token_usage": dict(total),
        "last_token_usage": dict(last),
        "model_context_window": session.env.config.context_window * 95 // 100,
    }
    return NewRecord(RecordType.EVENT_MSG, {"type": "token_count", "info": info, "rate_limits": None})


def full_window_record(session: "Session") -> NewRecord:
    """The count after a request that did not fit: the last usage is the whole window (07 §6.3)."""
    total = thread_total(session)
    last = {**dict.fromkeys(total, 0), "total_tokens": session.env.config.context_window}
    return token_count_record(session, total, last)


def usage_fields(usage: Usage) -> dict[str, int]:
    """A response's usage in the log's spelling."""
    return {name: getattr(usage, name, 0) for name in _FIELDS}


def thread_total(session: "Session") -> dict[str, int]:
    """Totals recorded so far, zeros for a thread that never sampled."""
    return _numbers((session.history.settings.token_info or {}).get("total_token_usage"))


def _numbers(found: Any) -> dict[str, int]:
    values = found if isinstance(found, Mapping) else {}
    return {name: values[name] if isinstance(values.get(name), int) else 0 for name in _FIELDS}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one[name] + other[name] for name in _FIELDS}


def used_tokens(session: "Session", extra: Iterable[Item] = ()) -> int:
    """The last response's total plus an estimate of what came after it."""
    last = _numbers((session.history.settings.token_info or {}).get("last_token_usage"))
    newer = [*_after_last_response(session.history.state.history), *extra]
    return last["total_tokens"] + sum(estimate_tokens(item) for item in newer)


def _after_last_response(history: Sequence[Item]) -> Sequence[Item]:
    for index in range(len(history) - 1, -1, -1):
        item = history[index]
        if item.get("type") in _MODEL_OUTPUT or item.get("role") == "assistant":
            return history[index + 1 :]
    return ()


def over_limit(session: "Session", extra: Iterable[Item] = ()) -> bool:
    """Whether the thread must be compacted before the model is asked again."""
    limit = session.env.config.auto_compact_limit
    return limit is not None and used_tokens(session, extra) >= limit


def response_over_limit(session: "Session") -> bool:
    """Whether the newest response alone shows that the thread is too large: what came after it does not count."""
    limit = session.env.config.auto_compact_limit
    last = _numbers((session.history.settings.token_info or {}).get("last_token_usage"))
    return limit is not None and last["total_tokens"] >= limit


def over_threshold(session: "Session") -> bool:
    """Whether the thread shall be compacted behind a turn's answer; never where compaction by itself is turned off."""
    config = session.env.config
    percent = config.model_post_turn_compact_threshold_percent
    if percent is None or config.auto_compact_limit is None:
        return False
    return used_tokens(session) * 100 >= percent * config.context_window
