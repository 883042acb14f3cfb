"""Whose threads are whose: asked of the log once, then remembered (DESIGN §9.6). A thread never changes hands."""

from collections import OrderedDict

from unspool_server.errors import LogCorrupt, LogMissing
from unspool_server.history.tenancy import tenant_of
from unspool_server.store.contract import LogStore, RolloutInfo

_REMEMBERED = 100_000


class Tenants:
    """The tenants of stored threads."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._known: OrderedDict[str, str] = OrderedDict()

    def note(self, thread_id: str, tenant: str) -> None:
        """Remember a thread's tenant."""
        self._known[thread_id] = tenant
        self._known.move_to_end(thread_id)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def known(self, thread_id: str) -> str | None:
        """What is remembered; a deleted thread stays known for a while."""
        return self._known.get(thread_id)

    async def of(self, thread_id: str) -> str | None:
        """The tenant of a thread, None where there is no such thread.

        A log whose header cannot be read is the machine owner's: nobody else could be shown why it does not open.
        """
        if (known := self._known.get(thread_id)) is not None:
            return known
        try:
            tenant = await tenant_of_log(self._store, await self._store.find(thread_id))
        except LogMissing:
            return None
        except LogCorrupt:
            return ""
        self.note(thread_id, tenant)
        return tenant


async def tenant_of_log(store: LogStore, info: RolloutInfo) -> str:
    """What a rollout's header says; where another program wrote it, what the thread's first rollout says."""
    own = tenant_of(info.header)
    if own or info.rollout_id == info.thread_id:
        return own
    rollouts = await store.rollouts(info.thread_id)
    return tenant_of(rollouts[0].header) if rollouts else ""
