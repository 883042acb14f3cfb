"""A log that somebody removes or replaces while the daemon writes to it: what is answered as written is not lost."""

import os
import shutil
from pathlib import Path

import pytest

from tests.state.inprocess import house, user_texts


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
@pytest.mark.parametrize("how", ["removed", "folder removed", "replaced by a shorter one"])
async def test_a_log_that_is_gone_takes_no_more_records(how: str, mode: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with house(home) as daemon, daemon.client() as client:
        thread_id = (await client.call("thread/start", historyMode=mode))["thread"]["id"]
        await client.turn(thread_id, "t1")
        path = Path(daemon.session(thread_id).log.info.path or "")
        match how:
            case "removed":
                path.unlink()
            case "folder removed":
                shutil.rmtree(home / "sessions")
            case _:
                shorter = path.with_name("shorter")
                shorter.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
                shorter.replace(path)
        refused = await client.refused("thread/name/set", threadId=thread_id, name="n")
        assert (refused.code, refused.data["reason"]) == (-32603, "writeFailed")
        assert (await client.turn(thread_id, "t2"))["durability"] == "accepted"
        warning = await client.event("warning", threadId=thread_id)
        assert warning["params"]["code"] == "logNotWritten"


async def test_a_log_that_comes_back_gets_what_was_kept_for_it(tmp_path: Path) -> None:
    home, kept = tmp_path / "home", tmp_path / "kept"
    async with house(home) as daemon, daemon.client() as client:
        thread_id = (await client.call("thread/start"))["thread"]["id"]
        await client.turn(thread_id, "t1")
        path = Path(daemon.session(thread_id).log.info.path or "")
        shutil.copy(path, kept)
        path.unlink()
        assert (await client.turn(thread_id, "t2"))["durability"] == "accepted"
        os.replace(kept, path)  # noqa: PTH105 - as a user would
        assert "durability" not in await client.turn(thread_id, "t3")
    async with house(home) as daemon, daemon.client() as client:
        resumed = await client.call("thread/resume", threadId=thread_id)
        assert [user_texts(turn) for turn in resumed["thread"]["turns"]] == [["t1"], ["t2"], ["t3"]]
