"""Looking into a home: threads, their model-visible texts, their files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unspool_server.history.prompt import prompt_items
from unspool_server.history.reconstruct import reconstruct
from unspool_server.history.state import Item, Reconstruction
from unspool_server.sessions.loading import load
from unspool_server.store.contract import ReadReport, RolloutInfo
from unspool_server.store.local import LocalStore


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder: relative path -> content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


async def thread_ids(home: Path) -> set[str]:
    """The threads of a home."""
    store = LocalStore(home)
    try:
        return {info.thread_id for info in await store.rollouts()}
    finally:
        await store.close()


async def bounded(home: Path, thread_id: str) -> Reconstruction:
    """What resuming a thread would read; damage on the way is a failure."""
    store = LocalStore(home)
    try:
        report = ReadReport()
        history = await load(store, await store.find(thread_id), report=report)
        assert report.faults == []
        return history.state
    finally:
        await store.close()


async def whole(home: Path, rollout: str) -> tuple[RolloutInfo, Reconstruction]:
    """What a rollout's whole log amounts to."""
    store = LocalStore(home)
    try:
        info = await store.rollout(rollout)
        records = [record async for record in store.read(rollout)]
        own = [record for record in records if info.header is None or record.position != info.header.position]
        assert info.header is not None
        return info, reconstruct([info.header, *own], info.mode)
    finally:
        await store.close()


async def model_items(home: Path, thread_id: str) -> list[Item]:
    """The items of the next request, without context that a turn would add."""
    return prompt_items((await bounded(home, thread_id)).history)


def told(items: Sequence[Item]) -> list[str]:
    """Items in short: `role: text`, `call id name`, `output id text`, `thought text`."""
    return [_short(item) for item in items]


def _short(item: Mapping[str, Any]) -> str:
    match item["type"]:
        case "message":
            return f"{item['role']}: {_texts(item['content'])}"
        case "function_call":
            return f"call {item['call_id']} {item['name']}"
        case "function_call_output":
            output = item["output"]
            return f"output {item['call_id']} {output if isinstance(output, str) else _texts(output)}"
        case "reasoning":
            return f"thought {item['summary'][0]['text']}"
        case kind:
            return str(kind)


def _texts(parts: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(part.get("text") or part.get("image_url", "") for part in parts)
