"""The base model of everything that crosses the wire: camelCase names outside, snake_case inside."""

from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    StrictInt,
    model_serializer,
)
from pydantic.alias_generators import to_camel


def _false_for_null(value: Any) -> Any:
    return False if value is None else value


Flag = Annotated[StrictBool, BeforeValidator(_false_for_null, json_schema_input_type=bool | None)]
"""A switch that is off where it is absent or null; clients send explicit nulls (`wire` §2)."""

Limit = Annotated[StrictInt, Field(ge=0, le=2**32 - 1)]
"""How many entries a page may hold; 0 passes (`wire` §6)."""


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("a path cannot hold NUL")
    return value


PathText = Annotated[str, AfterValidator(_without_nul)]
"""A path that a client gives; it need not exist, but a system call must be able to take it."""


class WireModel(BaseModel):
    """A message part. Unknown fields are ignored on input, as the reference does (`wire` §2); names are camelCase."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class KeyedParams(WireModel):
    """Parameters of a call that changes something, which may be sent again without harm.

    Attributes:
        idempotency_key: Addition: a text of the client's choice, 1 to 256 characters. The same call with the same key
            is carried out once and answered the same, also after a restart.
    """

    idempotency_key: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class OpenWireModel(WireModel):
    """A message part whose unknown fields are kept and sent on unchanged."""

    model_config = ConfigDict(extra="allow")


class ExtendedWireModel(WireModel):
    """A message part of the reference with members of ours, which are left out where they are null.

    `additions` holds the wire names of our members; without them the message is the reference's own.
    """

    additions: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_absent_additions(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shape: dict[str, Any] = handler(self)
        for name, value in list(shape.items()):
            if value is None and to_camel(name) in self.additions:
                del shape[name]
        return shape
