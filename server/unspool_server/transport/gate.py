"""Who may come in over HTTP: origin, host, token and room are looked at before anything else (`wire` §1).

Owns the order of the checks and their answers; the rules are those of `access/`. Refusals say no more than the
reference's.
"""

from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from unspool_server.access.bearer import Unauthorized, Verifier, bearer_token
from unspool_server.access.gatekeeper import Gatekeeper, TooManyConnections
from unspool_server.access.principal import OWNER, Principal
from unspool_server.access.provenance import Provenance

LIVE, READY = "/healthz", "/readyz"
HEALTH = (LIVE, READY)
"""Open to whoever can reach the port, but not to web pages."""

PRINCIPAL = "unspool.principal"
"""Member of an ASGI scope: who was let in."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a listener tells who may come in.

    Attributes:
        verifier: None lets everyone in as the machine's owner.
    """

    verifier: Verifier | None = None
    provenance: Provenance = field(default_factory=Provenance)


OPEN_TO_OWNER = Rules(provenance=Provenance(names_checked=False))
"""For sockets that the system itself keeps others from."""


class Gate:
    """An ASGI application in front of another one."""

    def __init__(self, app: ASGIApp, rules: Rules, gatekeeper: Gatekeeper) -> None:
        self._app, self._rules, self._gatekeeper = app, rules, gatekeeper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request or an upgrade through, or answer 403 (origin, host), 401 (token), 503 or 429 (room)."""
        headers = Headers(scope=scope)
        provenance = self._rules.provenance
        if not provenance.origin_allowed(headers.get("origin")):
            await _refuse(Response(status_code=403), scope, receive, send)
            return
        if scope["type"] == "http" and scope["path"] in HEALTH:
            await self._app(scope, receive, send)
            return
        if not provenance.host_allowed(headers.get("host")):
            await _refuse(PlainTextResponse("host not allowed", status_code=403), scope, receive, send)
            return
        try:
            principal = self._principal(headers)
            scope = {**scope, PRINCIPAL: principal}
            if scope["type"] != "websocket":
                await self._app(scope, receive, send)
                return
            with self._gatekeeper.connection(principal):
                await self._app(scope, receive, send)
        except Unauthorized as error:
            await _refuse(PlainTextResponse(str(error), status_code=401), scope, receive, send)
        except TooManyConnections as error:
            await _refuse(PlainTextResponse(str(error), status_code=error.status), scope, receive, send)

    def _principal(self, headers: Headers) -> Principal:
        """Raises Unauthorized."""
        verifier = self._rules.verifier
        return OWNER if verifier is None else verifier.verify(bearer_token(headers))


async def _refuse(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or an upgrade, with a plain response."""
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)
