"""The tool servers of a process: one connection for each configured server, shared by the threads that use it.

Owns which thread uses which connection; a connection that no thread uses any more is closed.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from unspool_server.config import McpServerConfig
from unspool_server.mcp.connection import McpConnection

OnState = Callable[[str, McpConnection], None]
"""Called with a thread and a connection of it whose state has changed."""


class McpServers:
    """Connections by name and configuration: a thread that overrides a server's table gets one of its own.

    Args:
        cwd: The folder of started servers whose table names none.
    """

    def __init__(self, cwd: str, on_state: OnState = lambda _thread, _connection: None) -> None:
        self._cwd, self._on_state = cwd, on_state
        self._connections: dict[tuple[str, str], McpConnection] = {}
        self._users: dict[McpConnection, set[Hashable]] = {}
        self._told: dict[McpConnection, set[str]] = {}
        self._work: set[asyncio.Task[None]] = set()

    def of_thread(self, thread_id: str, tables: Mapping[str, McpServerConfig]) -> list[McpConnection]:
        """The connections of a thread by the names of its enabled servers, in order of the names; none is started."""
        found = self._used(thread_id, tables)
        for connection in found:
            told = self._told.setdefault(connection, set())
            if thread_id not in told:
                told.add(thread_id)
                if connection.state == "ready":
                    self._on_state(thread_id, connection)
        return found

    @asynccontextmanager
    async def looked_at(self, tables: Mapping[str, McpServerConfig]) -> AsyncGenerator[list[McpConnection], None]:
        """The connections of the enabled servers, started if need be, and ended again if nobody else uses them."""
        looker = object()
        found = self._used(looker, tables)
        try:
            await asyncio.gather(*(connection.ready() for connection in found))
            yield found
        finally:
            self.release(looker)

    def release(self, user: Hashable) -> None:
        """A thread was unloaded; servers that only it used are ended in the background."""
        for connection, users in list(self._users.items()):
            if user in users:
                users.discard(user)
                self._told.get(connection, set()).discard(str(user))
                if not users:
                    self._spawn(self._drop(connection))

    async def reload(self) -> None:
        """End every connection; the next turns start them anew."""
        await asyncio.gather(*(self._drop(connection) for connection in list(self._users)))

    async def close(self) -> None:
        """End every server; nothing of them is left running."""
        await self.reload()
        await asyncio.gather(*self._work, return_exceptions=True)

    def _used(self, user: Hashable, tables: Mapping[str, McpServerConfig]) -> list[McpConnection]:
        found = [self._connection(name, table) for name, table in sorted(tables.items()) if table.enabled]
        for connection in found:
            self._users.setdefault(connection, set()).add(user)
        return found

    def _connection(self, name: str, table: McpServerConfig) -> McpConnection:
        key = _key(name, table)
        found = self._connections.get(key)
        if found is None:
            found = self._connections[key] = McpConnection(name, table, self._cwd, self._changed)
        return found

    def _changed(self, connection: McpConnection) -> None:
        for thread_id in sorted(self._told.get(connection, ())):
            self._on_state(thread_id, connection)

    async def _drop(self, connection: McpConnection) -> None:
        self._users.pop(connection, None)
        self._told.pop(connection, None)
        for key, found in list(self._connections.items()):
            if found is connection:
                del self._connections[key]
        await connection.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="mcp-drop")
        self._work.add(task)
        task.add_done_callback(self._work.discard)


def _key(name: str, table: McpServerConfig) -> tuple[str, str]:
    # Not its dump, which leaves out environment and headers.
    return name, repr(sorted(dict(table).items()))
