"""Numbers, index and log that disagree; and a lock that lies beside the log."""

import json
from pathlib import Path

import pytest

from tests.bugs.cases import THREAD, lines_of, place, resume, said, warnings, write_lines
from tests.interaction.house import House


async def test_b11_a_record_without_its_number_is_numbered_by_position_with_a_warning(house: House) -> None:
    path = place(house, "B11_ordinal_missing_last")
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        assert warnings(client)["ordinalMissing"]["ordinals"] == [23]
        assert said(daemon)[-1] == "A3"
        await client.turn(THREAD, "on")
    added = [json.loads(line) for line in path.read_bytes().split(b"\n")[24:-1]]
    assert [one["ordinal"] for one in added] == list(range(24, 24 + len(added)))


@pytest.mark.parametrize("missing", [range(1), range(3, 4), range(5, 20), range(24)])
async def test_b11_any_record_may_lack_its_number(house: House, missing: range) -> None:
    lines = lines_of("B11_ordinal_missing_last")
    bare = [json.loads(line) for line in lines]
    for index in missing:
        bare[index].pop("ordinal", None)
    write_lines(house, [json.dumps(one).encode() for one in bare])
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        assert said(daemon) == ["alpha", "A1", "beta", "A2", "gamma é 漢字 😀", "A3"]
        await client.turn(THREAD, "on")
        assert (await client.shown(THREAD))[-1][0] == "on"


@pytest.mark.parametrize("keep", [1, 6, 12])
async def test_b13_model_and_clients_see_the_same_when_a_log_became_shorter_than_its_index(
    house: House, keep: int
) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two", "three")
    path = house.log_file(thread)
    path.write_bytes(b"".join(line + b"\n" for line in path.read_bytes().split(b"\n")[:keep]))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        texts = said(daemon, thread)
        assert [turn[0] for turn in await client.shown(thread) if turn] == texts[:1]
        await client.turn(thread, "after")
        assert (await client.shown(thread))[-1][0] == "after"
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await client.shown(thread))[-1][0] == "after"
        listed = (await client.call("thread/list", {"searchTerm": "three"}))["data"]
        assert listed == []


async def test_b15_two_homes_with_one_sessions_folder_have_one_writer_for_a_thread(
    house: House, tmp_path: Path
) -> None:
    house.offline()
    second = House(tmp_path / "second", house.work)
    second.home.mkdir()
    second.offline()
    (house.home / "sessions").mkdir()
    (second.home / "sessions").symlink_to(house.home / "sessions")
    async with house.daemon() as one, second.daemon() as two:
        first, other = await one.connect(), await two.connect()
        thread = await first.start(cwd=str(house.work))
        await first.turn(thread, "from the first")
        refusal = await other.refused("thread/resume", {"threadId": thread})
        assert refusal.reason == "held" and "already has an active writer" in refusal.message
        assert refusal.data["holder"]
        assert [turn[0] for turn in await other.shown(thread)] == ["from the first"]
    async with second.daemon() as two:
        other = await two.connect()
        await other.call("thread/resume", {"threadId": thread})
        await other.turn(thread, "from the second")
    async with house.daemon() as one:
        first = await one.connect()
        assert [turn[0] for turn in await first.shown(thread)] == ["from the first", "from the second"]
    numbers = [record["ordinal"] for record in house.records(thread)]
    assert numbers == list(range(len(numbers)))
