"""Conversations that were recorded with the reference, held again with us: the same messages in the same order.

All are played once, on one home, in the order in which they were recorded, because later ones open threads of earlier
ones. What we do differently on purpose is listed in `differences`, and nowhere else.
"""

import asyncio
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.interaction.house import House
from tests.transcripts.comparing import Names
from tests.transcripts.differences import DIFFERENCES, Difference
from tests.transcripts.player import Player, Report
from tests.transcripts.recording import load
from tests.transcripts.scripted_model import COMPACT_PROMPT, ScriptedModel

PLAYED = {
    "01": "stdio",
    "03": "stdio",
    "04": "stdio",
    "05": "stdio",
    "06": "stdio",
    "07": "stdio",
    "08": "websocket",
    "09": "websocket",
    "10": "stdio",
    "11": "stdio",
    "12": "unix",
    "13": "stdio",
    "14": "stdio",
    "15": "stdio",
    "02": "stdio",
    "16": "websocket",
    "17": "stdio",
    "18": "websocket",
}
"""Recordings on one home with their transports, in the order in which they were made."""

BY_THE_TUI = {"20": "websocket", "21": "websocket"}
"""Codex' terminal client, on another home."""


def _is_listed(line: str) -> bool:
    return any(fnmatchcase(line, one.pattern) for one in DIFFERENCES)


async def _play(home: Path, work: Path, recordings: Mapping[str, str]) -> dict[str, Report]:
    house, model, names = House(home, work), ScriptedModel(), Names()
    await model.start()
    house.settings |= {
        "model": "gpt-5.2",
        "model_provider": "mock",
        "compact_prompt": COMPACT_PROMPT,
        "approval_policy": "never",
        "sandbox_mode": "danger-full-access",
    }
    house.providers["mock"] = {
        "name": "mock",
        "base_url": f"http://127.0.0.1:{model.port}/v1",
        "wire_api": "responses",
        "request_max_retries": 0,
        "stream_max_retries": 0,
    }
    for recorded in ("/workspace", "/machine"):
        names.ours[recorded] = str(work)
    for recorded in ("/codex-home_srv", "/codex-home"):
        names.ours[recorded] = str(home)
    player = Player(house, model, names, _is_listed)
    try:
        return {name: await player.play(load(name), transport) for name, transport in recordings.items()}
    finally:
        await model.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Report]]:
    """What was different in each recording."""
    folder = tmp_path_factory.mktemp("recorded")
    work = folder / "work"
    work.mkdir()
    found: dict[str, Report] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)  # threads that name no folder are in the server's
        patch.setenv("HOME", str(folder))  # login shells read nobody's files
        for number, recordings in enumerate((PLAYED, BY_THE_TUI)):
            home = folder / f"home{number}"
            home.mkdir()
            found |= asyncio.run(_play(home, work, recordings))
        yield found


@pytest.mark.parametrize("name", [name for name in (*PLAYED, *BY_THE_TUI)])
def test_we_answer_a_recorded_conversation_as_the_reference_did(name: str, reports: dict[str, Report]) -> None:
    assert [line for line in reports[name].found if not _is_listed(line)] == []


@pytest.mark.parametrize("listed", DIFFERENCES, ids=lambda one: one.pattern)
def test_a_difference_that_is_listed_still_occurs(listed: Difference, reports: dict[str, Report]) -> None:
    lines = [line for report in reports.values() for line in report.found if fnmatchcase(line, listed.pattern)]
    assert lines
    assert listed.times in (None, len(lines))


def test_every_recording_is_played() -> None:
    folder = Path(__file__).parents[1] / "fixtures" / "transcripts"
    assert sorted((*PLAYED, *BY_THE_TUI)) == sorted(path.name[:2] for path in folder.glob("*.jsonl"))
