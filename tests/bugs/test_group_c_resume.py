"""What a resume restores: settings, working directory, and the list of threads."""

import json
from typing import Any

import pytest

from tests.bugs.cases import THREAD, lines_of, place, resume, warnings, write_lines
from tests.interaction.house import TOOL, House

FULL = {"sandbox_mode": "danger-full-access", "approval_policy": "never"}


async def test_b17_an_old_log_never_gets_more_than_its_last_turn_had(house: House) -> None:
    place(house, "B17_settings_changed_between_turns")
    house.offline()
    house.settings |= FULL
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await resume(client)
        assert (resumed["sandbox"]["type"], resumed["approvalPolicy"]) == ("readOnly", "on-request")
        assert resumed["model"] == "gpt-5.1"


@pytest.mark.parametrize(
    ("recorded", "configured", "expected"),
    [
        ({"type": "read-only"}, "danger-full-access", "readOnly"),
        ({"type": "read-only"}, "workspace-write", "readOnly"),
        ({"type": "workspace-write"}, "danger-full-access", "workspaceWrite"),
        ({"type": "danger-full-access"}, "read-only", "readOnly"),
        ({"type": "danger-full-access"}, "workspace-write", "workspaceWrite"),
        ({"type": "from-the-future"}, "read-only", "readOnly"),
        ({"type": "danger-full-access"}, "danger-full-access", "dangerFullAccess"),
    ],
)
async def test_b17_neither_the_default_nor_the_record_widens_the_other(
    house: House, recorded: dict[str, Any], configured: str, expected: str
) -> None:
    records = [json.loads(line) for line in lines_of("B17_settings_changed_between_turns")]
    newest = [record for record in records if record["type"] == "turn_context"][-1]
    newest["payload"]["sandbox_policy"] = recorded
    write_lines(house, [json.dumps(record).encode() for record in records])
    house.offline()
    house.settings["sandbox_mode"] = configured
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await resume(client))["sandbox"]["type"] == expected


async def test_b17_recorded_settings_outlive_a_changed_default_and_an_override_is_the_callers_word(
    house: House,
) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), sandbox="read-only", approvalPolicy="untrusted")
        await client.turn(thread, "look")
    house.settings |= FULL
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert (resumed["sandbox"]["type"], resumed["approvalPolicy"]) == ("readOnly", "untrusted")
        forked = await client.call("thread/fork", {"threadId": thread})
        assert forked["sandbox"]["type"] == "readOnly"
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread, "sandbox": "danger-full-access"})
        assert resumed["sandbox"]["type"] == "dangerFullAccess"


async def test_b19_a_path_of_another_system_is_kept_and_marked_and_no_tool_runs_there(house: House) -> None:
    records = [json.loads(line) for line in lines_of("B19_windows_cwd")]
    records[0]["payload"]["dynamic_tools"] = [TOOL]
    write_lines(house, [json.dumps(record).encode() for record in records])
    house.offline([{"call": "look", "id": "c1"}], [{"say": "no"}], [{"call": "look", "id": "c2"}], [{"say": "yes"}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await resume(client)
        assert resumed["cwd"] == "C:\\Users\\dev\\proj" and "cwdMissing" in warnings(client)
        since = client.mark
        await client.turn(THREAD, "look")
        assert client.count("item/tool/call") == 0 and "cwdMissing" in warnings(client, since)
        turn = await client.begin(THREAD, "look here", cwd=str(house.work))
        request = await client.event("item/tool/call", threadId=THREAD)
        await client.send({"id": request["id"], "result": {"contentItems": [], "success": True}})
        assert (await client.ended(turn))["status"] == "completed"
    assert '"call_id":"c1"' in house.log(THREAD).decode()


@pytest.mark.parametrize("cwd", ["C:\\Users\\x", "\\\\server\\share", "relative/path", "C:/mixed", "~/home"])
async def test_b19_no_path_is_ever_joined_to_the_servers_own(house: House, cwd: str) -> None:
    records = [json.loads(line) for line in lines_of("B19_windows_cwd")]
    records[0]["payload"]["cwd"] = cwd
    write_lines(house, [json.dumps(record).encode() for record in records])
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await resume(client))["cwd"] == cwd and "cwdMissing" in warnings(client)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await resume(client, cwd=str(house.work)))["cwd"] == str(house.work)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await resume(client))["cwd"] == str(house.work)


async def test_b21_a_list_without_a_filter_holds_the_threads_of_every_provider(house: House) -> None:
    house.offline()
    house.providers["second"] = {"name": "Second", "wire_api": "offline"}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        threads = []
        for provider in ("offline", "second"):
            threads.append(await client.start(cwd=str(house.work), modelProvider=provider))
            await client.turn(threads[-1], f"for {provider}")
    house.settings["model_provider"] = "second"
    async with house.daemon() as daemon:
        client = await daemon.connect()

        async def listed(**params: Any) -> set[str]:
            return {one["id"] for one in (await client.call("thread/list", params))["data"]}

        assert await listed() == await listed(modelProviders=None) == await listed(modelProviders=[]) == set(threads)
        assert await listed(modelProviders=["offline"]) == {threads[0]}
        assert await listed(sourceKinds=[]) == set(threads)
        assert await listed(cwd=str(house.work)) == set(threads)
        assert await listed(cwd="/elsewhere") == set()


WRITE = {"type": "workspace-write", "writable_roots": ["/a", "/b/c"], "network_access": True, "exclude_slash_tmp": True}


async def test_b17_of_two_policies_only_what_both_allow_is_left(house: House) -> None:
    _last_turn_had(house, sandbox_policy=WRITE)
    house.settings["sandbox_mode"] = "workspace-write"
    house.tables["sandbox_workspace_write"] = {"writable_roots": ["/b", "/a/x", "/d"], "exclude_tmpdir_env_var": True}
    house.offline()
    async with house.daemon() as daemon:
        sandbox = (await resume(await daemon.connect()))["sandbox"]
    assert sandbox == {
        "type": "workspaceWrite",
        "writableRoots": ["/b/c", "/a/x"],
        "networkAccess": False,
        "excludeTmpdirEnvVar": True,
        "excludeSlashTmp": True,
    }


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ({"sandbox_policy": {"type": "from-the-future"}}, ("readOnly", "on-request")),
        ({"approval_policy": "ask-the-oracle"}, ("readOnly", "untrusted")),
        ({"approval_policy": {"granular": {"rules": True}}}, ("readOnly", {"granular": {"rules": True}})),
    ],
)
async def test_b17_a_policy_that_cannot_be_read_is_taken_for_a_narrow_one(
    house: House, recorded: dict[str, Any], expected: tuple[str, Any]
) -> None:
    _last_turn_had(house, **recorded)
    house.settings |= FULL
    house.offline()
    async with house.daemon() as daemon:
        resumed = await resume(await daemon.connect())
    assert (resumed["sandbox"]["type"], resumed["approvalPolicy"]) == expected


def _last_turn_had(house: House, **settings: Any) -> None:
    records = [json.loads(line) for line in lines_of("B17_settings_changed_between_turns")]
    newest = [record for record in records if record["type"] == "turn_context"][-1]
    newest["payload"] |= settings
    write_lines(house, [json.dumps(record).encode() for record in records])
