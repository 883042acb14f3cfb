"""What a tool is: a declaration for the model, and a coroutine that answers a call.

Owns no tool. Kinds of tools are modules of their own beside this one; `toolbox.py` gathers those that a thread has.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from unspool_protocol.items import (
    CollabAgentToolCallItem,
    CommandExecutionItem,
    DynamicToolCallItem,
    McpToolCallItem,
    SubAgentActivityItem,
)

if TYPE_CHECKING:
    from unspool_server.sessions.tools.calls import OpenCall
    from unspool_server.sessions.turns.turn import Turn

ToolItem = CommandExecutionItem | DynamicToolCallItem | McpToolCallItem | SubAgentActivityItem | CollabAgentToolCallItem
"""What clients see of a call."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave.

    Attributes:
        output: For the model: a text, or a list of Responses content parts.
        item: The finished item for clients; None where nothing was run.
    """

    output: Any
    item: ToolItem | None = None


class Tool(Protocol):
    """One tool of a thread. Made anew for each request, so it may hold what was in force then."""

    @property
    def name(self) -> str:
        """The name that the model calls, unique within its namespace."""

    @property
    def namespace(self) -> str | None:
        """The group that the name belongs to; None for most tools."""

    def declaration(self) -> dict[str, Any]:
        """The tool as a request declares it, without its namespace."""

    async def run(self, turn: "Turn", call: "OpenCall", arguments: Any) -> ToolResult:
        """Answer one call. Called outside steps; calls of one round run side by side.

        A tool shows its item with `turn.show_started` when it begins, and gives it back finished. It is cancelled when
        the turn ends early, and must have let go of everything it holds before it passes CancelledError on; the call's
        output is then written for it (07 §4).

        Args:
            arguments: The decoded JSON that the model gave; an object, unless it was wrong.
        """
