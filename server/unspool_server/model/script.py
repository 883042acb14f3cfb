"""Scripted replies of the offline provider: a JSON file, checked when it is read.

A reply is a list of steps, each one object:

    {"say": "text", "phase"?: "...", "partial"?: true}   assistant message; partial: its text without its end
    {"reason": "summary text", "enc"?: "blob"}           reasoning item
    {"call": "name", "args"?: {...}, "id"?: "call_1"}    function call
    {"raw": {...}}                                       any output item as it stands
    {"wait": seconds}  {"hang": true}                    pause; stay open until the client goes away
    {"cut": true}                                        end without completing
    {"fail": "code"}   {"http": 500}                     a failed response; an HTTP error (first step only)

The file is a list of replies, or `{"replies": [...], "compact": [...], "default": [step...], "usage": {"in": 100,
"out": 10}}`. Replies are taken one after another; `compact` serves requests for a summary.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unspool_server.config_base import ConfigError

Step = Mapping[str, Any]
Reply = list[Step]

STEP_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "say": str,
    "reason": str,
    "call": str,
    "raw": dict,
    "wait": (int, float),
    "hang": bool,
    "cut": bool,
    "fail": str,
    "http": int,
}


@dataclass(slots=True)
class Script:
    """Queues of replies; empty ones mean that the provider answers by itself.

    Attributes:
        default: The reply when `replies` is empty; None lets the provider echo.
        usage: Input and output tokens to report; None means the estimate.
    """

    replies: deque[Reply] = field(default_factory=deque)
    compact: deque[Reply] = field(default_factory=deque)
    default: Reply | None = None
    usage: tuple[int, int] | None = None

    def take(self, *, compact: bool) -> Reply | None:
        """The next reply of the queue asked for, or None."""
        queue = self.compact if compact else self.replies
        if queue:
            return queue.popleft()
        return None if compact else self.default


def read_script(path: Path) -> Script:
    """Read a script file. Raises ConfigError naming the reply and step at fault."""
    try:
        return parse_script(json.loads(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"cannot read the offline script {path}: {error.strerror}", key="script") from error
    except ValueError as error:
        raise ConfigError(f"the offline script {path} is no JSON: {error}", key="script") from error


def parse_script(raw: object) -> Script:
    """Check decoded JSON. Raises ConfigError naming the reply and step at fault."""
    table = {"replies": raw} if isinstance(raw, list) else raw
    if not isinstance(table, dict):
        raise ConfigError("an offline script is a list of replies or an object", key="script")
    default, usage = table.get("default"), table.get("usage")
    return Script(
        deque(_replies(table.get("replies"), "replies")),
        deque(_replies(table.get("compact"), "compact")),
        None if default is None else _reply(default, "default"),
        None if usage is None else _usage(usage),
    )


def _usage(raw: object) -> tuple[int, int]:
    if not isinstance(raw, dict) or not all(isinstance(raw.get(key, 0), int) for key in ("in", "out")):
        raise ConfigError('offline script, usage: expected {"in": tokens, "out": tokens}', key="script")
    return raw.get("in", 0), raw.get("out", 0)


def _replies(raw: object, where: str) -> list[Reply]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise ConfigError(f"offline script, {where}: expected a list of replies", key="script")
    return [_reply(reply, f"{where}[{index}]") for index, reply in enumerate(raw)]


def _reply(raw: object, where: str) -> Reply:
    if not isinstance(raw, list):
        raise ConfigError(f"offline script, {where}: a reply is a list of steps", key="script")
    for index, step in enumerate(raw):
        kind = next((kind for kind in STEP_KINDS if isinstance(step, dict) and kind in step), None)
        if kind is None or not isinstance(step[kind], STEP_KINDS[kind]):
            raise ConfigError(f"offline script, {where}[{index}]: no such step", key="script")
    return raw
