"""Replay over a real backend and the real client view: branches, restarts, refused cursors."""

import pytest
from unspool_protocol.cursors import EventCursor
from unspool_protocol.log import HistoryMode, NewRecord, Position
from unspool_server.errors import InvalidParams
from unspool_server.events.hub import Hub
from unspool_server.events.pacing import ReplayOptions
from unspool_server.events.replay import LogReplay
from unspool_server.history.client_view import ClientView
from unspool_server.store.contract import Log, NewRollout
from unspool_server.store.memory import MemoryStore

from tests.events.conftest import connect

THREAD = "0196a0de-0000-7000-8000-000000000001"
CUT = "0196a0de-0000-7000-8000-000000000002"


def turn(name: str) -> list[NewRecord]:
    bodies: list[dict[str, object]] = [
        {"type": "task_started", "turn_id": name, "started_at": 1},
        {"type": "item_completed", "turn_id": name, "item": {"type": "AgentMessage", "id": f"m-{name}", "content": []}},
        {"type": "task_complete", "turn_id": name, "last_agent_message": None},
    ]
    return [NewRecord("event_msg", body) for body in bodies]


def heads(messages: list[dict[str, object]]) -> list[tuple[object, int]]:
    return [(m["method"], EventCursor.decode(str(m["cursor"])).ordinal) for m in messages]


async def test_a_rolled_back_cursor_is_led_to_the_present_over_the_memory_store() -> None:
    store = MemoryStore()
    first = await store.create(NewRollout(THREAD, THREAD, HistoryMode.PAGINATED, {"id": THREAD}))
    await first.persist()
    await first.append([*turn("t1"), *turn("t2")])
    extra = {"unspool": {"branch": "rollback", "turns": 1, "turnIds": ["t2"]}}
    header = NewRollout(THREAD, CUT, HistoryMode.PAGINATED, {"id": THREAD}, extra)
    log: Log = await store.branch(header, Position(THREAD, 4), replaces=first)
    await log.append(turn("t3"))

    hub = Hub(LogReplay(store, ClientView))
    hub.reset(THREAD, EventCursor(CUT, log.next_ordinal - 1, 1 << 30))
    gone, kept, foreign = EventCursor(THREAD, 5, 0), EventCursor(THREAD, 2, 0), EventCursor("other", 2, 0)
    present = [
        ("thread/reverted", 4),
        ("turn/started", 5),
        ("item/completed", 6),
        ("turn/completed", 7),
    ]
    for name, after, expected in (("a", gone, present), ("b", kept, [("turn/completed", 3), *present])):
        client = connect(hub, name)
        await hub.check_cursor(THREAD, after)
        hub.subscribe(client, THREAD, after=after, replay=ReplayOptions()).release()
        assert heads(await client.read_until_quiet(hub)) == expected
    for bad in (foreign, EventCursor(CUT, 8, 0), EventCursor(THREAD, 7, 0)):
        with pytest.raises(InvalidParams):
            await hub.check_cursor(THREAD, bad)
    await hub.close()
    await store.close()
