"""Input that is well-formed and still means harm: it is refused with a short typed answer, or does what it says."""

import os
from typing import Any

import pytest

from tests.interaction.house import House
from tests.interaction.wire import Client, Refused

TEXT = [{"type": "text", "text": "t"}]
LONG = "x" * 1_000_000
NUL = "/tmp/a\0b"
MOST_CHARACTERS = 10_000
"""Of an error answer; the longest honest ones list every method."""


async def refused_shortly(client: Client, method: str, params: Any) -> Refused:
    refused = await client.refused(method, params)
    assert len(refused.message) + len(str(dict(refused.data))) < MOST_CHARACTERS, method
    return refused


async def test_an_error_does_not_repeat_a_megabyte(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start()
        turn = await client.turn(thread, "t")
        for method in ("thread/resume", "thread/read", "thread/fork", "thread/delete", "thread/name/set"):
            await refused_shortly(client, method, {"threadId": LONG, "name": "n"})
        wrong: dict[str, dict[str, Any]] = {
            "thread/turns/list": {"cursor": LONG},
            "thread/items/list": {"cursor": LONG},
            "thread/fork": {"lastTurnId": LONG},
            "thread/revert": {"beforeTurnId": LONG},
            "turn/steer": {"expectedTurnId": LONG, "input": TEXT},
            "turn/interrupt": {"turnId": LONG},
            "thread/resume": {"replay": {"mode": "events", "after": LONG}},
        }
        for method, params in wrong.items():
            await refused_shortly(client, method, {"threadId": thread, **params})
        for params in (
            {"modelProvider": LONG},
            {"config": {"model_provider": LONG}},
            {"config": {LONG: {}, "model": 5}},
        ):
            await refused_shortly(client, "thread/start", params)
        assert [shown["id"] for shown in (await client.read(thread))["turns"]] == [turn]


@pytest.mark.parametrize("field", ["cwd", "runtimeWorkspaceRoots"])
async def test_a_path_with_nul_is_refused_before_anything_uses_it(house: House, field: str) -> None:
    value = [NUL] if field == "runtimeWorkspaceRoots" else NUL
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        for method in ("thread/start", "thread/resume", "thread/fork", "thread/settings/update", "turn/start"):
            params = {"threadId": thread, "input": TEXT, field: value}
            refused = await client.refused(method, params)
            assert (refused.code, refused.reason) == (-32600, "invalidParams"), method
            assert str(refused.data["field"]).startswith(field), method
        await client.turn(thread, "two")


async def test_a_path_with_nul_in_an_old_log_and_in_an_image_counts_as_missing(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
    log = house.log_file(thread)
    log.write_bytes(log.read_bytes().replace(str(house.work).encode(), b"/tmp/a\\u0000b"))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        images = [{"type": "localImage", "path": NUL}]
        result = await client.call("turn/start", {"threadId": thread, "input": images})
        assert (await client.ended(result["turn"]["id"]))["status"] == "completed"


@pytest.mark.parametrize("cwd", ["a b", "new\nline", "übergröße-☃", "x" * 5000, "'\"$(true)`"])
async def test_odd_but_possible_folders_serve(house: House, cwd: str) -> None:
    folder = os.path.join(house.work, cwd)  # noqa: PTH118 - too long a name is no path
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=folder)
        await client.turn(thread, "one")
        before = await client.read(thread)
        listed = await client.call("thread/list", {"cwd": folder})
        assert [entry["id"] for entry in listed["data"]] == [thread]
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert (resumed["cwd"], resumed["thread"]["turns"]) == (folder, before["turns"])


async def test_what_never_ends_is_not_read(house: House) -> None:
    os.mkfifo(house.work / "AGENTS.md")
    (house.work / ".git").mkdir()
    (house.work / ".git" / "HEAD").symlink_to("/dev/zero")
    (house.work / ".git" / "config").symlink_to("loop")
    (house.work / ".git" / "loop").symlink_to("config")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        images = [{"type": "localImage", "path": path} for path in ("/dev/zero", str(house.work / "AGENTS.md"))]
        result = await client.call("turn/start", {"threadId": thread, "input": images})
        assert (await client.ended(result["turn"]["id"]))["status"] == "completed"


async def test_settings_with_an_unknown_provider_are_refused_so_that_the_thread_still_opens(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        refused = await client.refused("thread/settings/update", {"threadId": thread, "modelProvider": "nobody"})
        assert (refused.code, refused.reason, refused.data["field"]) == (-32600, "unknownProvider", "modelProvider")
        await client.turn(thread, "one")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "two")


@pytest.mark.parametrize("spelling", ["{0}", "{{{0}}}", "urn:uuid:{0}"])
async def test_other_spellings_of_an_id_name_the_same_thread(house: House, spelling: str) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        other = spelling.format(thread.upper())
        assert (await client.call("thread/resume", {"threadId": other}))["thread"]["id"] == thread
        await client.call("thread/rollback", {"threadId": other, "numTurns": 1})
        assert (await client.call("thread/fork", {"threadId": other}))["thread"]["forkedFromId"] == thread
        assert await client.shown(other) == await client.shown(thread)
        assert (await client.call("thread/loaded/list", {}))["data"].count(thread) == 1


@pytest.mark.parametrize(
    ("number", "said"),
    [(b"1e400", "a number is out of range"), (b"-1e999", "a number is out of range"), (b"NaN", "NaN is no JSON value")],
)
async def test_a_number_that_json_cannot_hold_is_named_as_the_fault(house: House, number: bytes, said: str) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        mark = client.mark
        await client.send_bytes(b'{"id":70,"method":"thread/list","params":{"limit":' + number + b"}}")
        answer = await client.until(lambda message: "error" in message, since=mark)
        assert (answer["id"], answer["error"]["code"]) == (None, -32700)
        assert answer["error"]["message"] == f"Parse error: {said}"
        await client.settled()
        assert client.outline(mark) == ["error", "answer"]
