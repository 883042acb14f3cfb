"""Threads of another tenant: whatever is asked, they are as if they did not exist (DESIGN §9.6)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from pydantic.fields import FieldInfo
from unspool_protocol.methods import METHODS
from unspool_server.access.disguise import Disguise, usual_spelling
from unspool_server.access.principal import Scope
from unspool_server.handlers.door import thread_fields

from tests.access.callers import caller, principal
from tests.interaction.house import TOOL, House, LocalDaemon
from tests.interaction.wire import Client, Message, thread_of

UNKNOWN = "01a22c00-0000-7000-8000-00000000abcd"
NAMING = {
    name: (method.params, tuple(thread_fields(method.params)))
    for name, method in METHODS.items()
    if method.params is not None and any(thread_fields(method.params))
}
"""Every method that names a thread, with its parameters and which of them do."""

ALSO: dict[str, dict[str, Any]] = {
    "turn/start": {"input": [{"type": "text", "text": "x"}]},
    "turn/steer": {"input": [{"type": "text", "text": "x"}], "expectedTurnId": UNKNOWN},
    "thread/inject_items": {"items": [{"type": "message", "role": "user", "content": []}]},
    "thread/rollback": {"numTurns": 1},
    "thread/restore": {"at": {"ordinal": 5}},
    "thread/compact": {"summary": "x", "keepLast": 0},
}


@dataclass
class Neighbours:
    """Two tenants of one daemon; `theirs` are threads of the second one, in every state a thread can have."""

    daemon: LocalDaemon
    ours: Client
    them: Client
    own: str = ""
    theirs: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def neighbours(house: House, first: str = "a", second: str = "b") -> AsyncIterator[Neighbours]:
    house.offline()
    async with house.daemon() as daemon:
        us = await caller(daemon, principal("us", first))
        them = await caller(daemon, principal("them", second))
        try:
            yield Neighbours(daemon, us, them)
        finally:
            await us.close()
            await them.close()


async def settle_in(two: Neighbours, work: str) -> None:
    two.own = await two.ours.start(cwd=work)
    await two.ours.turn(two.own, "mine")
    for state in ("live", "unused", "unloaded", "archived", "ephemeral"):
        thread = two.theirs[state] = await two.them.start(cwd=work, ephemeral=state == "ephemeral")
        if state != "unused":
            await two.them.turn(thread, "hidden words")
    await two.them.call("thread/archive", {"threadId": two.theirs["archived"]})
    await two.daemon.services.sessions.unload(two.theirs["unloaded"])


def _required(info: FieldInfo) -> Any:
    return 1 if info.annotation is int else "x" if info.annotation is str else []


def request(method: str, member: str, thread: str, own: str) -> dict[str, Any]:
    """Valid parameters that name a thread in one member, and the caller's own thread wherever else one is due."""
    params, members = NAMING[method]
    given = dict(ALSO.get(method, {}))
    for name, info in params.model_fields.items():
        key = info.alias or name
        if name == member:
            given[key] = f"{own}/rollout-{thread}.jsonl" if name == "path" else thread
        elif info.is_required() and key not in given:
            given[key] = own if name in members else _required(info)
    return given


def spelled(thread: str) -> list[str]:
    return [thread, thread.upper(), f"{{{thread}}}", f"urn:uuid:{thread}", thread.replace("-", "")]


async def outcome(client: Client, method: str, params: dict[str, Any]) -> Message:
    answer = await client.answer(await client.ask(method, params))
    return {name: value for name, value in answer.items() if name != "id"}


def neutral(answer: Message, given: str) -> str:
    """An answer without the ids that were asked for, so that two of them can be compared."""
    usual = usual_spelling(given)
    assert usual is not None
    return orjson.dumps(answer).decode().replace(given, "ID").replace(usual, "ID")


def _to_ask(theirs: dict[str, str], member: str) -> list[tuple[str, str]]:
    """Foreign ids beside unknown ones spelled alike: each state once, and each spelling once."""
    states = [(thread, UNKNOWN) for thread in theirs.values()]
    if member == "path":
        return states
    return [*states, *list(zip(spelled(theirs["live"]), spelled(UNKNOWN), strict=True))[1:]]


async def test_to_every_method_a_thread_of_another_tenant_is_one_that_does_not_exist(house: House) -> None:
    async with neighbours(house) as two:
        await settle_in(two, str(house.work))
        before, mark = house.logs(), two.ours.mark
        asked = 0
        for method, (_, members) in NAMING.items():
            for member in members:
                for hidden, unknown in _to_ask(two.theirs, member):
                    foreign = await outcome(two.ours, method, request(method, member, hidden, two.own))
                    nobody = await outcome(two.ours, method, request(method, member, unknown, two.own))
                    assert "hidden words" not in str(foreign)
                    # A member that only filters or is not used leaves the caller its own result.
                    if member == "thread_id" or "error" in foreign:
                        assert neutral(foreign, hidden) == neutral(nobody, unknown), method
                        assert not any(thread in neutral(foreign, hidden) for thread in two.theirs.values())
                    asked += 1
        assert asked > 250
        assert house.logs().items() >= before.items()
        told = str([message for message in two.ours.seen[mark:] if "method" in message])
        assert not any(thread in told for thread in two.theirs.values())
        for thread in two.theirs.values():
            assert (await two.them.call("thread/read", {"threadId": thread}))["thread"]["id"] == thread


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("", "b"), ("a", "")])
async def test_lists_searches_and_broadcasts_tell_each_tenant_of_its_own_threads_only(
    house: House, first: str, second: str
) -> None:
    async with neighbours(house, first, second) as two:
        await settle_in(two, str(house.work))
        for client, own in ((two.ours, {two.own}), (two.them, {two.theirs["live"], two.theirs["unloaded"]})):
            for asked in ({}, {"searchTerm": "i"}, {"sortKey": "updated_at", "sortDirection": "asc"}):
                listed = await client.call("thread/list", asked)
                assert {one["id"] for one in listed["data"]} == own
        assert (await two.ours.call("thread/list", {"archived": True}))["data"] == []
        assert (await two.ours.call("thread/list", {"searchTerm": "hidden"}))["data"] == []
        assert (await two.ours.call("thread/loaded/list", {}))["data"] == [two.own]
        assert set((await two.them.call("thread/loaded/list", {}))["data"]) == {
            two.theirs[state] for state in ("live", "unused", "ephemeral")
        }
        await _whole_life(two.them, two.theirs["live"])
        await two.daemon.services.sessions.unload(two.theirs["unused"])
        await two.ours.settled()
        assert not _ids_told(two.ours) - {two.own}
        assert two.them.count("thread/deleted") == 2 and two.them.count("thread/closed") >= 1


async def _whole_life(client: Client, thread: str) -> None:
    """Everything that is broadcast."""
    child = (await client.call("thread/fork", {"threadId": thread}))["thread"]["id"]
    await client.call("thread/name/set", {"threadId": thread, "name": "a name"})
    await client.turn(thread, "two")
    await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
    for _ in range(2):
        await client.call("thread/archive", {"threadId": thread})
        await client.call("thread/unarchive", {"threadId": thread})
    await client.call("thread/name/set", {"threadId": thread, "name": "cold"})
    await client.call("thread/resume", {"threadId": thread, "excludeTurns": True})
    await client.call("thread/delete", {"threadId": thread, "dependents": "cascade"})
    await client.event("thread/deleted", threadId=child)


def _ids_told(client: Client) -> set[str]:
    told = [thread_of(message) for message in client.seen if "method" in message]
    return {one for one in told if isinstance(one, str)}


async def test_a_thread_stays_its_tenants_whatever_becomes_of_its_log_and_of_every_cache(house: House) -> None:
    async with neighbours(house) as two:
        thread = await two.them.start(cwd=str(house.work))
        await two.them.turns(thread, "one", "two")
        child = (await two.them.call("thread/fork", {"threadId": thread}))["thread"]["id"]
        await two.them.turn(child, "three")
        await two.them.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        grandchild = (await two.them.call("thread/fork", {"threadId": child, "ephemeral": False}))["thread"]["id"]
        await two.them.turn(grandchild, "four")
        await two.them.call("thread/delete", {"threadId": child, "dependents": "materialize"})
    for name, log in house.logs().items():
        assert orjson.loads(log.splitlines()[0])["unspool"]["tenant"] == "b", name
    house.only_logs_stay()
    async with neighbours(house) as two:
        assert (await two.ours.call("thread/list", {}))["data"] == []
        assert {one["id"] for one in (await two.them.call("thread/list", {}))["data"]} == {thread, grandchild}
        assert (await two.ours.refused("thread/resume", {"threadId": thread})).reason == "noRollout"
        assert (await two.them.call("thread/resume", {"threadId": thread}))["thread"]["id"] == thread
        lineage = await two.them.call("thread/lineage", {"threadId": grandchild})
        assert grandchild in {one["threadId"] for one in lineage["threads"]}


async def test_a_log_without_a_tenant_is_the_machine_owners(house: House) -> None:
    thread = house.borrow("plain_turns")
    async with neighbours(house, "a", "") as two:
        assert (await two.them.call("thread/read", {"threadId": thread}))["thread"]["id"] == thread
        assert (await two.ours.refused("thread/read", {"threadId": thread})).reason == "threadNotFound"
        assert thread in {one["id"] for one in (await two.them.call("thread/list", {}))["data"]}
        assert (await two.ours.call("thread/list", {}))["data"] == []
        assert (await two.them.call("thread/fork", {"threadId": thread, "modelProvider": "offline"}))["thread"][
            "id"
        ] != thread
    assert not any(b'"tenant"' in log for log in house.logs().values())


async def test_a_broken_log_is_shown_to_the_machines_owner_and_hidden_from_all_others(house: House) -> None:
    thread = house.borrow("plain_turns")
    path = house.log_file(thread)
    path.write_bytes(b'{"broken\n' + path.read_bytes().split(b"\n", 1)[1])
    async with neighbours(house, "a", "") as two:
        shown = await outcome(two.them, "thread/read", {"threadId": thread})
        hidden = await outcome(two.ours, "thread/read", {"threadId": thread})
        nobody = await outcome(two.ours, "thread/read", {"threadId": UNKNOWN})
        assert neutral(hidden, thread) == neutral(nobody, UNKNOWN)
        assert neutral(shown, thread) != neutral(nobody, UNKNOWN)


async def test_a_branch_that_another_program_made_stays_its_threads_tenants(house: House) -> None:
    async with neighbours(house) as two:
        thread = await two.them.start(cwd=str(house.work))
        await two.them.turns(thread, "one", "two")
        await two.them.call("thread/rollback", {"threadId": thread, "numTurns": 1})
    newest = house.log_file(thread)
    head, _, rest = newest.read_bytes().partition(b"\n")
    header = {name: value for name, value in orjson.loads(head).items() if name not in ("unspool", "check")}
    newest.write_bytes(orjson.dumps(header) + b"\n" + rest)
    house.only_logs_stay()
    async with neighbours(house) as two:
        assert (await two.ours.refused("thread/read", {"threadId": thread})).reason == "threadNotFound"
        assert (await two.ours.call("thread/list", {}))["data"] == []
        assert [one["id"] for one in (await two.them.call("thread/list", {}))["data"]] == [thread]


async def test_a_position_in_another_tenants_log_is_as_wrong_as_one_in_no_log(house: House) -> None:
    async with neighbours(house) as two:
        await settle_in(two, str(house.work))
        for method in ("thread/read", "thread/context", "thread/fork", "thread/restore"):
            answers = [
                await outcome(two.ours, method, {"threadId": two.own, "at": {"rolloutId": rollout, "ordinal": 3}})
                for rollout in (two.theirs["live"], UNKNOWN)
            ]
            assert neutral(answers[0], two.theirs["live"]) == neutral(answers[1], UNKNOWN)


async def test_server_requests_go_to_the_tenants_own_clients_and_take_answers_from_them_only(house: House) -> None:
    house.offline([{"call": "look", "args": {}, "id": "c1"}], [{"say": "done"}])
    async with house.daemon() as daemon:
        them = await caller(daemon, principal("them", "b"))
        reader = await caller(daemon, principal("reader", "b", scope=Scope.READ))
        us = await caller(daemon, principal("us", "a"))
        thread = await them.start(cwd=str(house.work), dynamicTools=[TOOL])
        await reader.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        turn = await them.begin(thread, "go")
        asked = await them.event("item/tool/call")
        await reader.event("item/tool/call")
        part = {"type": "inputText", "text": "forged"}
        reply = {"id": asked["id"], "result": {"contentItems": [part], "success": True}}
        for intruder in (us, reader):
            await intruder.send(reply)
            await intruder.settled()
        assert them.count("serverRequest/resolved") == 0
        part["text"] = "true"
        await them.send(reply)
        assert (await them.ended(turn))["status"] == "completed"
        assert us.count("item/tool/call") == 0
        for client in (them, reader, us):
            await client.close()
    assert b"forged" not in house.log(thread) and b"true" in house.log(thread)


def test_a_disguise_is_spelled_as_what_it_stands_for_and_comes_off_again() -> None:
    for given in spelled("0190abcd-ef00-7000-8000-0000000000aa"):
        usual = usual_spelling(given)
        assert usual is not None
        disguise = Disguise()
        shown = disguise.put_on(given, usual)
        assert shown != given and usual_spelling(shown) not in (None, usual)
        answer = f"no {shown} and no {usual_spelling(shown)}".encode()
        assert disguise.take_off(answer).decode() == f"no {given} and no {usual}"


@pytest.mark.parametrize(
    "odd", ["", "x", "{0190abcd-ef00-7000-8000-0000000000aa", "0x90abcdef0070008000000000000000aa"]
)
def test_what_is_no_id_is_no_id_in_any_spelling(odd: str) -> None:
    assert usual_spelling(odd) is None
