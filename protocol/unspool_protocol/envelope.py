"""JSON-RPC envelopes of the wire's dialect (`wire` §2): no `jsonrpc` member needed, ids of two types.

Members beside those named here (`jsonrpc`, `trace`) are ignored.
"""

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from unspool_protocol.base import ExtendedWireModel, WireModel
from unspool_protocol.errors import ErrorCode

RequestId = StrictStr | Annotated[StrictInt, Field(ge=-(2**63), le=2**63 - 1)]
"""Echoed with its type; floats, bools, null and larger integers are no ids."""


class Request(WireModel):
    """A call that wants an answer. Parameters are checked against the method's own model."""

    id: RequestId
    method: StrictStr
    params: Any = None


class Notification(ExtendedWireModel):
    """A message that wants no answer.

    Attributes:
        emitted_at_ms: Milliseconds since the epoch, set by the server.
        cursor: Addition: the event's place in its thread's stream, opaque (DESIGN §6).
        replayed: Addition: true where the event is sent again to a client that catches up.
    """

    additions: ClassVar[frozenset[str]] = frozenset({"emittedAtMs", "cursor", "replayed"})

    method: StrictStr
    params: Any = None
    emitted_at_ms: int | None = None
    cursor: str | None = None
    replayed: bool | None = None


class ErrorObject(WireModel):
    """Why a request was refused; `data.reason` is for programs, `message` for people."""

    code: ErrorCode | StrictInt
    message: str
    data: Any = None


class Answer(BaseModel):
    """The answer to a request: a result or an error, never both."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: RequestId
    result: Any = None
    error: ErrorObject | None = None

    @property
    def failed(self) -> bool:
        """The request was refused."""
        return self.error is not None
