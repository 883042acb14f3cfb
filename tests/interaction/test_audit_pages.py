"""`thread/audit`: every line of a thread's log with its fate, in pages, also of branches and damaged logs."""

import json
from typing import Any

import pytest

from tests.history.codex_logs import SCENARIOS
from tests.interaction.house import House
from tests.interaction.wire import Client

Entry = dict[str, Any]
VIEWS = ("model", "client", "baseline")


async def audit(client: Client, thread: str, **params: Any) -> list[Entry]:
    """All entries, page after page."""
    entries: list[Entry] = []
    cursor = None
    while True:
        page = await client.call("thread/audit", {"threadId": thread, "cursor": cursor, **params})
        entries += page["data"]
        cursor = page["nextCursor"]
        if cursor is None:
            assert len(entries) == page["total"]
            return entries


def place(entry: Entry) -> tuple[str, int]:
    return entry["rolloutId"], entry["ordinal"]


def labelled(entries: list[Entry], label: str) -> Entry:
    found = [entry for entry in entries if entry["label"] == label]
    assert len(found) == 1, [entry["label"] for entry in entries]
    return found[0]


async def test_pages_in_either_direction_hold_every_line_once(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two", "three")
        forward = await audit(client, thread, limit=7)
        backward = await audit(client, thread, limit=5, sortDirection="desc")
    lines = house.records(thread)
    assert [entry["type"] for entry in forward] == [line["type"] for line in lines]
    assert [place(entry) for entry in forward] == [(thread, line["ordinal"]) for line in lines]
    assert backward == forward[::-1]


async def test_a_page_can_be_turned_round_at_its_first_line(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        first = await client.call("thread/audit", {"threadId": thread, "limit": 4})
        params = {"threadId": thread, "limit": 4, "cursor": first["nextCursor"]}
        second = await client.call("thread/audit", params)
        back = {"threadId": thread, "cursor": second["backwardsCursor"], "sortDirection": "desc", "limit": 2}
        turned = await client.call("thread/audit", back)
    assert turned["data"] == [second["data"][0], first["data"][-1]]


async def test_paging_goes_on_in_the_same_branch_after_a_rollback(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        before = await audit(client, thread)
        page = await client.call("thread/audit", {"threadId": thread, "limit": 3})
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        rest = await client.call("thread/audit", {"threadId": thread, "cursor": page["nextCursor"]})
    assert [*page["data"], *rest["data"]] == before


async def test_what_a_rollback_left_is_out_by_the_header_of_its_branch(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        old = await audit(client, thread)
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        await client.turn(thread, "three")
        new = await audit(client, thread)
        branches = (await client.call("thread/branches", {"threadId": thread}))["data"]
        left = await audit(client, thread, rolloutId=branches[0]["rolloutId"])
        turns = (await client.read(thread))["turns"]
    assert left == old
    header = labelled(new, "header of a branch (rollback)")
    by = {"rolloutId": header["rolloutId"], "ordinal": header["ordinal"]}
    gone = labelled(new, "user: two")
    assert [gone[view] for view in VIEWS] == [{"inForce": False, "reason": "rollback", "by": by}] * 3
    assert labelled(new, "user: three")["model"] == {"inForce": True}
    shown = {item for entry in new if entry["client"]["inForce"] for item in entry["itemIds"]}
    assert shown == {item["id"] for turn in turns for item in turn["items"]}


async def test_the_raw_lines_are_handed_over_when_asked_for(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        plain = await audit(client, thread, limit=4)
        entries = await audit(client, thread, limit=4, includeRaw=True)
    assert all("raw" not in entry for entry in plain)
    assert [json.loads(entry["raw"]) for entry in entries] == house.records(thread)


async def test_a_thread_that_is_not_loaded_is_audited_without_loading_it(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        live = await audit(client, thread)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert await audit(client, thread) == live
        assert (await client.call("thread/loaded/list", {}))["data"] == []


async def test_a_thread_that_never_ran_has_no_lines(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        page = await client.call("thread/audit", {"threadId": thread})
    assert (page["data"], page["total"], page["nextCursor"]) == ([], 0, None)


async def test_unreadable_lines_are_entries_at_their_place(house: House) -> None:
    thread = house.borrow("plain_turns")
    path = house.log_file(thread)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:5], b"{broken\n", *lines[5:], b'{"torn'])[:])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        entries = await audit(client, thread, limit=3)
    faults = [(index, entry["fault"]) for index, entry in enumerate(entries) if "fault" in entry]
    assert faults == [(5, "invalidJson"), (len(lines) + 1, "tornTail")]
    assert entries[5]["type"] is None
    assert [entries[5][view] for view in VIEWS] == [{"inForce": False, "reason": "damage"}] * 3


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_captured_thread_is_shown_as_its_audit_tells(house: House, scenario: str) -> None:
    thread = house.borrow(scenario)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        read = await client.call("thread/read", {"threadId": thread, "includeTurns": True})
        entries = await audit(client, thread)
    told = [(e["turnId"], item) for e in entries if e["client"]["inForce"] for item in e["itemIds"]]
    shown = {(turn["id"], item["id"]) for turn in read["thread"]["turns"] for item in turn["items"]}
    assert set(told) == shown


async def test_cursors_and_branches_of_other_threads_are_refused(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        one = await client.start(cwd=str(house.work))
        two = await client.start(cwd=str(house.work))
        await client.turn(one, "one")
        await client.turn(two, "two")
        cursor = (await client.call("thread/audit", {"threadId": one, "limit": 1}))["nextCursor"]
        reasons = [
            (await client.refused("thread/audit", params)).reason
            for params in (
                {"threadId": two, "cursor": cursor},
                {"threadId": one, "cursor": "nonsense"},
                {"threadId": one, "rolloutId": two},
                {"threadId": one, "rolloutId": two, "cursor": cursor},
                {"threadId": "01990000-0000-7000-8000-000000000000"},
            )
        ]
    assert reasons == ["cursorInvalid", "cursorInvalid", "rolloutNotFound", "cursorInvalid", "threadNotFound"]
