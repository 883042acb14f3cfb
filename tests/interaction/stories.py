"""Messages in words, the story of a good turn, and a turn that hangs."""

from typing import Any

from tests.interaction.house import House, LocalDaemon
from tests.interaction.wire import Client, Message

HANG: tuple[list[dict[str, Any]]] = ([{"say": "partial", "partial": True}, {"hang": True}],)


def word(message: Message) -> str:
    """A message with what tells it from others of its kind."""
    params = message.get("params") or {}
    method = message.get("method")
    if method is None:
        return "answer" if "result" in message else "error"
    if method == "thread/status/changed":
        return f"status {params['status']['type']}"
    if method.startswith("item/") and "item" in params:
        return f"{method} {params['item']['type']}"
    if method == "turn/completed":
        return f"{method} {params['turn']['status']}"
    return str(method)


def story(messages: list[Message]) -> list[str]:
    """Messages in words, consecutive deltas as one; without those that tell of marks beside the conversation."""
    told: list[str] = []
    for message in messages:
        if message.get("method") in ("thread/readState/changed", "thread/goal/cleared"):
            continue
        if not told or told[-1] != "item/agentMessage/delta" or word(message) != told[-1]:
            told.append(word(message))
    return told


TURN = [
    "answer",
    "status active",
    "turn/started",
    "item/started userMessage",
    "item/completed userMessage",
    "item/started agentMessage",
    "item/agentMessage/delta",
    "item/completed agentMessage",
    "thread/tokenUsage/updated",
    "status idle",
    "turn/completed completed",
]


async def hanging(house: House, daemon: LocalDaemon, *, mode: str = "paginated") -> tuple[Client, str, str]:
    """A client, its thread, and a turn of it that has said something and hangs."""
    client = await daemon.connect()
    thread = await client.start(cwd=str(house.work), historyMode=mode)
    turn = await client.begin(thread, "go")
    await client.event("item/agentMessage/delta", turnId=turn)
    return client, thread, turn
