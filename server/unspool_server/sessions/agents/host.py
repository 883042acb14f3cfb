"""What a turn needs of whoever runs agents. Implemented by `agents.Agents`, which knows all live threads."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from unspool_server.sessions.session import Session
    from unspool_server.sessions.turns.turn import Turn


class AgentError(Exception):
    """An agent could not be started or reached; the message is for the model."""


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent to be started; `fork` gives it what was said before the turn that starts it."""

    name: str
    task: str
    fork: bool = False
    model: str | None = None
    effort: str | None = None


class AgentHost(Protocol):
    """Starts agents, carries messages between them, and brings their answers home."""

    async def spawn(self, turn: "Turn", wanted: "NewAgent") -> tuple[str, str]:
        """Start an agent with a task; returns its path and its thread. Raises AgentError."""

    async def send(self, turn: "Turn", target: str, text: str, *, trigger: bool) -> tuple[str, str]:
        """Say something to an agent; `trigger` begins a turn if it has none. Returns path and thread. AgentError."""

    async def interrupt(self, turn: "Turn", target: str) -> tuple[str, str, Any]:
        """End an agent's turn; returns its path, its thread and its status before. Raises AgentError."""

    def depth(self, session: "Session") -> int:
        """How deep in its tree the thread stands; 0 at the root."""

    def any_running(self, session: "Session") -> bool:
        """Whether another agent of the thread's tree has a turn that runs."""

    async def statuses(self, session: "Session") -> dict[str, Any]:
        """Every agent of the thread's tree by its path, with its status as the reference words it."""

    async def catch_up(self, session: "Session") -> None:
        """Record answers of the thread's agents that came while it could not be told. Called outside steps."""

    def turn_ended(self, session: "Session", turn_id: str, outcome: str, text: str | None) -> None:
        """A turn has ended; an agent's answer goes to its parent."""


class NoAgents:
    """Before the registry takes over: nobody to start, nobody to tell."""

    async def spawn(self, turn: "Turn", wanted: "NewAgent") -> tuple[str, str]:
        """Refuse."""
        raise AgentError("agents cannot be started here")

    async def send(self, turn: "Turn", target: str, text: str, *, trigger: bool) -> tuple[str, str]:
        """Refuse."""
        raise AgentError("there are no agents here")

    async def interrupt(self, turn: "Turn", target: str) -> tuple[str, str, Any]:
        """Refuse."""
        raise AgentError("there are no agents here")

    def depth(self, session: "Session") -> int:
        """A root."""
        return 0

    def any_running(self, session: "Session") -> bool:
        """Nobody."""
        return False

    async def statuses(self, session: "Session") -> dict[str, Any]:
        """Nobody."""
        return {}

    async def catch_up(self, session: "Session") -> None:
        """Nothing to catch up with."""

    def turn_ended(self, session: "Session", turn_id: str, outcome: str, text: str | None) -> None:
        """Nobody to tell."""
