"""What a tool server offers, as values. Owns no connection."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

ServerState = Literal["starting", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server said of itself when it started; tools as it gave them, in its order.

    Attributes:
        info: `serverInfo` of its handshake.
        instructions: How to use it, in its own words.
    """

    info: Mapping[str, Any] = field(default_factory=dict)
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    instructions: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()


class McpFailure(Exception):
    """A server could not be started, or a call of it failed; the message is safe to show to model and clients."""
