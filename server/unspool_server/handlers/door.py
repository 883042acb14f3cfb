"""The one place that every request passes before its handler: foreign threads are disguised, paths are checked.

Parameters that name threads are known by their names, so that a new method is guarded as soon as it is there. A thread
that the caller may not see is exchanged for one that does not exist (DESIGN §9.6; `access.disguise`).
"""

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from unspool_protocol.base import WireModel

from unspool_server.access.disguise import Disguise, ids_in, usual_spelling
from unspool_server.access.paths import AllowedPaths
from unspool_server.access.principal import Principal
from unspool_server.errors import PathRefused

P = TypeVar("P", bound=WireModel)


class Registry(Protocol):
    """Tells whose a thread is (`sessions.registry`)."""

    async def tenant_of(self, thread_id: str) -> str | None:
        """None where there is no such thread."""


class Door:
    """Looks at the threads that a request names."""

    def __init__(self, registry: Registry, paths: AllowedPaths) -> None:
        self._registry, self._paths = registry, paths

    async def admit(self, principal: Principal, params: P, disguise: Disguise) -> P:
        """The parameters as the handler may see them; `disguise` leads its answer back to what the caller wrote.

        Raises:
            PathRefused: A path that leads out of the home and of every allowed folder.
        """
        changes: dict[str, Any] = {}
        shown: str | tuple[str, ...]
        for name, value in params:
            if _names_thread(name) and isinstance(value, str):
                shown = await self._shown(principal, value, disguise)
            elif name == "path" and isinstance(value, str):
                if not self._paths.allows(value):
                    raise PathRefused("path")
                shown = await self._shown_path(principal, value, disguise)
            elif _names_thread(name.removesuffix("s")) and isinstance(value, tuple):
                shown = tuple([await self._shown(principal, each, disguise) for each in value])
            else:
                continue
            if shown != value:
                changes[name] = shown
        return params.model_copy(update=changes) if changes else params

    async def _shown(self, principal: Principal, given: str, disguise: Disguise) -> str:
        thread_id = usual_spelling(given)
        if thread_id is None:
            return given  # no id at all: the handler refuses it
        tenant = await self._registry.tenant_of(thread_id)
        return given if tenant in (None, principal.tenant) else disguise.put_on(given, thread_id)

    async def _shown_path(self, principal: Principal, path: str, disguise: Disguise) -> str:
        folder, slash, name = path.rpartition("/")
        for given in ids_in(name):
            name = name.replace(given, await self._shown(principal, given, disguise))
        return folder + slash + name


def _names_thread(name: str) -> bool:
    return name == "thread_id" or name.endswith("_thread_id")


def thread_fields(params: type[WireModel]) -> Iterator[str]:
    """The members of parameters that the door looks at."""
    for name in params.model_fields:
        if _names_thread(name) or _names_thread(name.removesuffix("s")) or name == "path":
            yield name
