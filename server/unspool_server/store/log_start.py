"""Where an existing rollout is continued (01 §6): the next ordinal, and the line that the next check value covers."""

from contextlib import aclosing
from dataclasses import dataclass

from unspool_protocol.log import HistoryMode

from .blocks import LINE_BYTES, Bytes, count_lines, lines_backward
from .contract import RolloutInfo
from .lines import chain_link
from .reader import Source, records_backward


@dataclass(frozen=True, slots=True)
class LogStart:
    """Where a log is continued.

    Attributes:
        next_ordinal: The ordinal of the next record; in legacy logs the next line's index.
        link: `chain_link` of the newest line, `b""` for a new file.
    """

    next_ordinal: int = 0
    link: bytes = b""


async def find_log_start(data: Bytes, info: RolloutInfo) -> LogStart:
    """Read as little of the end as needed; legacy logs are counted through, since their ordinals are line indices."""
    link = b""
    async with aclosing(lines_backward(data, block_bytes=LINE_BYTES)) as lines:
        async for line in lines:
            if line.content.strip():
                link = chain_link(line.content)
                break
    if info.mode is HistoryMode.LEGACY:
        return LogStart(await count_lines(data), link)
    first = info.base.ordinal if info.base else 0
    newest: list[int] = []
    async with aclosing(records_backward(Source(info.rollout_id, data, False, first))) as placed:
        async for each in placed:
            newest.append(each.record.ordinal)
            # One more than the last, so that an odd last ordinal does not make the next ones repeat.
            if len(newest) == 2:
                break
    return LogStart(max(newest, default=first - 1) + 1, link)
