"""Logs on which the reference's two views disagree: here the client view, the audit and rollback follow the model."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from unspool_protocol.log import HistoryMode, Record
from unspool_server.history.items import history_item

from tests.history.rows import OUR_CLIENT_TURNS, Row, our_rows, render
from tests.interaction.house import House
from tests.interaction.wire import Client

ROWS = [row for row in our_rows() if row.number in OUR_CLIENT_TURNS]
THREAD = "01990000-0000-7000-8000-0000000000aa"
START = "2026-01-02T03-04-05"


def put(house: House, row: Row) -> list[Record]:
    """Write a row as the log of a thread; returns its records."""
    records = row.records
    own = {"id": THREAD, "session_id": THREAD, "cwd": str(house.work), "model_provider": "offline"}
    first = {"timestamp": "2026-01-02T03:04:05.000Z", "originator": "tester", "cli_version": "0.98.0", "source": "cli"}
    records[0] = replace(records[0], payload={**records[0].payload, **own, **first})
    folder = house.home / "sessions" / "2026" / "01" / "02"
    folder.mkdir(parents=True)
    lines = [_line(record, row.mode) for record in records]
    (folder / f"rollout-{START}-{THREAD}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return records


def _line(record: Record, mode: HistoryMode) -> dict[str, Any]:
    ordinal = {} if mode is HistoryMode.LEGACY else {"ordinal": record.ordinal}
    stamp = f"2026-01-02T03:04:{5 + record.ordinal:02}.000Z"
    return {"timestamp": stamp, **ordinal, "type": record.type, "payload": record.payload}


def turn_words(turns: list[dict[str, Any]]) -> str:
    return " ".join(turn["id"] + ("!" if turn["status"] == "interrupted" else "") for turn in turns) or "(none)"


async def entries_of(client: Client) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = (await client.call("thread/audit", {"threadId": THREAD}))["data"]
    return entries


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
async def test_every_view_of_a_contradicting_log_follows_the_model(house: House, row: Row) -> None:
    records = put(house, row)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        cold = (await client.call("thread/read", {"threadId": THREAD, "includeTurns": True}))["thread"]["turns"]
        resumed = (await client.call("thread/resume", {"threadId": THREAD}))["thread"]["turns"]
        read = (await client.read(THREAD))["turns"]
        listed = await client.call("thread/turns/list", {"threadId": THREAD, "sortDirection": "asc"})
        history = daemon.session(THREAD).history.state.history
        entries = await entries_of(client)
    assert turn_words(read) == row.client_turns
    assert cold == resumed == read
    assert turn_words(listed["data"]) == row.client_turns
    assert " ".join(render(item) for item in history) in (row.history, "") or row.history == "(empty)"
    shown = {item for entry in entries if entry["client"]["inForce"] for item in entry["itemIds"]}
    assert shown == {item["id"] for turn in read for item in turn["items"]}
    told = [
        render(item)
        for entry, record in zip(entries, records, strict=True)
        if entry["model"]["inForce"] and (item := history_item(record)) is not None
    ]
    assert all(word in row.history for word in told)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
async def test_a_rollback_of_such_a_log_counts_the_turns_that_are_shown(house: House, row: Row) -> None:
    put(house, row)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": THREAD})
        turns = (await client.read(THREAD))["turns"]
        asked = [turn for turn in turns if any(item["type"] == "userMessage" for item in turn["items"])]
        refusal = await client.refused("thread/rollback", {"threadId": THREAD, "numTurns": len(asked) + 1})
        assert (refusal.reason, refusal.data["available"]) == ("turnsOutOfRange", len(asked))
        if asked:
            changed = await client.call("thread/rollback", {"threadId": THREAD, "numTurns": len(asked)})
            left = [turn["id"] for turn in changed["thread"]["turns"]]
            assert left == [turn["id"] for turn in turns[: turns.index(asked[0])]]
            users = [render(item) for item in daemon.session(THREAD).history.state.history]
            assert not [word for word in users if re.match(r"U\(", word)]


@pytest.mark.parametrize("direction", ["asc", "desc"])
async def test_pages_of_a_paginated_log_with_a_marker_skip_what_it_removed(house: House, direction: str) -> None:
    log = "Tp(t1,u1,a1,m) Tp(t2,u2,a2,m) RB(1) Tp(t3,u3,a3,m) Tp(t4,u4,a4,m) Tp(t5,u5,a5,m) RB(2) Tp(t6,u6,a6,m)"
    put(house, replace(ROWS[0], log=log, mode=HistoryMode.PAGINATED))
    shown: list[str] = []
    async with house.daemon() as daemon:
        client = await daemon.connect()
        cursor = None
        while True:
            params = {"threadId": THREAD, "limit": 1, "cursor": cursor, "sortDirection": direction}
            page = await client.call("thread/turns/list", params)
            shown += [turn["id"] for turn in page["data"]]
            cursor = page["nextCursor"]
            if cursor is None:
                break
    assert shown == (["t1", "t3", "t6"] if direction == "asc" else ["t6", "t3", "t1"])
