"""Listing, archiving and finding: every thread that has a log is there, once, and a refusal says why."""

from typing import Any

from tests.interaction.house import House
from tests.interaction.wire import Client


async def listed(client: Client, **params: Any) -> list[str]:
    """The ids of all pages, in order."""
    ids: list[str] = []
    cursor = None
    while True:
        page = await client.call("thread/list", {"limit": 2, "cursor": cursor, **params})
        ids += [thread["id"] for thread in page["data"]]
        cursor = page["nextCursor"]
        if cursor is None:
            return ids


async def test_b111_threads_are_listed_whatever_their_first_message_was(house: House) -> None:
    """Threads whose first message was empty, an image or given later never appeared in lists."""
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        empty, image, named, plain = [await client.start(cwd=str(house.work)) for _ in range(4)]
        await client.ended(await client.begin(empty))
        picture = [{"type": "image", "url": "data:image/png;base64,AA=="}]
        begun = await client.call("turn/start", {"threadId": image, "input": picture})
        await client.ended(begun["turn"]["id"])
        await client.call("thread/name/set", {"threadId": named, "name": "only a name"})
        await client.turn(plain, "words")
        threads = {empty, image, named, plain}
        assert set(await listed(client)) == threads
        previews = {one["id"]: one["preview"] for one in (await client.call("thread/list", {}))["data"]}
        assert (previews[empty], previews[plain]) == ("", "words")
    house.only_logs_stay()
    async with house.daemon() as daemon:
        assert set(await listed(await daemon.connect())) == threads


async def test_b111_a_thread_with_several_files_is_listed_once_on_every_page(house: House) -> None:
    """After a revert the same id came twice, once for each of its files."""
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        threads = [await client.start(cwd=str(house.work)) for _ in range(3)]
        for thread in threads:
            turns = await client.turns(thread, "one", "two")
            await client.call("thread/revert", {"threadId": thread, "beforeTurnId": turns[1]})
        for direction in ("asc", "desc"):
            for key in ("created_at", "updated_at"):
                found = await listed(client, sortDirection=direction, sortKey=key)
                assert sorted(found) == sorted(threads)


async def test_b113_a_home_that_is_named_by_another_path_archives_all_the_same(house: House) -> None:
    """An odd spelling of the path in an index kept threads from being archived; ids are what counts."""
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        assert await listed(client) == [thread]
    link = house.home.parent / "linked"
    link.symlink_to(house.home, target_is_directory=True)
    odd = House(link / "sessions" / "..", house.work)
    odd.offline()
    async with odd.daemon() as daemon:
        client = await daemon.connect()
        assert await listed(client) == [thread]
        await client.call("thread/archive", {"threadId": thread})
        assert (await listed(client), await listed(client, archived=True)) == ([], [thread])
        back = await client.call("thread/unarchive", {"threadId": thread})
        assert back["thread"]["id"] == thread and await client.shown(thread) == [["one", "one"]]


async def test_b115_whoever_may_not_archive_or_delete_learns_who_holds_the_thread(house: House) -> None:
    """It only said 'failed' when another process held the thread."""
    house.offline()
    async with house.daemon() as one, house.daemon() as other:
        client, second = await one.connect(), await other.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        moves: list[tuple[str, dict[str, Any]]] = [
            ("thread/archive", {}),
            ("thread/delete", {}),
            ("thread/name/set", {"name": "mine"}),
            ("thread/metadata/update", {"projectId": "mine"}),
            ("thread/readState/update", {"operation": {"type": "read"}, "expectedRevision": None}),
        ]
        for method, params in moves:
            refusal = await second.refused(method, {"threadId": thread, **params})
            assert refusal.reason == "held" and "process" in refusal.data["holder"], method
        shown = await client.call("thread/read", {"threadId": thread})
        assert (shown["thread"]["name"], shown["thread"]["projectId"]) == (None, None)
        assert shown["readState"]["firstUnread"] is not None


async def test_filters_that_clients_send_with_a_list_are_followed(house: House) -> None:
    """A filter that is passed over shows threads where none belong, as pinned ones for example."""
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        one, two = [await client.start(cwd=str(house.work)) for _ in range(2)]
        await client.turn(one, "one")
        await client.turn(two, "two")
        assert await listed(client, includedThreadIds=[one]) == [one]
        assert await listed(client, excludedThreadIds=[one]) == [two]
        assert await listed(client, originators=["somebody"]) == []
        assert sorted(await listed(client, originators=["tester"])) == sorted([one, two])
        assert await listed(client, sectionId="pinned") == [] == await listed(client, attachedToThreadId=one)
        assert await listed(client, ancestorThreadId=one) == [] == await listed(client, parentThreadId=one)
