"""The captured Codex logs (`tests/fixtures/codex`) as records, whole threads through their base chain."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from unspool_protocol.log import HistoryMode, Record
from unspool_server.history.boundaries import SUMMARY_PREFIX

FIXTURES = Path(__file__).parents[1] / "fixtures" / "codex"
SCENARIOS = sorted(folder.name for folder in FIXTURES.iterdir() if (folder / "expected.json").exists())

_NAME = re.compile(r"rollout-[\dT-]{19}-([0-9a-f-]{36})(?:_([0-9a-f-]{36}))?\.jsonl")


@dataclass(frozen=True, slots=True)
class CapturedThread:
    """One thread of a scenario: all records of its present, oldest first."""

    thread_id: str
    mode: HistoryMode
    records: tuple[Record, ...]


@cache
def expected(scenario: str) -> Mapping[str, Any]:
    """The scenario's `expected.json`."""
    found: Mapping[str, Any] = json.loads((FIXTURES / scenario / "expected.json").read_text(encoding="utf-8"))
    return found


def own_prefix(text: str) -> str:
    """The captures hold a placeholder for the summary prefix; a reader knows summaries by a real one."""
    return text.replace("[SUMMARY PREFIX]", SUMMARY_PREFIX)


@cache
def rollouts(scenario: str) -> Mapping[str, tuple[str, tuple[Record, ...]]]:
    """Rollout id -> file name and records; lines that are no record are left out."""
    found = {}
    for path in sorted((FIXTURES / scenario).glob("*sessions/**/*.jsonl")):
        name = _NAME.fullmatch(path.name)
        assert name is not None
        rollout_id = name[2] or name[1]
        found[rollout_id] = (path.name, tuple(_records(rollout_id, path)))
    return found


def _records(rollout_id: str, path: Path) -> Iterator[Record]:
    for index, raw in enumerate(path.read_bytes().split(b"\n")):
        try:
            line = json.loads(own_prefix(raw.decode("utf-8", "replace")))
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("type"), str):
            payload = line.get("payload")
            yield Record(
                rollout_id,
                line.get("ordinal", index),
                line["type"],
                payload if isinstance(payload, dict) else {},
                timestamp=str(line.get("timestamp", "")),
                metadata=line.get("metadata"),
                raw=raw,
            )


def chain(scenario: str, rollout_id: str) -> list[Record]:
    """A rollout's records behind those of its base."""
    records = rollouts(scenario)[rollout_id][1]
    base = records[0].payload.get("history_base") if records else None
    if base is None:
        return list(records)
    inherited = chain(scenario, base["thread_id"])
    return [record for record in inherited if record.ordinal < base["end_ordinal_exclusive"]] + list(records)


def captured(scenario: str, thread_id: str) -> CapturedThread:
    """A thread's present: its greatest file name with a valid header."""
    files = [
        (name, rollout_id)
        for rollout_id, (name, records) in rollouts(scenario).items()
        if thread_id in name and records and records[0].payload.get("id") == thread_id
    ]
    records = tuple(chain(scenario, max(files)[1]))
    return CapturedThread(thread_id, HistoryMode(records[-1].payload.get("history_mode") or _mode(records)), records)


def _mode(records: tuple[Record, ...]) -> str:
    return str(records[0].payload.get("history_mode", "legacy"))
