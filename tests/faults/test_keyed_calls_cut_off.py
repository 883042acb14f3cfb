"""Keyed calls whose process ended after any line that they wrote, and their repeats: nothing runs twice or is lost."""

from pathlib import Path
from typing import Any

import pytest

from tests.interaction.house import House
from tests.interaction.wire import Client

CALLS: dict[str, dict[str, Any]] = {
    "turn/start": {"input": [{"type": "text", "text": "once"}]},
    "thread/inject_items": {"items": [{"type": "message", "role": "developer", "content": []}]},
    "thread/name/set": {"name": "named"},
}


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A home with daemons of this process."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    return House(tmp_path / "home", tmp_path / "work")


async def call(client: Client, thread: str, method: str) -> Any:
    """Make the call and wait until all that it sets off has ended."""
    answer = await client.call(method, {"threadId": thread, "idempotencyKey": "k", **CALLS[method]})
    if (answer.get("turn") or {}).get("status") == "inProgress":
        await client.ended(answer["turn"]["id"])
    return answer


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
@pytest.mark.parametrize("method", CALLS)
async def test_a_call_cut_off_after_any_line_is_carried_out_once_by_its_repeat(
    house: House, method: str, mode: str
) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turn(thread, "before")
        log = house.log_file(thread)
        first = len(log.read_bytes().splitlines())
        answer = await call(client, thread, method)
    lines = log.read_bytes().splitlines(keepends=True)
    for end in range(first, len(lines) + 1):
        for index in house.home.rglob("*.calls"):
            index.unlink()
        log.write_bytes(b"".join(lines[:end]))
        async with house.daemon() as daemon:
            client = await daemon.connect()
            await client.call("thread/resume", {"threadId": thread})
            again = await call(client, thread, method)
            whole = log.read_bytes()
            if method == "turn/start":
                assert end == first or again["turn"]["id"] == answer["turn"]["id"]
                users = [
                    item
                    for turn in (await client.read(thread))["turns"]
                    for item in turn["items"]
                    if item["type"] == "userMessage" and item["content"][0]["text"] == "once"
                ]
                assert len(users) <= 1
            assert await call(client, thread, method) is not None
            assert log.read_bytes() == whole, f"a second repeat wrote something after a cut at line {end}"
    log.write_bytes(b"".join(lines))


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_an_input_that_waits_is_neither_lost_nor_run_twice_wherever_the_process_ends(
    house: House, mode: str
) -> None:
    house.offline([{"hang": True}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        running = await client.begin(thread, "before")
        await client.event("turn/started", threadId=thread)
        asked = {"threadId": thread, "input": [{"type": "text", "text": "once"}], "ifBusy": "queue"}
        waits = await client.call("turn/start", {**asked, "idempotencyKey": "k"})
        log = house.log_file(thread)
        first = len(log.read_bytes().splitlines())
        await client.call(
            "turn/steer", {"threadId": thread, "expectedTurnId": running, "input": [{"type": "text", "text": "on"}]}
        )
        await client.ended(waits["turn"]["id"])
    house.offline()
    lines = log.read_bytes().splitlines(keepends=True)
    for end in range(first, len(lines) + 1):
        log.write_bytes(b"".join(lines[:end]))
        async with house.daemon() as daemon:
            client = await daemon.connect()
            await client.call("thread/resume", {"threadId": thread})
            await client.settled()
            while daemon.session(thread).turn is not None or daemon.session(thread).queue.runnable:
                await client.event("turn/completed", since=client.mark)
            said = sum(
                record["type"] == "response_item"
                and record["payload"].get("role") == "user"
                and record["payload"]["content"][0]["text"] == "once"
                for record in house.records(thread)
            )
            assert said == 1, f"cut at line {end} of {len(lines)}"
            assert (await client.call("thread/queue/list", {"threadId": thread}))["data"] == []
