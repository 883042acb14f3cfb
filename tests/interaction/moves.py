"""What many tests do with threads, and what a live thread knows of its model side."""

from typing import Any

from unspool_server.history.state import Reconstruction

from tests.interaction.house import LocalDaemon
from tests.interaction.wire import Client


def model_side(daemon: LocalDaemon, thread: str) -> dict[str, Any]:
    """What a live thread knows of its model side."""
    return facts(daemon.session(thread).history.state)


def facts(state: Reconstruction) -> dict[str, Any]:
    """What a restart must give back."""
    return {
        "history": [dict(item) for item in state.history],
        "previous settings": state.previous_settings,
        "reference context": state.reference_context,
        "world state": state.world_state,
        "window": state.window,
        "last started turn": state.last_started_turn_id,
    }


async def compacted(client: Client, thread: str) -> str:
    """Let the model compact; returns the turn's id."""
    mark = client.mark
    assert await client.call("thread/compact/start", {"threadId": thread}) == {}
    begun = await client.event("turn/started", since=mark)
    turn_id = str(begun["params"]["turn"]["id"])
    ended = await client.ended(turn_id, mark)
    assert ended["status"] == "completed", ended
    return turn_id


async def fork(client: Client, thread: str, **params: Any) -> str:
    """Fork a thread; returns the child's id."""
    return str((await client.call("thread/fork", {"threadId": thread, **params}))["thread"]["id"])
