"""What the composition root hands to the handlers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

from unspool_server.access.paths import AllowedPaths
from unspool_server.events.hub import Hub
from unspool_server.handlers.context import RequestContext
from unspool_server.sessions.environment import Environment
from unspool_server.sessions.registry import Sessions
from unspool_server.sessions.repeats.home_calls import HomeCalls
from unspool_server.telemetry.instruments import Sample


@dataclass(frozen=True, slots=True)
class Services:
    """Shared by all requests of a process.

    Attributes:
        images: Where files lie that clients beside the machine's owner may give to the model.
    """

    sessions: Sessions
    hub: Hub
    env: Environment
    calls: HomeCalls
    images: AllowedPaths
    figures: Callable[[], Iterable[Sample]] = tuple


def services(ctx: RequestContext) -> Services:
    """The services of a request."""
    return cast(Services, ctx.services)
