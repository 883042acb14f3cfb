"""Which keyed calls and messages a thread has taken in, over its whole past, without reading it when it is opened.

Live records are folded as they come. What is older is read with the first question that they cannot answer: each
rollout of the thread from where its index beside the log ends, so that the cost is that of the tail. The indexes are
caches: missing or broken ones are built anew from the logs. What a call is lies in `history/calls.py`.
"""

from collections.abc import Sequence
from contextlib import aclosing

import orjson
from unspool_protocol.log import Record

from unspool_server.errors import LogCorrupt, LogMissing
from unspool_server.history.calls import CallId, CallIndex, CallMark, Said
from unspool_server.sessions.branches.rollout_path import path_of
from unspool_server.store.contract import Log, LogStore, RolloutInfo

SIDE = "calls"
"""Name of the index beside a rollout."""

KEEP_AFTER = 32
"""Calls and messages after which the index is written again at a turn's end; a restart reads at most as many anew."""


class KnownCalls:
    """The calls and messages of one thread. Used inside steps of its owner, except `keep`."""

    def __init__(self, log: Log, store: LogStore) -> None:
        self._log, self._store = log, store
        self._index = CallIndex(log.info.thread_id)
        self._accepted: dict[CallId, CallMark] = {}
        self._complete = log.deferred
        self._new = 0

    @property
    def must_be_kept(self) -> bool:
        """Whether so much came that a restart should not have to read it again."""
        return self._complete and self._new >= KEEP_AFTER

    def take(self, records: Sequence[Record]) -> None:
        """Fold records in that the log has accepted."""
        self._new += sum(self._index.apply(record) for record in records)
        for recorded in [one for one in self._accepted if one in self._index.calls]:
            del self._accepted[recorded]

    def switch(self, log: Log, own: Sequence[Record]) -> None:
        """The thread goes on in another rollout that begins with these records."""
        self._log = log
        self.take(own)

    def accept(self, mark: CallMark) -> None:
        """Remember a call whose mark will be recorded with the message that it brought."""
        self._accepted[mark.id] = mark

    async def call(self, call_id: CallId) -> CallMark | None:
        """A keyed call that was carried out before, or is being carried out."""
        if (known := self._index.calls.get(call_id) or self._accepted.get(call_id)) is not None:
            return known
        await self._read_older()
        return self._index.calls.get(call_id)

    async def message(self, client_id: str) -> Said | None:
        """Where the message with this `clientUserMessageId` is, also one that was rolled back since."""
        if (known := self._index.messages.get(client_id)) is not None:
            return known
        await self._read_older()
        return self._index.messages.get(client_id)

    async def keep(self) -> None:
        """Write the index of the present rollout beside it; only of what the disk has."""
        log = self._log
        if not self._complete or not self._new or log.deferred or log.last_error is not None:
            return
        self._new = 0
        await self._write(log.info.rollout_id, log.next_ordinal)

    async def _write(self, rollout_id: str, end: int) -> None:
        content = orjson.dumps({"end": end, **self._index.part(rollout_id)})
        await self._store.write_side(rollout_id, SIDE, content)

    async def _read_older(self) -> None:
        if self._complete:
            return
        live, self._index = self._index, CallIndex(self._index.thread_id)
        thread_id = self._index.thread_id
        for info, cut in await self._inherited():
            await self._read(info, below=cut)
        for info in await self._store.rollouts(thread_id):
            found, end = await self._read(info)
            if found >= KEEP_AFTER:
                await self._write(info.rollout_id, end)
        self._index.calls |= live.calls
        self._index.messages |= live.messages
        self._index.turn_id = live.turn_id or self._index.turn_id
        self._complete = True

    async def _inherited(self) -> list[tuple[RolloutInfo, int | None]]:
        """Rollouts of other threads that this one's history begins in; none where one of them is gone."""
        try:
            path = await path_of(self._store, await self._store.rollout(self._log.info.rollout_id))
        except (LogMissing, LogCorrupt):
            return []
        return [(step.info, step.cut) for step in path if step.info.thread_id != self._index.thread_id]

    async def _read(self, info: RolloutInfo, below: int | None = None) -> tuple[int, int]:
        """Take in one rollout's own records; gives how many calls and messages its index lacked, and where it ends."""
        first = info.base.ordinal if info.base is not None else 0
        end = max(await self._kept(info, below), first)
        found = 0
        async with aclosing(self._store.read(info.rollout_id, start=end, end=below)) as records:
            async for record in records:
                if record.rollout_id == info.rollout_id:
                    found += self._index.apply(record)
                    end = record.ordinal + 1
        return found, end

    async def _kept(self, info: RolloutInfo, below: int | None) -> int:
        """Take in what the index beside a rollout holds; gives the ordinal that it ends at, 0 without one."""
        content = await self._store.read_side(info.rollout_id, SIDE)
        if content is None:
            return 0
        try:
            kept = orjson.loads(content)
            end = int(kept["end"])
            self._index.add_part(info.rollout_id, kept, below)
        except (ValueError, TypeError, KeyError):
            return 0
        return end
