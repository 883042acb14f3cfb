"""What lists show of a thread."""

import pytest
from unspool_protocol.log import HistoryMode, Record, ThreadSummary
from unspool_server.history.summary import epoch_seconds, summarise

from tests.history.logs import FixtureLog, Info, expectations, fixture_logs


def info_of(log: FixtureLog) -> Info:
    return Info(log.thread_id, log.records[0].rollout_id, log.mode, "archived" in str(log.path), log.records[0])


LOGS = list(fixture_logs())
PREVIEWED = [log for log in LOGS if log.name not in ("revert", "revert_to_nothing", "revert_compact")]


@pytest.mark.parametrize("log", PREVIEWED, ids=str)
def test_the_preview_is_the_one_that_the_reference_shows(log: FixtureLog) -> None:
    expected = expectations(log.name)
    names = {thread_id: name for name, thread_id in expected["threads"].items()}
    shown = expected["client_turns"].get(names.get(log.thread_id, ""), {}).get("thread/read", {})
    if "preview" not in shown:
        pytest.skip("the capture does not show this thread")
    assert summarise(None, info_of(log), log.records).preview == shown["preview"]


@pytest.mark.parametrize("log", LOGS, ids=str)
def test_folding_record_by_record_equals_folding_at_once(log: FixtureLog) -> None:
    stepwise: ThreadSummary | None = None
    for record in log.records:
        stepwise = summarise(stepwise, info_of(log), [record])
    assert stepwise == summarise(None, info_of(log), log.records)


def test_facts_come_from_the_header_and_the_newest_settings() -> None:
    log = next(log for log in LOGS if log.name == "settings_changes")
    summary = summarise(None, info_of(log), log.records)
    last = log.records[-1].timestamp
    assert (summary.cwd, summary.model, summary.model_provider) == ("/tmp/ws/sub", "mock-model", "mock")
    assert (summary.source, summary.originator, summary.cli_version) == ("vscode", "oracle", "0.171.0")
    assert (summary.updated_at, summary.has_user_turn) == (epoch_seconds(last), True)
    assert summary.created_at == epoch_seconds(log.records[0].payload["timestamp"])


def test_a_fork_names_its_source() -> None:
    log = next(log for log in LOGS if log.name == "fork_settings" and log.records[0].payload.get("forked_from_id"))
    assert summarise(None, info_of(log), log.records).forked_from_id == log.records[0].payload["forked_from_id"]


def renamed(*names: object) -> ThreadSummary:
    info = Info("t", "r", HistoryMode.PAGINATED, False, None)
    events = [
        Record("r", index, "event_msg", {"type": "thread_name_updated", "thread_name": name})
        for index, name in enumerate(names)
    ]
    return summarise(None, info, events)


def test_the_newest_name_counts_and_an_empty_one_takes_it_away() -> None:
    assert renamed("one", "two").name == "two"
    assert renamed("one", "").name is None
    assert renamed("one", 7).name is None


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z", "9999-99"])
def test_a_time_that_is_none_counts_as_zero(text: str) -> None:
    assert epoch_seconds(text) == 0.0
