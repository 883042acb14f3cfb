"""Checking a stored thread: lines and references (`store.verify`) and records (`history.verify`) in one walk."""

from unspool_protocol.findings import ThreadVerifyResult

from unspool_server.history.verify import RecordChecks
from unspool_server.store.contract import LogStore
from unspool_server.store.findings import FoundList
from unspool_server.telemetry import metrics


async def verify_thread(store: LogStore, thread_id: str) -> ThreadVerifyResult:
    """Check every log of a thread. Nothing is written. Raises LogMissing."""
    found = FoundList()
    checks = RecordChecks(found.add)
    await store.verify(thread_id, found, checks.feed)
    checks.finish()
    for code, number in found.counts.items():
        metrics.FINDINGS.add(code, "verify", amount=number)
    return verify_result(thread_id, found)


def verify_result(thread_id: str | None, found: FoundList) -> ThreadVerifyResult:
    """The findings as the answer that clients and commands get."""
    return ThreadVerifyResult(
        thread_id=thread_id, verdict=found.verdict, summary=found.summary(), findings=tuple(found.kept)
    )
