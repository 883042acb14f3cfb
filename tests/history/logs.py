"""Fixture logs for tests of `history/`: decoded as a store would, without a store."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_protocol.log import HistoryMode, Record
from unspool_server.history.boundaries import SUMMARY_PREFIX

FIXTURES = Path(__file__).parents[1] / "fixtures" / "codex"
PLACEHOLDER = "[SUMMARY PREFIX]\n"
_ENVELOPE = {"timestamp", "ordinal", "type", "payload", "metadata", "check"}


@dataclass(frozen=True, slots=True)
class FixtureLog:
    """One rollout with everything it inherits: the own header in front, then the records of the chain."""

    name: str
    thread_id: str
    path: Path
    mode: HistoryMode
    records: Sequence[Record]

    def __str__(self) -> str:
        return f"{self.name}-{self.path.stem[-12:]}"


@dataclass(frozen=True, slots=True)
class Info:
    """What a store would say of a rollout."""

    thread_id: str
    rollout_id: str
    mode: HistoryMode
    archived: bool
    header: Record | None


def decode(line: str, rollout_id: str, index: int) -> Record:
    """One line as a record; the placeholder of the summary prefix becomes our prefix, as it stands in our own logs."""
    raw = json.loads(line.replace(json.dumps(PLACEHOLDER)[1:-1], json.dumps(SUMMARY_PREFIX + "\n")[1:-1]))
    payload = raw.get("payload")
    return Record(
        rollout_id=rollout_id,
        ordinal=raw.get("ordinal", index),
        type=raw["type"],
        payload=payload if isinstance(payload, dict) else {},
        timestamp=raw.get("timestamp", ""),
        metadata=raw.get("metadata"),
        extra={key: value for key, value in raw.items() if key not in _ENVELOPE},
        raw=line.encode(),
    )


def rollout_id_of(path: Path) -> str:
    """The id at the end of a rollout's file name."""
    return path.stem[-36:]


def read_rollout(path: Path) -> list[Record]:
    """All records of one file."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [decode(line, rollout_id_of(path), index) for index, line in enumerate(lines) if line.strip()]


def read_chain(path: Path, paths: Sequence[Path]) -> list[Record]:
    """The records of a rollout with its base chain, oldest first; every header stands at its place."""
    records = read_rollout(path)
    base: Mapping[str, Any] | None = records[0].payload.get("history_base")
    if base is None:
        return records
    source = next(other for other in paths if rollout_id_of(other) == base["thread_id"])
    inherited = [record for record in read_chain(source, paths) if record.ordinal < base["end_ordinal_exclusive"]]
    return [*inherited, *records]


def rollout_paths(folder: Path) -> list[Path]:
    """All rollout files of one fixture, oldest name first."""
    return sorted(folder.glob("*sessions/**/*.jsonl"), key=lambda path: path.name)


def fixture_logs() -> Iterator[FixtureLog]:
    """Every rollout of every fixture."""
    for folder in sorted(FIXTURES.iterdir()):
        if not (folder / "expected.json").exists():
            continue
        paths = rollout_paths(folder)
        for path in paths:
            own = read_rollout(path)[0]
            chain = read_chain(path, paths)
            records = chain if chain[0] is own or chain[0] == own else [own, *chain]
            mode = HistoryMode(own.payload.get("history_mode", "legacy"))
            yield FixtureLog(folder.name, own.payload["id"], path, mode, records)


def expectations(name: str) -> dict[str, Any]:
    """`expected.json` of a fixture with our summary prefix in place of the placeholder."""
    text = (FIXTURES / name / "expected.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(
        text.replace(json.dumps(PLACEHOLDER)[1:-1], json.dumps(SUMMARY_PREFIX + "\n")[1:-1])
    )
    return loaded
