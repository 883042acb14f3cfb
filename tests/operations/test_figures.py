"""What `/metrics` tells: every figure of the documentation, moved by what it counts, without ids, behind the token."""

import asyncio
import errno
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from unspool_server.access.bearer import Capability, CapabilityTokens, digest_of
from unspool_server.access.principal import OWNER, Principal
from unspool_server.telemetry import metrics
from unspool_server.telemetry.exposition import exposition
from unspool_server.telemetry.instruments import Counter, Histogram, Metric, Sample
from unspool_server.transport.gate import Rules
from unspool_server.transport.websocket import application

from tests.conformance.faulty_shelf import Faults
from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House, LocalDaemon
from tests.interaction.stories import HANG, hanging

ROOT = Path(__file__).parents[2]


def scraped(daemon: LocalDaemon) -> dict[str, float]:
    """Every sample of a scrape, named as Prometheus writes it."""
    body, content_type = exposition(daemon.shared.figures())
    assert content_type.startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def test_every_figure_of_the_manual_is_exported_and_no_other(house: House) -> None:
    manual = (ROOT / "docs" / "operations.md").read_text("utf-8")
    documented = set(re.findall(r"^\| `(unspool_\w+)` \| (\w+) \|", manual, re.M))
    async with house.daemon() as daemon:
        body, _ = exposition(daemon.shared.figures())
    exported = set(re.findall(r"^# TYPE (unspool_\w+) (\w+)$", body.decode(), re.M))
    assert exported == documented


async def test_units_and_totals_follow_the_conventions() -> None:
    for metric in metrics.METRICS.values():
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.kind != "histogram" or metric.name.endswith("_seconds"), metric.name
        assert metric.help.endswith("."), metric.name


async def test_a_turn_moves_the_figures_of_request_turn_model_and_log(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.turn(await client.start(cwd=str(house.work)), "hello")
        found = scraped(daemon)
    assert found['unspool_requests_total{method="turn/start",outcome="ok"}'] == 1
    assert found['unspool_request_duration_seconds_count{method="turn/start"}'] == 1
    assert found['unspool_turns_total{kind="regular",outcome="completed"}'] == 1
    assert found['unspool_turn_duration_seconds_count{kind="regular"}'] == 1
    assert found["unspool_turn_first_delta_seconds_count"] == 1
    assert found['unspool_model_requests_total{outcome="ok",provider="mock"}'] == 1
    assert found['unspool_model_tokens_total{kind="input",provider="mock"}'] == 100
    assert found['unspool_model_tokens_total{kind="output",provider="mock"}'] == 10
    assert (found["unspool_connections"], found["unspool_connections_opened_total"]) == (1, 1)
    assert (found['unspool_threads{state="idle"}'], found["unspool_threads_loaded_total"]) == (1, 1)
    assert found["unspool_log_written_bytes_total"] == sum(map(len, house.logs().values()))
    assert found["unspool_events_published_total"] > 0
    assert found["unspool_subscriptions"] == 1


async def test_a_running_turn_is_an_active_thread_and_an_interrupt_is_an_outcome(house: House) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        assert scraped(daemon)['unspool_threads{state="active"}'] == 1
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await client.ended(turn)
        found = scraped(daemon)
    assert found['unspool_turns_total{kind="regular",outcome="interrupted"}'] == 1
    assert found['unspool_model_requests_total{outcome="cancelled",provider="offline"}'] == 1


async def test_model_failures_and_retries_are_counted(house: House, mock: Mock) -> None:
    house.service(mock, request_max_retries=1)
    mock.replies += [[{"http": 500}], [{"http": 400}]]
    async with house.daemon() as daemon:
        client = await daemon.connect()
        turn = await client.begin(await client.start(cwd=str(house.work)), "hello")
        assert (await client.ended(turn))["status"] == "failed"
        found = scraped(daemon)
    assert found["unspool_model_retries_total"] == 1
    assert found['unspool_model_requests_total{outcome="failed",provider="mock"}'] == 1
    assert found['unspool_turns_total{kind="regular",outcome="failed"}'] == 1


async def test_refusals_are_counted_by_reason_and_made_up_names_are_not_told(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.refused("no/such", {})
        await client.refused("thread/read", {"threadId": "nonsense"})
        await client.send_bytes(b"{")
        await client.until(lambda message: message.get("id", 0) is None)
        found = scraped(daemon)
    assert found['unspool_requests_total{method="unknown",outcome="refused"}'] == 1
    assert found['unspool_refusals_total{reason="unknownMethod"}'] == 1
    assert found['unspool_refusals_total{reason="parseError"}'] == 1
    assert not any("no/such" in name for name in found)


async def test_what_the_disk_refuses_shows_in_queue_and_counters_until_it_is_written(house: House) -> None:
    house.faults = Faults()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        house.faults.plan("append", errno.ENOSPC, times=10_000)
        await client.turn(thread, "two")
        full = scraped(daemon)
        house.faults.clear()
        await client.turn(thread, "three")
        after = scraped(daemon)
    assert full["unspool_writer_pending_records"] > 0
    assert full["unspool_writer_pending_bytes"] > full["unspool_writer_pending_records"]
    assert full["unspool_writer_failing_logs"] == 1
    assert full["unspool_write_failures_total"] > 0
    assert full["unspool_turns_unwritten_total"] == 1
    assert (after["unspool_writer_pending_records"], after["unspool_writer_failing_logs"]) == (0, 0)


async def test_damage_moves_a_counter_by_code_whoever_meets_it(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
    lines = house.log(thread).splitlines(keepends=True)
    house.log_file(thread).write_bytes(b"".join([*lines[:-2], b"not json\n", *lines[-2:]]))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/read", {"threadId": thread, "includeTurns": True})
        await client.call("thread/resume", {"threadId": thread})
        await client.call("thread/verify", {"threadId": thread})
        found = scraped(daemon)
        told = {m["params"]["code"] for m in client.seen if m.get("method") == "warning"}
    sources = {(s["code"], s["source"]) for s in map(labels_of, found) if "source" in s and "code" in s}
    assert {source for _, source in sources} == {"load", "read", "verify"}
    assert {code for code, source in sources if source in ("load", "read")} == told != set()


def labels_of(sample: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', sample))


async def test_replayed_events_are_counted_by_where_they_came_from(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread, "replay": {"after": None, "mode": "events"}})
        await client.event("turn/completed")
        found = scraped(daemon)
    assert found['unspool_events_replayed_total{source="log"}'] >= 5


def test_no_label_names_a_thread_a_turn_or_a_client() -> None:
    labels = {label for metric in metrics.METRICS.values() for label in metric.labels}
    assert labels == {"method", "outcome", "reason", "state", "kind", "provider", "code", "source", "version"}


async def test_figures_need_the_token_where_clients_need_one(house: House) -> None:
    async with house.daemon() as daemon:
        known = {"t0ken": OWNER, "tenants": Principal("t", "a", OWNER.scopes)}
        tokens = CapabilityTokens([Capability(digest_of(token), who) for token, who in known.items()])
        guarded = TestClient(application(daemon.shared, Rules(tokens)), "http://127.0.0.1")
        open_to_all = TestClient(application(daemon.shared, Rules()), "http://127.0.0.1")
        answers = await asyncio.to_thread(
            lambda: [
                guarded.get("/metrics").status_code,
                guarded.get("/metrics", headers={"authorization": "Bearer t0ken"}).status_code,
                guarded.get("/metrics", headers={"authorization": "Bearer tenants"}).status_code,
                guarded.get("/healthz").status_code,
                open_to_all.get("/metrics").status_code,
                open_to_all.get("/metrics", headers={"origin": "http://evil"}).status_code,
            ]
        )
        accept = {"accept": "application/openmetrics-text; version=1.0.0"}
        negotiated = await asyncio.to_thread(lambda: open_to_all.get("/metrics", headers=accept))
    assert answers == [401, 200, 403, 200, 200, 403]
    assert negotiated.headers["content-type"].startswith("application/openmetrics-text")
    assert negotiated.text.endswith("# EOF\n")


@pytest.mark.parametrize(("seconds", "bucket"), [(0.5, 0), (1.0, 0), (1.5, 1), (99.0, 2)])
def test_a_duration_counts_in_the_first_bucket_that_holds_it(seconds: float, bucket: int) -> None:
    histogram = Histogram(Metric("h", "H.", (), "histogram"), bounds=(1.0, 2.0))
    histogram.observe(seconds)
    assert histogram.series[()].counts == [int(place == bucket) for place in range(3)]
    assert (histogram.series[()].total, histogram.count()) == (seconds, 1)


def test_a_snapshot_adds_up_what_several_rooms_tell_of_one_figure() -> None:
    metrics.REFUSALS.add("overloaded")
    found = metrics.snapshot([Sample(metrics.OPEN_LOGS, 1), Sample(metrics.OPEN_LOGS, 2)])
    assert found == {"unspool_open_logs": 3, "unspool_refusals_total": {"reason=overloaded": 1}}


def test_a_counter_counts_by_labels() -> None:
    counter = Counter(Metric("c", "C.", ("a",), "counter"))
    counter.add("x")
    counter.add("x", amount=2)
    assert (counter.value("x"), counter.value("y")) == (3, 0)
