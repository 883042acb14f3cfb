"""Log lines: one for each notable event, with what it is about, and nothing that a user wrote."""

import errno
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from unspool_server.config_daemon import LoggingOptions
from unspool_server.handlers import table
from unspool_server.handlers.context import NoParams, RequestContext
from unspool_server.telemetry import logs
from unspool_server.telemetry.scope import bound

from tests.conformance.faulty_shelf import Faults
from tests.interaction.house import House

SECRET = "correct horse battery staple"


class Lines(io.StringIO):
    """What was logged, line by line."""

    def entries(self, event: str | None = None) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.getvalue().splitlines()]
        # asyncio in debug mode tells of slow steps.
        return [entry for entry in found if entry["logger"] != "asyncio" and event in (None, entry["event"])]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Everything that our loggers tell from `info` on, as JSON; the way it was before comes back."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, {name: logging.getLogger(name).level for name in logs.OURS}
    stream = Lines()
    logs.install(LoggingOptions(format="json", level="info"), quiet=True, stream=stream)
    yield stream
    root.handlers[:], levels = before[0], before[2]
    root.setLevel(before[1])
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logs.FAULTS.newest.clear()


async def test_a_life_leaves_one_line_for_each_notable_event(house: House, lines: Lines) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.turn(thread, SECRET)
        await client.close()
    told = [entry["event"] for entry in lines.entries()]
    assert told == ["connection opened", "thread loaded", "turn ended", "connection closed"]
    (ended,) = lines.entries("turn ended")
    assert {key: ended[key] for key in ("level", "thread", "turn", "outcome", "kind", "method", "durability")} == {
        "level": "info",
        "thread": thread,
        "turn": turn,
        "outcome": "completed",
        "kind": "regular",
        "method": "turn/start",
        "durability": "written",
    }
    assert ended["connection"] == lines.entries("connection opened")[0]["connection"]
    assert {"request", "duration_s", "first_delta_s"} <= ended.keys()
    assert SECRET not in lines.getvalue()


class Asked(BaseModel):
    number: int


async def _breaks(_ctx: RequestContext, _params: NoParams) -> Any:
    try:
        Asked.model_validate({"number": SECRET})
    except ValidationError as error:
        raise RuntimeError("a fault of ours") from error


async def test_an_internal_error_is_found_by_the_id_that_the_client_got(
    house: House, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "ENDPOINTS", {**table.ENDPOINTS, "configRequirements/read": _breaks})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        refusal = await client.refused("configRequirements/read")
    (entry,) = lines.entries("request failed")
    assert (refusal.reason, refusal.message) == ("internal", "Internal error")
    assert entry["error_id"] == refusal.data["errorId"]
    assert (entry["level"], entry["method"]) == ("error", "configRequirements/read")
    assert "RuntimeError: a fault of ours" in entry["exception"] and "_breaks" in entry["exception"]
    assert "number: int_parsing" in entry["exception"], "the place is told, the value is not"
    assert SECRET not in lines.getvalue()
    assert [fault.error_id for fault in logs.FAULTS.newest if fault.error_id] == [entry["error_id"]]


async def test_a_disk_that_refuses_and_a_damaged_log_are_warnings_with_their_thread(house: House, lines: Lines) -> None:
    house.faults = Faults()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        house.faults.plan("append", errno.ENOSPC, times=10_000)
        await client.turn(thread, "two")
        house.faults.clear()
        await client.turn(thread, "three")
    house.faults = None
    with house.log_file(thread).open("ab") as log:
        log.write(b"not json\n")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
    (refused,) = lines.entries("the disk refused a write")
    (damaged,) = lines.entries("the log is less than perfect")
    assert (refused["level"], refused["thread"], refused["pending_records"] > 0) == ("warning", thread, True)
    assert (damaged["level"], damaged["thread"], damaged["codes"] != []) == ("warning", thread, True)
    outcomes = [entry["durability"] for entry in lines.entries("turn ended")]
    assert outcomes == ["written", "accepted", "written"]


def test_libraries_tell_warnings_only_since_some_log_addresses_with_keys(lines: Lines) -> None:
    talkative = logging.getLogger("talkative.library")
    talkative.setLevel(logging.INFO)
    talkative.info("POST https://service/v1?key=abc")
    logging.getLogger("unspool.test").info("ours")
    assert [entry["event"] for entry in lines.entries()] == ["ours"]


def test_nothing_in_a_line_for_people_does_anything_to_a_terminal_or_passes_for_another_line() -> None:
    error = ValueError("c\rd\x1b[2J")
    facts = {"name": "unspool.test", "levelname": "WARNING", "levelno": logging.WARNING, "msg": "it said: a\nb\x1b[2J"}
    record = logging.makeLogRecord({**facts, "exc_info": (ValueError, error, None)})
    setattr(record, logs._FACTS, {"client": "e\nf\x1b[2J"})
    told = logs._Rendered("console", colors=False).format(record)
    assert "it said: a\\nb\\x1b[2J" in told and "ValueError: c\\rd\\x1b[2J" in told and "'e\\nf\\x1b[2J'" in told
    assert not {"\x1b", "\r"} & set(told)


def test_people_get_one_line_of_words_and_facts() -> None:
    facts = {"name": "unspool.test", "levelname": "INFO", "levelno": logging.INFO, "msg": "turn ended"}
    record = logging.makeLogRecord(facts)
    with bound(thread="t1"):
        handler_filter = logs._Scoped()
        handler_filter.filter(record)
    line = logs._Rendered("console", colors=False).format(record)
    assert "turn ended" in line and "thread=t1" in line and "\n" not in line


def test_over_stdio_nothing_is_told_but_warnings_and_lines_never_reach_stdout(house: House) -> None:
    (house.home / "config.toml").write_text("nonsense = 1\n")
    hello = b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"ci","version":"1"}}}\n'
    command = [sys.executable, "-m", "unspool_server.cli.main", "app-server", "--home", str(house.home)]
    done = subprocess.run([*command, "--log-format", "json"], input=hello, capture_output=True, check=True, timeout=60)
    (entry,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert (entry["level"], entry["event"]) == ("warning", "unknown configuration key `nonsense` is ignored")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert [message["id"] for message in messages if "id" in message] == [0]
