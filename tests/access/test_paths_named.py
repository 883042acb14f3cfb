"""Files that clients name by path: those of the home, those that were allowed, and no others."""

from pathlib import Path

import pytest
from unspool_server.access.paths import AllowedPaths
from unspool_server.access.principal import OWNER, Scope

from tests.access.callers import caller, principal
from tests.interaction.house import House


def test_neither_dots_nor_links_lead_out_and_a_linked_root_is_what_it_leads_to(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    for folder in (home / "sessions", other):
        folder.mkdir(parents=True)
    (other / "secret").write_text("x")
    (home / "out").symlink_to(other)
    (home / "file").symlink_to(other / "secret")
    (tmp_path / "linked").symlink_to(home)
    for root in (home, tmp_path / "linked"):
        paths = AllowedPaths([root])
        for good in (home / "sessions" / "x.jsonl", tmp_path / "linked" / "sessions", home / "a" / ".." / "b", home):
            assert paths.allows(str(good)), good
        for bad in (
            other / "secret",
            home / "out" / "secret",
            home / "file",
            home / ".." / "other" / "secret",
            home / "out" / ".." / "other",
            Path(f"{home}-else"),
            Path("sessions/x.jsonl"),
            Path("/"),
        ):
            assert not paths.allows(str(bad)), bad
        assert not paths.allows(f"{home}/\0") and not paths.allows("")
    assert AllowedPaths([home, other]).allows(str(home / "out" / "secret"))
    assert not AllowedPaths([]).allows(str(home))


@pytest.mark.parametrize("method", ["thread/resume", "thread/fork"])
async def test_the_path_that_a_listing_told_is_taken_and_any_other_place_is_refused_alike(
    house: House, method: str
) -> None:
    house.offline()
    allowed = house.work / "logs"
    house.tables["access"] = {"allowed_paths": [str(allowed)]}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        path = (await client.read(thread))["path"]
        for good in (path, str(allowed / "rollout.jsonl")):
            await client.call(method, {"threadId": thread, "path": good})
        for bad in ("/etc/passwd", "/nowhere", f"{house.home}/../x", "relative"):
            refused = await client.refused(method, {"threadId": thread, "path": bad})
            assert (refused.reason, refused.data["field"]) == ("pathRefused", "path")
            assert refused.message == "`path` is outside of what this server allows"


async def test_only_the_machines_owner_may_give_any_file_to_the_model(house: House) -> None:
    house.offline()
    allowed, secret = house.work / "pictures", house.work / "secret.png"
    allowed.mkdir()
    for path in (allowed / "a.png", secret):
        path.write_bytes(b"PICTURE")
    (allowed / "link.png").symlink_to(secret)
    house.tables["access"] = {"allowed_paths": [str(allowed)]}
    async with house.daemon() as daemon:
        for who, free in ((OWNER, True), (principal("w", scope=Scope.WRITE), False), (principal("a", "a"), False)):
            client = await caller(daemon, who)
            thread = await client.start(cwd=str(house.work))
            for path, inside in ((allowed / "a.png", True), (secret, False), (allowed / "link.png", False)):
                image = {"threadId": thread, "input": [{"type": "localImage", "path": str(path)}]}
                if free or inside:
                    result = await client.call("turn/start", image)
                    await client.ended(result["turn"]["id"])
                else:
                    refused = await client.refused("turn/start", image)
                    assert (refused.reason, refused.data["field"]) == ("pathRefused", "input[0].path")
            await client.close()


async def test_an_input_that_waits_is_changed_to_no_other_file_than_it_could_begin_with(house: House) -> None:
    house.offline([{"hang": True}])
    secret = house.work / "secret.png"
    secret.write_bytes(b"PICTURE")
    async with house.daemon() as daemon:
        client = await caller(daemon, principal("w", scope=Scope.WRITE))
        thread = await client.start(cwd=str(house.work))
        await client.begin(thread, "busy")
        waits = {"threadId": thread, "input": [{"type": "text", "text": "later"}], "ifBusy": "queue"}
        place = (await client.call("turn/start", waits))["queued"]
        parts = [{"type": "localImage", "path": str(secret)}]
        change = {"threadId": thread, "queueId": place["queueId"], "input": parts}
        refused = await client.refused("thread/queue/update", change)
        assert (refused.reason, refused.data["field"]) == ("pathRefused", "input[0].path")
