"""A client for commands: of a running server, or of a daemon in this very process."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from unspool_client import Channel, Client, ClientError

from unspool_server import __version__
from unspool_server.cli.options import Failure, Remote, ServerOptions
from unspool_server.config_base import ConfigError
from unspool_server.config_file import resolve_home
from unspool_server.errors import UnspoolError
from unspool_server.transport.memory import MemoryTransport

T = TypeVar("T")


class MemoryLink:
    """The client's channel over the in-memory transport."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport

    async def send(self, message: bytes) -> None:
        """Hand one message to the server."""
        await self._transport.send(message)

    async def receive(self) -> bytes | None:
        """The server's next message, None when it has closed."""
        try:
            return await self._transport.recv_bytes()
        except EOFError:
            return None

    async def close(self) -> None:
        """Go away."""
        await self._transport.close()

    def lost_because(self) -> str:
        """What error texts say."""
        return "the server in this process ended"


@asynccontextmanager
async def connected(options: ServerOptions, *, remote: Remote | None, name: str) -> AsyncIterator[Client]:
    """Yield a client; without `remote` a daemon runs beside it and is closed in order afterwards.

    Args:
        name: `clientInfo.name`; threads are recorded under it as their originator.
    """
    if remote is not None:
        token, home = _token(remote.token_env), resolve_home(options.home)
        opening = Client.connect(
            remote.url, token, token_file=remote.token_file, home=home, name=name, version=__version__
        )
        async with opening as client:
            yield client
        return
    from unspool_server.cli.daemon import local_daemon

    async with local_daemon(options) as shared:

        async def open_link() -> Channel:
            transport = MemoryTransport(shared)
            transport.start()
            return MemoryLink(transport)

        async with Client.over(open_link, name=name, version=__version__, reconnect=None) as client:
            yield client


def run(options: ServerOptions, remote: Remote | None, body: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, do something, disconnect.

    Raises:
        Failure: The server refused, could not be reached, or the configuration cannot be used.
    """

    async def whole() -> T:
        async with connected(options, remote=remote, name="unspool_cli") as client:
            return await body(client)

    with reported():
        return asyncio.run(whole())


@contextmanager
def reported() -> Iterator[None]:
    """A block whose expected errors end the command with one line on stderr and status 1."""
    try:
        yield
    except ConfigError as error:
        raise Failure(f"Error loading config.toml: {error.message}") from error
    except (ClientError, UnspoolError) as error:
        # The wire says it in the reference's words, which name the reference's command.
        told = str(error).replace("`codex unarchive ", "`unspool threads unarchive ")
        raise Failure(f"Error: {told}") from error


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    token = os.environ.get(variable)
    if not token:
        raise Failure(f"Error: environment variable `{variable}` is not set")
    return token
