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
