"""Where turns start and which user messages are real: every such rule of the program, in this one place.

Sources: 03 §2 (the kinds of boundaries), 07 §8 (contextual messages), 07 §6.2 (real user messages, summaries).
Knows nothing of segments, replay or cuts.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from unspool_protocol.log import Record, RecordType

from .fields import flag_of, role_of, text_of, texts_of
from .state import Item

SUMMARY_PREFIX = (
    "The earlier part of this conversation was condensed; the notes below, left by the assistant that worked on it, "
    "say what was asked, done, decided and still open, so go on from them without repeating finished work."
)
"""Put before every summary of ours, followed by one line feed (07 §6.2). Changing it makes old summaries look real."""

_REFERENCE_PREFIX_BYTES = 400
_REFERENCE_PREFIX_SHA256 = "371aca20f23d546135443e5c289f62b304aea1a9ce21cfa0e80e17d4c6020fd0"
"""The reference's own prefix, line feed included, is recognised and never quoted (03 §2)."""

_TAGS = (
    "environment_context",
    "turn_aborted",
    "user_shell_command",
    "subagent_notification",
    "skill",
    "recommended_plugins",
    "goal_context",
)
_FIXED_MARKS = (
    *((f"<{tag}>", f"</{tag}>") for tag in _TAGS),
    ("# agents.md instructions", "</instructions>"),
    ("warning: the maximum number of unified exec processes", ""),
    ("warning: apply_patch was requested via", "instead of exec_command."),
    ("warning: your account was flagged", ""),
)
"""Start and end, in lower case, of text parts that the harness wrote (07 §8)."""

_PATTERN_MARKS = (
    re.compile(r'<codex_internal_context source="[^"]*">.*</codex_internal_context>', re.DOTALL | re.IGNORECASE),
    re.compile(r'<hook_prompt hook_run_id="[^"]*">.*</hook_prompt>', re.DOTALL | re.IGNORECASE),
    re.compile(r"<external_([^\s<>]+)>.*</external_\1>", re.DOTALL | re.IGNORECASE),
)

_DEVELOPER_MARKS = (
    "<permissions instructions>",
    "<model_switch>",
    "<collaboration_mode>",
    "<realtime_conversation>",
    "<skills_instructions>",
    "<plugins_instructions>",
    "<personality_spec>",
    "<token_budget>",
)
"""Starts of developer texts that belong to the turn they stand before (03 §5, rows 15 and 82)."""


def _ascii_lower(text: str) -> str:
    """Lower the ASCII letters only: other letters must not start to match (07 §8)."""
    return text.lower() if text.isascii() else re.sub(r"[A-Z]", lambda found: found[0].lower(), text)


def is_contextual_text(text: str) -> bool:
    """Whether one text part was written by the harness: start and end must match, white space aside (07 §8)."""
    text = text.strip()
    if not text.startswith(("<", "#", "W", "w")):
        return False
    lowered = _ascii_lower(text)
    if any(lowered.startswith(start) and lowered.endswith(end) for start, end in _FIXED_MARKS):
        return True
    return any(pattern.fullmatch(text) for pattern in _PATTERN_MARKS)


def is_contextual_user(item: Item) -> bool:
    """Whether a user message carries context instead of input: any one of its text parts decides (07 §8)."""
    return role_of(item) == "user" and any(is_contextual_text(text) for text in texts_of(item))


def is_contextual_developer(item: Item) -> bool:
    """Whether a developer message holds a context fragment that is written anew when its turn goes (03 §5)."""
    return role_of(item) == "developer" and any(
        text.lstrip().lower().startswith(_DEVELOPER_MARKS) for text in texts_of(item)
    )


def is_model_switch_text(text: str) -> bool:
    """Whether a developer text announces another model (07 §3)."""
    return text.lstrip().lower().startswith("<model_switch>")


def starts_with_summary_prefix(text: str) -> bool:
    """Whether a text begins with our summary prefix or the reference's, line feed included (03 §2)."""
    if text.startswith(SUMMARY_PREFIX + "\n"):
        return True
    if "\n" not in text[:_REFERENCE_PREFIX_BYTES]:
        return False
    head = text[:_REFERENCE_PREFIX_BYTES].encode("utf-8", "surrogatepass")[:_REFERENCE_PREFIX_BYTES]
    return len(head) == _REFERENCE_PREFIX_BYTES and hashlib.sha256(head).hexdigest() == _REFERENCE_PREFIX_SHA256


def is_summary(item: Item) -> bool:
    """Whether a user message is a compaction summary: its joined text starts with the prefix (07 §6.2)."""
    return role_of(item) == "user" and starts_with_summary_prefix("".join(texts_of(item)))


def is_real_user_message(item: Item) -> bool:
    """Whether a message was typed by the user: neither context nor a summary. Blank ones are real (07 §6.2)."""
    return role_of(item) == "user" and not is_contextual_user(item) and not is_summary(item)


def envelope_of(item: Item) -> Mapping[str, Any] | None:
    """The inter-agent envelope that an old assistant message holds as its only text, or None (03 §2)."""
    if role_of(item) != "assistant":
        return None
    content = item.get("content")
    texts = texts_of(item)
    if len(texts) != 1 or not isinstance(content, list | tuple) or len(content) != 1 or not texts[0].startswith("{"):
        return None
    try:
        envelope = json.loads(texts[0])
    except (ValueError, RecursionError):
        return None
    if not isinstance(envelope, dict) or flag_of(envelope, "trigger_turn") is None:
        return None
    named = all(text_of(envelope, key) is not None for key in ("author", "recipient", "content"))
    return envelope if named else None


def is_instruction_boundary(item: Item) -> bool:
    """Whether a history item starts a turn that rollbacks count (03 §2, 07 §8).

    A message with any part that starts with a summary prefix is none; a summary without prefix counts.
    """
    if item.get("type") == "agent_message":
        return True
    role = role_of(item)
    if role == "user":
        return not is_contextual_user(item) and not any(starts_with_summary_prefix(text) for text in texts_of(item))
    return role == "assistant" and envelope_of(item) is not None


def is_instruction_record(record: Record) -> bool:
    """Whether a record makes its segment a user's turn: boundary items, user events, inter-agent records (03 §2)."""
    if record.type == RecordType.RESPONSE_ITEM:
        return is_instruction_boundary(record.payload)
    return record.type == RecordType.INTER_AGENT or record.event == "user_message"


def is_fork_boundary(record: Record) -> bool:
    """Whether a record starts a turn for forks that keep the last n: real input or a triggering message (03 §2)."""
    if record.type == RecordType.INTER_AGENT:
        return flag_of(record.payload, "trigger_turn") is True
    if record.type != RecordType.RESPONSE_ITEM:
        return False
    envelope = envelope_of(record.payload)
    if envelope is not None:
        return envelope["trigger_turn"] is True
    return is_real_user_message(record.payload)


def fork_boundaries(records: Sequence[Record]) -> list[int]:
    """Indices of the records that a fork can count: real user messages and triggering agent messages (03 §2).

    An `agent_message` item triggers when a metadata record before it says so.
    """
    found: list[int] = []
    triggering = False
    for index, record in enumerate(records):
        if record.type == RecordType.INTER_AGENT_METADATA:
            triggering = flag_of(record.payload, "trigger_turn") is True
        elif is_fork_boundary(record):
            found.append(index)
            triggering = False
        elif record.type == RecordType.RESPONSE_ITEM:
            if triggering and record.payload.get("type") == "agent_message":
                found.append(index)
            triggering = False
    return found
