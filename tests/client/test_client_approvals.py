"""The client decides about commands of the real daemon."""

import json
from pathlib import Path

import pytest
from unspool_client import Client, CommandApproval
from unspool_protocol.items import CommandExecutionItem

from tests.client.test_client_daemon import Links
from tests.tools.commands import ASKING, command

pytest.importorskip("unspool_server.cli.daemon")

from unspool_server.cli.daemon import daemon as run_daemon
from unspool_server.config_file import load_config

CONFIG = """
allow_login_shell = false
[model_providers.offline]
name = "Offline"
wire_api = "offline"
script = "script.json"
"""


@pytest.mark.parametrize(
    ("decision", "status"), [("accept", "completed"), ("decline", "declined"), ("no such word", "failed")]
)
async def test_a_callback_decides_whether_a_command_runs(tmp_path: Path, decision: str, status: str) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    script = {"replies": [[command("touch here", justification="May I?")]]}
    (home / "script.json").write_text(json.dumps(script))
    (home / "config.toml").write_text(CONFIG)
    config, _ = load_config(home, environ={})
    asked: list[CommandApproval] = []

    async def decide(question: CommandApproval) -> str:
        asked.append(question)
        return decision

    async with run_daemon(config, home) as shared, Client(Links(shared).open) as client:
        client.on_command_approval(decide)  # type: ignore[arg-type]
        thread = await client.start_thread(cwd=str(work), approval_policy=ASKING["approvalPolicy"])
        result = await thread.run("go")
    assert [(question.reason, question.cwd) for question in asked] == [("May I?", str(work))]
    (item,) = [item for item in result.items if isinstance(item, CommandExecutionItem)]
    assert item.status == status
    assert (work / "here").exists() is (decision == "accept")
