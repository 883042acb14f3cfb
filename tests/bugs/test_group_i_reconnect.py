"""Clients that lose their connection, join late or come back: what they missed, in its order, once."""

import asyncio
import json
from typing import Any

import pytest

from tests.bugs.cases import CASES
from tests.interaction.house import TOOL, House, LocalDaemon
from tests.interaction.stories import HANG, hanging
from tests.interaction.wire import Client, Message

WORDS = [f"word{number} " for number in range(60)]
TEXT = "".join(WORDS)


def deltas(events: list[Message]) -> str:
    """What the deltas of events say together."""
    return "".join(e["params"]["delta"] for e in events if e["method"] == "item/agentMessage/delta")


class Conversation:
    """Carries out a case: one client for each name, `$` names for what was saved on the way."""

    def __init__(self, house: House, daemon: LocalDaemon) -> None:
        self._daemon = daemon
        self.clients: dict[str, Client] = {}
        self.saved: dict[str, Any] = {"$DIR": str(house.work)}
        self.deltas = 0

    async def carry_out(self, line: dict[str, Any]) -> None:
        """Do what one line of the case says."""
        if "send" in line:
            await self._send(line["c"], line["send"], line.get("save", {}))
        elif "sleep_ms" in line and "$LAST_SEEN_BY_A" not in self.saved:
            self.deltas += line["sleep_ms"] // 100
            await self._pass(self.clients["A"])
        elif "sleep_ms" in line:
            self.deltas += line["sleep_ms"] // 100
            await self._pass(self.clients["watcher"])
        elif "fault" in line:
            seen = self.clients["A"]
            await seen.close()
            self.saved["$LAST_SEEN_BY_A"] = seen.events(self.saved["$T"])[-1]["cursor"]

    async def _pass(self, client: Client) -> None:
        """Time is the number of deltas that a client has seen."""
        await client.until(lambda _: client.count("item/agentMessage/delta") >= self.deltas)

    async def _send(self, name: str, message: dict[str, Any], save: dict[str, str]) -> None:
        client = self.clients.get(name) or await self._daemon.connect()
        self.clients[name] = client
        params = json.loads(json.dumps(message["params"]))
        given = _filled(params, self.saved)
        answer = {"result": await client.call(message["method"], given)}
        for key, path in save.items():
            found: Any = answer
            for part in path.split("."):
                found = found[part]
            self.saved[f"${key}"] = found
        if message["method"] == "thread/start":
            self.clients["watcher"] = await self._daemon.connect()
            await self.clients["watcher"].call("thread/subscribe", {"threadId": self.saved["$T"]})


def _filled(value: Any, saved: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, saved) for key, inner in value.items()}
    return saved.get(value, value) if isinstance(value, str) else value


async def test_b62_whoever_comes_back_by_cursor_joins_the_text_without_hole_or_copy(house: House) -> None:
    """After a lost connection part of a streamed answer never came, and the rest belonged to an unknown item."""
    house.offline([{"say": TEXT, "partial": True}, {"hang": True}])
    lines = [json.loads(line) for line in (CASES / "B62_reconnect.rpc.jsonl").read_text().splitlines()]
    async with house.daemon() as daemon:
        story = Conversation(house, daemon)
        for line in lines:
            await story.carry_out(line)
        first, second, watcher = (story.clients[name] for name in ("A", "B", "watcher"))
        thread = story.saved["$T"]
        turn = (await second.event("item/agentMessage/delta"))["params"]["turnId"]
        await second.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        for client in (second, watcher):
            await client.ended(turn)
        before, after = first.events(thread), second.events(thread)
        assert [e["cursor"] for e in before + after] == [e["cursor"] for e in after_start(watcher, thread, before)]
        shown = (await second.read(thread))["turns"][0]["items"][-1]
        assert deltas(before) + deltas(after) == shown["text"]
        announced = {e["params"]["item"]["id"] for e in before if e["method"] == "item/started"}
        assert {e["params"]["itemId"] for e in after if e["method"] == "item/agentMessage/delta"} <= announced


def after_start(watcher: Client, thread: str, before: list[Message]) -> list[Message]:
    """What a client that was there all the time saw, from where the first one began."""
    events = watcher.events(thread)
    return [event for event in before if event["cursor"] not in {e["cursor"] for e in events}] + events


@pytest.mark.parametrize("snapshot", [False, True])
async def test_b62_at_every_delta_a_client_without_the_past_gets_the_text_so_far_and_exactly_the_rest(
    house: House, snapshot: bool
) -> None:
    """A client that joined in the middle of an answer saw its rest only."""
    house.offline([{"say": TEXT, "partial": True}, {"hang": True}])
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        joined: list[tuple[Client, str]] = []
        for number in range(0, 50, 7):
            await client.until(lambda _, n=number: client.count("item/agentMessage/delta") > n)  # type: ignore[misc]
            for _ in range(2):
                late = await daemon.connect()
                if snapshot:
                    asked = {"threadId": thread, "replay": {"mode": "snapshot"}}
                    answer = await late.call("thread/resume", asked)
                    joined.append((late, answer["thread"]["turns"][-1]["items"][-1]["text"]))
                else:
                    await late.call("thread/resume", {"threadId": thread, "replay": {"after": None}})
                    joined.append((late, ""))
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await client.ended(turn)
        whole = deltas(client.events(thread))
        for late, text in joined:
            await late.ended(turn)
            assert text + deltas(late.events(thread)) == whole


@pytest.mark.parametrize("restarted", [False, True])
async def test_b64_what_ended_while_a_client_was_away_is_told_when_it_comes_back(house: House, restarted: bool) -> None:
    """The last finished message was missing after a reconnect until everything was loaded anew."""
    async with house.daemon() as daemon:
        client, other = await daemon.connect(), await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.begin(thread, TEXT)
        first = await client.event("item/agentMessage/delta", turnId=turn)
        await client.close()
        await other.call("thread/subscribe", {"threadId": thread, "replay": {"after": first["cursor"]}})
        await other.ended(turn)
        if not restarted:
            await comes_back(daemon, thread, turn, first["cursor"])
    if restarted:
        async with house.daemon() as daemon:
            await comes_back(daemon, thread, turn, first["cursor"])


async def comes_back(daemon: LocalDaemon, thread: str, turn: str, cursor: str) -> None:
    """The end of item and turn come, in both ways to follow a thread."""
    for method in ("thread/subscribe", "thread/resume"):
        client = await daemon.connect()
        await client.call(method, {"threadId": thread, "replay": {"after": cursor}})
        assert (await client.ended(turn))["status"] == "completed"
        told = [event["params"]["item"] for event in client.events(thread) if event["method"] == "item/completed"]
        assert [(item["type"], item["text"]) for item in told] == [("agentMessage", TEXT)]
        assert client.count("turn/completed") == 1


async def test_b66_between_replay_and_live_nothing_is_lost_and_nothing_comes_twice(house: House) -> None:
    """Events that came while a replay was handed over to the live stream were lost."""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "past")
        cursor = client.events(thread)[2]["cursor"]
        turn = await client.begin(thread, TEXT)
        joined = []
        for method in ("thread/resume", "thread/subscribe") * 4:
            late = await daemon.connect()
            await late.ask(method, {"threadId": thread, "replay": {"after": cursor}})
            joined.append(late)
            await client.event("item/agentMessage/delta", turnId=turn)
            await asyncio.sleep(0)
        await client.ended(turn)
        rest = [event["cursor"] for event in client.events(thread)][3:]
        for late in joined:
            await late.ended(turn)
            assert [event["cursor"] for event in late.events(thread)] == rest


async def test_b68_only_events_of_the_thread_move_its_cursor_and_no_other_threads_cursor_is_taken(
    house: House,
) -> None:
    """Heartbeats moved the place to go on from, and a cursor of another run was accepted."""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread, other = await client.start(cwd=str(house.work)), await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        cursor = client.events(thread)[-1]["cursor"]
        await client.turn(other, "two")
        for _ in range(3):
            await client.settled()
        loaded = await client.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        assert loaded["cursor"] == cursor, "neither answers nor other threads count"
        late = await daemon.connect()
        await late.call("thread/resume", {"threadId": thread, "replay": {"after": cursor}})
        await late.settled()
        assert late.events(thread) == []
        foreign = client.events(other)[-1]["cursor"]
        for method in ("thread/resume", "thread/subscribe"):
            refused = await late.refused(method, {"threadId": thread, "replay": {"after": foreign}})
            assert refused.reason == "cursorInvalid"


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_b70_items_come_again_as_they_were_live_tools_included(house: House, mode: str) -> None:
    """Reopened threads showed texts only; calls of tools were missing or had lost their names."""
    house.offline([{"reason": "let me think"}, {"call": "look", "id": "c1"}], [{"say": "there it is"}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode, dynamicTools=[TOOL])
        turn = await client.begin(thread, "look")
        request = await client.event("item/tool/call", threadId=thread)
        result = {"contentItems": [{"type": "inputText", "text": "found"}], "success": True}
        await client.send({"id": request["id"], "result": result})
        await client.ended(turn)
        live = told_items(client, thread)
        kinds = ["userMessage", "reasoning", "dynamicToolCall", "agentMessage"]
        assert [item["type"] for item in live] == kinds
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/subscribe", {"threadId": thread, "replay": {"after": None}})
        await client.ended(turn)
        assert [steady(item) for item in told_items(client, thread)] == [steady(item) for item in live]
        [read] = (await client.read(thread))["turns"]
        assert [steady(item) for item in read["items"]] == [steady(item) for item in live]


def told_items(client: Client, thread: str) -> list[Any]:
    """The finished items that a client was told of."""
    return [e["params"]["item"] for e in client.events(thread) if e["method"] == "item/completed"]


def steady(item: dict[str, Any]) -> dict[str, Any]:
    """An item without the times that a legacy log does not keep."""
    return {key: value for key, value in item.items() if key not in ("startedAtMs", "completedAtMs", "durationMs")}


@pytest.mark.parametrize("how", ["completed", "failed", "interrupted", "tool"])
async def test_b72_the_end_of_a_turn_is_its_last_event_and_comes_once(house: House, how: str) -> None:
    """Clients stopped listening at `idle`, which comes before the end of the turn, and lost what followed."""
    replies: dict[str, list[dict[str, Any]]] = {
        "completed": [{"reason": "well"}, {"say": "done"}],
        "failed": [{"say": "well", "partial": True}, {"fail": "invalid_prompt"}],
        "interrupted": HANG[0],
        "tool": [{"call": "look", "id": "c1"}],
    }
    house.offline(replies[how])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        turn = await client.begin(thread, "go")
        if how == "interrupted":
            await client.event("item/agentMessage/delta", turnId=turn)
        if how == "tool":
            await client.event("item/tool/call", turnId=turn)
        if how in ("interrupted", "tool"):
            await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await client.ended(turn)
        await client.settled()
        told = [event["method"] for event in client.events(thread)]
        assert told[-1] == "turn/completed"
        assert told.count("turn/completed") == 1
        idle = [event for event in client.events(thread) if event["method"] == "thread/status/changed"][-1]
        assert idle["params"]["status"]["type"] in ("idle", "systemError")
        if how == "tool":
            assert told.index("serverRequest/resolved") < told.index("turn/completed")
