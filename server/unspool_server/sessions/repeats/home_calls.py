"""Keyed calls that create, move or remove whole threads: carried out once, whatever ends in between.

A call that creates a thread reserves the thread's id in the journal before anything is made, so that a repeat after a
crash finds the thread or makes that one. A call that moves or removes a thread is begun again where it was cut off,
unless the thread shows that it was carried out. A refused call leaves its key free.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from unspool_server.errors import KeyReused, LogMissing, UnspoolError
from unspool_server.history.calls import CallMark
from unspool_server.sessions.clock import new_id
from unspool_server.sessions.registry import Sessions
from unspool_server.sessions.session import Session
from unspool_server.store.call_journal import CallJournal, HomeCall

T = TypeVar("T")


class HomeCalls:
    """The keyed calls of a process on whole threads; repeats of a running one wait for it."""

    def __init__(self, sessions: Sessions, journal: CallJournal) -> None:
        self._sessions, self._journal = sessions, journal
        self._doors: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()

    async def creates(
        self,
        call: CallMark | None,
        create: Callable[[str | None], Awaitable[Session]],
        reopen: Callable[[str], Awaitable[Session]],
    ) -> tuple[Session, bool]:
        """Create a thread, or open the one that this call created before.

        Args:
            create: Gets the id that the new thread must have, None where any will do.

        Returns:
            The live thread, and whether it is new.

        Raises:
            KeyReused: nothing was created. LogMissing: The thread is gone since. And what `create` and `reopen` raise.
        """
        if call is None:
            return await create(None), True
        return await self._sessions.finished(self._create(call, create, reopen))

    async def _create(
        self,
        call: CallMark,
        create: Callable[[str | None], Awaitable[Session]],
        reopen: Callable[[str], Awaitable[Session]],
    ) -> tuple[Session, bool]:
        wanted = _entry(call, new_id())
        async with self._alone(wanted):
            known = self._begin(wanted)
            if known is not None and (known.result is not None or await self._exists(known.thread_id)):
                return await reopen(known.thread_id), False
            entry = known or wanted
            session = await self._or_withdrawn(entry, create(entry.thread_id))
            self._journal.end(entry, {})
            return session, True

    async def changes(
        self,
        call: CallMark | None,
        change: Callable[[], Awaitable[Mapping[str, Any]]],
        settled: Callable[[], Awaitable[Mapping[str, Any] | None]],
    ) -> tuple[Mapping[str, Any], bool]:
        """Carry out a change of a whole thread once.

        Args:
            settled: For a change that was cut off: its answer where the thread shows that it was carried out.

        Returns:
            The answer, and whether it was carried out just now.

        Raises:
            KeyReused: nothing was changed. And what `change` raises.
        """
        if call is None:
            return await change(), True
        return await self._sessions.finished(self._change(call, change, settled))

    async def _change(
        self,
        call: CallMark,
        change: Callable[[], Awaitable[Mapping[str, Any]]],
        settled: Callable[[], Awaitable[Mapping[str, Any] | None]],
    ) -> tuple[Mapping[str, Any], bool]:
        wanted = _entry(call, call.thread_id)
        async with self._alone(wanted):
            known = self._begin(wanted)
            if known is not None:
                result = known.result if known.result is not None else await settled()
                if result is not None:
                    if known.result is None:
                        self._journal.end(wanted, result)
                    return result, False
            result = await self._or_withdrawn(wanted, change())
            self._journal.end(wanted, result)
            return result, True

    def _begin(self, wanted: HomeCall) -> HomeCall | None:
        known = self._journal.begin(wanted)
        if known is not None and known.digest != wanted.digest:
            raise KeyReused(wanted.method, wanted.key)
        return known

    async def _or_withdrawn(self, entry: HomeCall, work: Awaitable[T]) -> T:
        try:
            return await work
        except UnspoolError:
            self._journal.withdraw(entry)
            raise

    async def _exists(self, thread_id: str) -> bool:
        try:
            await self._sessions.info(thread_id)
        except LogMissing:
            return False
        return True

    def _alone(self, call: HomeCall) -> asyncio.Lock:
        door = self._doors.get(call.id)
        if door is None:
            door = self._doors[call.id] = asyncio.Lock()
        return door


def _entry(call: CallMark, thread_id: str) -> HomeCall:
    return HomeCall(call.scope, call.method, call.key, call.thread_id, call.digest, thread_id)
