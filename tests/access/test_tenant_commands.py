"""Commands run with the server's rights: who may have them on a shared daemon."""

import pytest

from tests.access.callers import caller, principal
from tests.interaction.house import House
from tests.tools.commands import FULL, command, done


@pytest.mark.parametrize(
    ("tenant", "configured", "own", "runs"),
    [
        ("", None, None, True),
        ("", None, False, False),
        ("", False, True, False),
        ("team", None, None, False),
        ("team", None, True, False),
        ("team", False, True, False),
        ("team", True, None, True),
        ("team", True, False, False),
    ],
)
async def test_a_named_tenant_runs_commands_only_where_the_operator_says_so(
    house: House, tenant: str, configured: bool | None, own: bool | None, runs: bool
) -> None:
    house.settings["allow_login_shell"] = False
    house.offline([command("touch here")])
    if configured is not None:
        house.tables["features"] = {"shell_tool": configured}
    given = {} if own is None else {"config": {"features.shell_tool": own}}
    async with house.daemon() as daemon:
        client = await caller(daemon, principal("somebody", tenant))
        try:
            thread = await client.start(cwd=str(house.work), **FULL, **given)
            await client.turn(thread, "go")
            if runs:
                assert (await done(client))["status"] == "completed"
            else:
                refused = await client.refused("thread/shellCommand", {"threadId": thread, "command": "touch here"})
                assert refused.reason == "shellDisabled"
        finally:
            await client.close()
    assert (house.work / "here").exists() is runs


REACHING = {
    "mcp_servers": {"own": {"command": "/bin/true"}},
    "model_providers.own.base_url": "http://127.0.0.1:1/v1",
    "model_instructions_file": "/etc/hostname",
    "shell_environment_policy": {"inherit": "all"},
}


@pytest.mark.parametrize("key", REACHING)
async def test_a_tenant_without_commands_cannot_reach_as_far_by_configuration(house: House, key: str) -> None:
    given = {"config": {key: REACHING[key]}}
    async with house.daemon() as daemon:
        client = await caller(daemon, principal("somebody", "team"))
        try:
            refused = await client.refused("thread/start", {"cwd": str(house.work), **given})
            assert (refused.reason, refused.data["field"]) == ("configRefused", f"config.{key}")
            thread = await client.start(cwd=str(house.work), config={"model_reasoning_effort": "low"})
            await client.turn(thread, "go")
            for method in ("thread/fork", "thread/resume"):
                if method == "thread/resume":
                    await daemon.services.sessions.unload(thread)
                refused = await client.refused(method, {"threadId": thread, **given})
                assert refused.reason == "configRefused"
        finally:
            await client.close()
        owner = await daemon.connect()
        assert await owner.start(cwd=str(house.work), **given)
