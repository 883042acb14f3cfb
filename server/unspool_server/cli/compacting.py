"""Lets the model compact a thread and waits for the end of that turn."""

from collections.abc import Mapping
from typing import Any

from unspool_client import ThreadHandle

from unspool_server.cli.options import Failure


async def compact_by_model(thread: ThreadHandle) -> Mapping[str, Any]:
    """Run `thread/compact/start` to its end; gives the turn.

    Raises:
        Failure: The compaction turn failed or was interrupted.
    """
    async with thread.events("now") as stream:
        await thread.compact_start()
        compacting = ""
        async for event in stream:
            # A running turn is interrupted first and ends before the compaction's own turn starts (`wire` §6).
            if event.method == "turn/started":
                compacting = event.turn_id or ""
            elif event.method == "turn/completed" and event.turn_id == compacting:
                turn: Mapping[str, Any] = event.params["turn"]
                if turn["status"] == "completed":
                    return turn
                raise Failure(f"Error: {(turn.get('error') or {}).get('message') or turn['status']}")
    raise Failure("Error: the thread was closed before its compaction ended")
