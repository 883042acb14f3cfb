"""`thread/lineage`: the whole tree around a thread in one call, with the places where clients can cut."""

import json
from typing import Any

from tests.interaction.house import House
from tests.interaction.wire import Client

Tree = dict[str, Any]


async def lineage(client: Client, thread: str, **params: Any) -> Tree:
    found: Tree = await client.call("thread/lineage", {"threadId": thread, **params})
    return found


def outline(tree: Tree) -> list[tuple[str, str, str]]:
    return [(edge["kind"], edge["fromThreadId"], edge["toThreadId"]) for edge in tree["edges"]]


def node(tree: Tree, thread: str) -> dict[str, Any]:
    return next(one for one in tree["threads"] if one["threadId"] == thread)


async def forked(client: Client, thread: str, **params: Any) -> str:
    answer = await client.call("thread/fork", {"threadId": thread, "excludeTurns": True, **params})
    child: str = answer["thread"]["id"]
    return child


async def test_every_thread_of_a_tree_gives_the_same_tree(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        root = await client.start(cwd=str(house.work))
        await client.turns(root, "one", "two")
        child = await forked(client, root)
        await client.turn(child, "three")
        grandchild = await forked(client, child)
        stranger = await client.start(cwd=str(house.work))
        await client.turn(stranger, "else")
        await client.call("thread/rollback", {"threadId": root, "numTurns": 1})
        await client.call("thread/name/set", {"threadId": child, "name": "second try"})
        trees = [await lineage(client, thread) for thread in (root, child, grandchild)]
    assert trees[0] == trees[1] == trees[2]
    tree = trees[0]
    assert {one["threadId"] for one in tree["threads"]} == {root, child, grandchild}
    assert sorted(outline(tree)) == sorted(
        [("fork", root, child), ("fork", child, grandchild), ("segment", root, root)]
    )
    assert node(tree, child)["name"] == "second try"
    assert node(tree, root)["preview"] == "one" and node(tree, root)["loaded"]
    assert len(node(tree, root)["rolloutIds"]) == 2
    at = {edge["toThreadId"]: edge["at"] for edge in tree["edges"] if edge["kind"] == "fork"}
    assert at[child]["rolloutId"] == root and at[child]["ordinal"] > 0


async def test_boundaries_are_the_inputs_of_the_present_and_cuts_take_their_turn_along(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        first = await client.turn(thread, "one")
        await client.turn(thread, "two")
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        last = await client.turn(thread, "three")
        found = node(await lineage(client, thread), thread)
        entries = (await client.call("thread/audit", {"threadId": thread}))["data"]
    at = {(entry["rolloutId"], entry["ordinal"]): entry for entry in entries}
    boundaries = found["boundaries"]
    assert [(one["turnId"], one["preview"], one["kind"]) for one in boundaries] == [
        (last, "three", "user"),
        (first, "one", "user"),
    ]
    assert found["boundaryCursor"] is None
    for one in boundaries:
        assert at[tuple(one["position"].values())]["label"] == f"user: {one['preview']}"
        assert at[tuple(one["cut"].values())]["event"] == "task_started"


async def test_boundaries_come_in_pages_that_go_on_at_their_cursor(house: House) -> None:
    for mode in ("legacy", "paginated"):
        async with house.daemon() as daemon:
            client = await daemon.connect()
            thread = await client.start(cwd=str(house.work), historyMode=mode)
            await client.turns(thread, "one", "two", "three", "four", "five")
            tree = await lineage(client, thread, boundaryLimit=2)
            found = node(tree, thread)
            previews = [one["preview"] for one in found["boundaries"]]
            while (cursor := found["boundaryCursor"]) is not None:
                page = await lineage(client, thread, boundaryLimit=2, cursor=cursor)
                assert [one["threadId"] for one in page["threads"]] == [thread] and page["edges"] == []
                found = page["threads"][0]
                previews += [one["preview"] for one in found["boundaries"]]
            assert previews == ["five", "four", "three", "two", "one"]
            assert node(await lineage(client, thread, boundaryLimit=0), thread)["boundaries"] == []


async def test_a_spawned_agent_is_part_of_the_tree_and_its_triggering_messages_are_boundaries(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        parent = await client.start(cwd=str(house.work))
        await client.turn(parent, "one")
        agent = await client.start(cwd=str(house.work))
        await client.turn(agent, "work")
    path = house.log_file(agent)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines[0]["payload"]["parent_thread_id"] = parent
    end = lines[-1]["ordinal"]
    envelope = {"author": "/root", "recipient": "/root/a", "content": "do it", "trigger_turn": True}
    for number, payload in enumerate((envelope, {**envelope, "trigger_turn": False, "content": "fyi"}), start=1):
        lines.append({"ordinal": end + number, "type": "inter_agent_communication", "payload": payload})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    house.only_logs_stay()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        tree = await lineage(client, parent)
    assert outline(tree) == [("subAgent", parent, agent)]
    assert not node(tree, agent)["loaded"]
    assert [(one["kind"], one["preview"]) for one in node(tree, agent)["boundaries"]] == [
        ("agent", "do it"),
        ("user", "work"),
    ]


async def test_threads_that_are_only_named_are_shown_as_missing(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        parent = await client.start(cwd=str(house.work), historyMode="legacy")
        await client.turn(parent, "one")
        child = await forked(client, parent)
        await client.call("thread/delete", {"threadId": parent})
        tree = await lineage(client, child)
    assert outline(tree) == [("fork", parent, child)]
    assert node(tree, parent)["missing"] and not node(tree, child)["missing"]
    assert node(tree, parent)["rolloutIds"] == []


async def test_cursors_that_are_none_are_refused(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        one = await client.start(cwd=str(house.work))
        two = await client.start(cwd=str(house.work))
        await client.turns(one, "a", "b")
        await client.turns(two, "a", "b")
        cursor = node(await lineage(client, one, boundaryLimit=1), one)["boundaryCursor"]
        reasons = [
            (await client.refused("thread/lineage", {"threadId": two, "cursor": text})).reason
            for text in (cursor, "nonsense")
        ]
    assert reasons == ["cursorInvalid"] * 2
