"""Every method once as it should be used, and each refusal of it: its code, text and reason, and nothing changed."""

from dataclasses import dataclass
from typing import Any

import pytest
from unspool_protocol.methods import EMPTY_LISTS, METHODS

from tests.interaction.house import House, LocalDaemon
from tests.interaction.refusals import ITEM, REFUSALS
from tests.interaction.wire import Client

LIFECYCLE_ADDITIONS = {"thread/compact", "thread/rollback", "thread/rollback/undo", "server/diagnostics"}
UNKNOWN = "01a22c00-0000-7000-8000-000000000000"


@dataclass
class World:
    """Threads in every state."""

    client: Client
    plain: str
    turns: list[str]
    legacy: str
    parent: str
    ephemeral: str
    unused: str
    archived: str
    unloaded: str

    @property
    def ids(self) -> dict[str, str]:
        """What stands for the names in the tables below."""
        return {
            "PLAIN": self.plain,
            "TURN": self.turns[0],
            "LEGACY": self.legacy,
            "PARENT": self.parent,
            "EPHEMERAL": self.ephemeral,
            "UNUSED": self.unused,
            "ARCHIVED": self.archived,
            "UNLOADED": self.unloaded,
            "UNKNOWN": UNKNOWN,
        }

    def put(self, value: Any) -> Any:
        """Ids in place of their names."""
        if isinstance(value, dict):
            return {key: self.put(one) for key, one in value.items()}
        if isinstance(value, str):
            for name, thread in sorted(self.ids.items(), reverse=True):
                value = value.replace(name, thread)
        return value


async def build(house: House, daemon: LocalDaemon) -> World:
    """Threads in every state, and a client that is subscribed to the loaded ones."""
    client = await daemon.connect()
    work = str(house.work)
    plain = await client.start(cwd=work)
    turns = await client.turns(plain, "one", "two")
    legacy = await client.start(cwd=work, historyMode="legacy")
    await client.turn(legacy, "one")
    ephemeral = await client.start(cwd=work, ephemeral=True)
    await client.turn(ephemeral, "one")
    unused = await client.start(cwd=work)
    parent = await client.start(cwd=work)
    await client.turn(parent, "one")
    await client.call("thread/fork", {"threadId": parent})
    archived = await client.start(cwd=work)
    await client.turn(archived, "one")
    await client.call("thread/archive", {"threadId": archived})
    unloaded = await client.start(cwd=work)
    await client.turn(unloaded, "one")
    await daemon.services.sessions.unload(unloaded)
    await client.settled()
    return World(client, plain, turns, legacy, parent, ephemeral, unused, archived, unloaded)


async def state(house: House, world: World) -> dict[str, Any]:
    """Everything that a refused request could have changed."""
    reads = {
        name: await world.client.call("thread/read", {"threadId": one, "includeTurns": name != "EPHEMERAL"})
        for name, one in world.ids.items()
        if name not in ("TURN", "UNKNOWN")
    }
    listed = await world.client.call("thread/list", {})
    return {"logs": house.logs(), "reads": reads, "listed": listed, "loaded": await loaded(world.client)}


async def loaded(client: Client) -> list[str]:
    """Ids of loaded threads."""
    found: list[str] = (await client.call("thread/loaded/list", {}))["data"]
    return found


async def test_every_refusal_says_why_and_changes_nothing(house: House) -> None:
    async with house.daemon() as daemon:
        world = await build(house, daemon)
        before = await state(house, world)
        mark = world.client.mark
        for method, params, text, reason in REFUSALS:
            refused = await world.client.refused(method, world.put(params))
            expected = world.put(text)
            where = f"{method} {params}"
            if expected.endswith(" "):
                assert refused.message.startswith(expected), where
            elif expected:
                assert refused.message == expected, where
            code = -32601 if text == "thread/items/list is not supported yet" else -32600
            assert (refused.code, refused.reason) == (code, reason), where
        assert set(world.client.outline(mark)) <= {"error", "deprecationNotice", "thread/status/changed"}
        assert world.client.count("turn/completed", mark) == 0
        after = await state(house, world)
        for part, value in before.items():
            assert after[part] == value, part


async def test_every_method_is_served(house: House) -> None:
    called: set[str] = {"initialize"}
    house.settings["allow_login_shell"] = False  # whatever the login files of this machine do
    async with house.daemon() as daemon:
        client = await daemon.connect()

        async def call(method: str, **params: Any) -> Any:
            called.add(method)
            return await client.call(method, params)

        started = await call("thread/start", cwd=str(house.work))
        thread = started["thread"]["id"]
        assert started["modelProvider"] == "offline" and started["cwd"] == str(house.work)
        assert started["thread"]["status"] == {"type": "idle"} and started["sandbox"]["type"] == "readOnly"
        text = [{"type": "text", "text": "one"}]
        turn = (await call("turn/start", threadId=thread, input=text))["turn"]["id"]
        await client.ended(turn)
        second = await client.turn(thread, "two")
        assert (await call("thread/resume", threadId=thread))["thread"]["id"] == thread
        assert len((await call("thread/fork", threadId=thread))["thread"]["turns"]) == 2
        assert (await call("thread/read", threadId=thread))["thread"]["preview"] == "one"
        newest = await call("thread/turns/list", threadId=thread, limit=1)
        assert [one["id"] for one in newest["data"]] == [second] and newest["nextCursor"]
        older = await call("thread/turns/list", threadId=thread, cursor=newest["nextCursor"])
        assert [one["id"] for one in older["data"]] == [turn] and older["nextCursor"] is None
        items = await call("thread/items/list", threadId=thread)
        assert [entry["turnId"] for entry in items["data"]] == [turn, turn, second, second]
        assert (await call("thread/items/list", threadId=thread, turnId="nope"))["data"] == []
        assert thread in [one["id"] for one in (await call("thread/list"))["data"]]
        assert thread in (await call("thread/loaded/list"))["data"]
        assert await call("thread/name/set", threadId=thread, name=" named ") == {}
        assert (await client.read(thread))["name"] == "named"
        assert await call("thread/inject_items", threadId=thread, items=[ITEM]) == {}
        assert await call("thread/settings/update", threadId=thread, model="m") == {}
        assert len((await call("thread/compact", threadId=thread, summary="S"))["thread"]["turns"]) == 3
        assert len((await call("thread/rollback", threadId=thread, numTurns=1))["thread"]["turns"]) == 1
        assert len((await call("thread/rollback/undo", threadId=thread))["thread"]["turns"]) == 3
        reverted = await call("thread/revert", threadId=thread, beforeTurnId=second)
        assert reverted["thread"]["turns"] == [] and reverted["turnsBackwardsCursor"]
        await client.until(lambda _: client.count("thread/reverted") == 3)
        mark = client.mark
        assert await call("thread/compact/start", threadId=thread) == {}
        begun = await client.event("turn/started", since=mark)
        await client.ended(begun["params"]["turn"]["id"])
        assert await call("thread/goal/get", threadId=thread) == {"goal": None}
        assert (await call("thread/backgroundTerminals/list", threadId=thread))["data"] == []
        assert await call("thread/goal/clear", threadId=thread) == {}
        assert (await call("server/diagnostics"))["process"]
        read = await call("thread/readState/update", threadId=thread, operation={"type": "read"}, expectedRevision=None)
        assert read["readState"]["firstUnread"] is None
        changed = await call("thread/metadata/update", threadId=thread, gitInfo={"branch": "b"}, projectId="p")
        assert (changed["thread"]["gitInfo"]["branch"], changed["thread"]["projectId"]) == ("b", "p")
        assert await call("turn/settings/update", threadId=thread, effort="low") == {}
        called |= {"thread/goal/set", "account/rateLimits/read"}  # refused, see `refusals`
        await interrupted_and_steered(daemon, client, house, called)
        assert await call("thread/backgroundTerminals/clean", threadId=thread) == {}
        terminated = await call("thread/backgroundTerminals/terminate", threadId=thread, processId="1")
        assert terminated == {"terminated": False}
        mark = client.mark
        assert await call("thread/shellCommand", threadId=thread, command="true") == {}
        await client.event("turn/completed", since=mark)
        assert await call("thread/unsubscribe", threadId=thread) == {"status": "unsubscribed"}
        assert await call("thread/archive", threadId=thread) == {}
        assert (await call("thread/unarchive", threadId=thread))["thread"]["status"] == {"type": "notLoaded"}
        await starting_up(client, called)
        other = await client.start(cwd=str(house.work))
        await client.turn(other, "one")
        assert await call("thread/delete", threadId=other) == {}
    additions = {name for name, method in METHODS.items() if method.ours}
    assert called == (set(METHODS) - additions) | LIFECYCLE_ADDITIONS


async def interrupted_and_steered(daemon: LocalDaemon, client: Client, house: House, called: set[str]) -> None:
    """The calls that need a running turn; what they cause is told elsewhere."""
    called |= {"turn/interrupt", "turn/steer"}
    thread = await client.start(cwd=str(house.work))
    model: Any = daemon.services.env.providers.get("offline")
    model.script.replies.extend([[{"hang": True}], [{"hang": True}]])
    turn = await client.begin(thread, "go")
    given = [{"type": "text", "text": "more"}]
    params = {"threadId": thread, "expectedTurnId": turn, "input": given}
    assert await client.call("turn/steer", params) == {"turnId": turn}
    refused = await client.refused("turn/steer", {**params, "expectedTurnId": "A"})
    assert refused.message == f"expected active turn id `A` but found `{turn}`"
    assert refused.data == {"reason": "otherActiveTurn", "turnId": turn}
    refused = await client.refused("turn/steer", {**params, "input": []})
    assert (refused.message, refused.reason) == ("input must not be empty", "invalidParams")
    refused = await client.refused("turn/interrupt", {"threadId": thread, "turnId": "A"})
    assert refused.message == f"expected active turn id A but found {turn}"
    assert await client.call("turn/interrupt", {"threadId": thread, "turnId": turn}) == {}
    assert (await client.ended(turn))["status"] == "interrupted"
    model.script.replies.clear()


async def starting_up(client: Client, called: set[str]) -> None:
    """What clients ask when they start."""
    expected: dict[str, Any] = {
        "account/read": {"account": None, "requiresOpenaiAuth": False},
        "configRequirements/read": {"requirements": None},
        "getAuthStatus": {"authMethod": None, "authToken": None, "requiresOpenaiAuth": False},
        "account/bedrock/checkGovCloudRequirements": {"isGovCloud": False, "shouldWarn": False},
        "plugin/list": {"marketplaces": [], "marketplaceLoadErrors": []},
        "plugin/installed": {"marketplaces": [], "marketplaceLoadErrors": []},
        "mcpServerStatus/list": {"data": [], "nextCursor": None},
        "config/mcpServer/reload": {},
    }
    for method, result in expected.items():
        found = await client.call(method, {})
        assert {key: found.get(key) for key in result} == result, method
    for method in (*EMPTY_LISTS, "thread/queue/list"):
        assert (await client.call(method, {}))["data"] == []
    models = (await client.call("model/list", {}))["data"]
    assert [model["isDefault"] for model in models].count(True) == 1
    config = (await client.call("config/read", {"includeLayers": False, "cwd": "."}))["config"]
    assert config["model_provider"] == "offline" and "model_providers" not in config
    called |= {*expected, *EMPTY_LISTS, "thread/queue/list", "model/list", "config/read"}


async def test_nothing_is_served_before_the_handshake(any_house: House) -> None:
    async with any_house.running() as daemon:
        client = await daemon.raw_client()
        refused = await client.refused("thread/start", {})
        assert (refused.code, refused.message, refused.reason) == (-32600, "Not initialized", "notInitialized")
        refused = await client.refused("initialize", {"clientInfo": {"name": "n"}})
        assert (refused.code, refused.reason) == (-32600, "invalidParams")
        await client.call("initialize", {"clientInfo": {"name": "", "version": ""}})
        assert (await client.call("thread/loaded/list", {}))["data"] == []
        assert client.count("thread/started") == 0


@pytest.mark.parametrize(
    ("method", "params", "what"),
    [
        ("thread/start", {"dynamicTools": []}, "thread/start.dynamicTools"),
        ("thread/start", {"historyMode": "legacy"}, "thread/start.historyMode"),
        ("thread/resume", {"threadId": UNKNOWN, "initialTurnsPage": {}}, "thread/resume.initialTurnsPage"),
        ("collaborationMode/list", {}, "collaborationMode/list"),
    ],
)
async def test_experimental_members_need_the_capability(house: House, method: str, params: Any, what: str) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect(experimentalApi=False)
        refused = await client.refused(method, params)
        assert refused.message == f"{what} requires experimentalApi capability"
        assert (refused.code, refused.reason) == (-32600, "experimentalApi")
        assert (await client.call("thread/loaded/list", {}))["data"] == [] and house.logs() == {}
        await client.call("thread/start", {"dynamicTools": None, "historyMode": None, "cwd": str(house.work)})


async def test_a_thread_that_never_ran_has_no_turns_and_can_be_archived(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        assert (await client.read(thread))["turns"] == []
        for method in ("thread/turns/list", "thread/items/list"):
            assert (await client.call(method, {"threadId": thread}))["data"] == []
        assert (await client.call("thread/list", {}))["data"] == []
        assert await client.call("thread/archive", {"threadId": thread}) == {}
        assert (await client.call("thread/read", {"threadId": thread}))["thread"]["id"] == thread


async def test_an_archived_thread_is_read_and_listed_as_such_and_comes_back_whole(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        await client.call("thread/archive", {"threadId": thread})
        assert await client.shown(thread) == [["one", "one"]]
        assert (await client.call("thread/list", {}))["data"] == []
        assert [t["id"] for t in (await client.call("thread/list", {"archived": True}))["data"]] == [thread]
        assert not list((house.home / "sessions").rglob("*.jsonl"))
        await client.call("thread/unarchive", {"threadId": thread})
        await client.call("thread/resume", {"threadId": thread})
        await client.call("thread/rollback/undo", {"threadId": thread})
        assert await client.shown(thread) == [["one", "one"], ["two", "two"]]


async def test_threads_are_listed_once_each_in_pages_newest_first(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        ids = []
        for number in range(5):
            ids.append(await client.start(cwd=str(house.work)))
            await client.turn(ids[-1], f"number {number}")
            await client.turn(ids[-1], "more")
            await client.call("thread/rollback", {"threadId": ids[-1], "numTurns": 1})
        found: list[str] = []
        cursor = None
        while True:
            page = await client.call("thread/list", {"limit": 2, "cursor": cursor, "sourceKinds": None})
            assert len(page["data"]) <= 2 and all(one["turns"] == [] for one in page["data"])
            found += [one["id"] for one in page["data"]]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        assert sorted(found) == sorted(ids) and found[0] == ids[-1]
        hits = await client.call("thread/list", {"searchTerm": "number 3"})
        assert [one["id"] for one in hits["data"]] == [ids[3]]


async def test_two_daemons_cannot_write_one_thread(house: House) -> None:
    async with house.daemon() as daemon, house.daemon() as second:
        client, other = await daemon.connect(), await second.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        refused = await other.refused("thread/resume", {"threadId": thread})
        assert (refused.code, refused.reason) == (-32600, "held")
        assert await other.shown(thread) == [["one", "one"]]
        await daemon.services.sessions.unload(thread)
        await other.call("thread/resume", {"threadId": thread})
        await other.turn(thread, "two")
