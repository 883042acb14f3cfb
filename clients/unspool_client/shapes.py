"""Between Python arguments, models and raw params. Knows the method table, sends nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from unspool_protocol.base import WireModel
from unspool_protocol.methods import METHODS
from unspool_protocol.positions import LogPosition
from unspool_protocol.time_travel import ThreadPosition

Input = str | Sequence[Mapping[str, Any] | WireModel]
"""A turn's input: a text, or pieces as the wire has them (`{"type": "text", "text": …}`)."""

Place = LogPosition | ThreadPosition | int
"""A point of a thread, as answers give it too; a number is an ordinal of its present rollout."""


def place(at: Place) -> dict[str, Any]:
    """A point as params have it."""
    if isinstance(at, ThreadPosition):
        at = LogPosition(rollout_id=at.rollout_id, ordinal=at.ordinal)
    return wire_shape(LogPosition(ordinal=at) if isinstance(at, int) else at)


def key(idempotency_key: str | None) -> dict[str, Any]:
    """A key as params have it; nothing without one."""
    return {} if idempotency_key is None else {"idempotencyKey": idempotency_key}


def wire_shape(model: WireModel) -> dict[str, Any]:
    """A model as raw params: absent options are left out, nulls that the caller wrote are sent."""
    shape: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    for name in model.model_fields_set & type(model).model_fields.keys():
        value, alias = getattr(model, name), type(model).model_fields[name].alias or name
        if value is None:
            shape[alias] = None
        elif isinstance(value, WireModel):
            shape[alias] = wire_shape(value)
    return shape


def params_of(method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check keyword arguments against a method's params model.

    Raises:
        TypeError: The method has no such parameter.
        pydantic.ValidationError: A value has the wrong shape.
    """
    model = METHODS[method].params
    if model is None:
        raise TypeError(f"{method} takes no parameters")
    unknown = arguments.keys() - model.model_fields.keys()
    if unknown:
        raise TypeError(f"{method} has no parameter {sorted(unknown)[0]!r}")
    return wire_shape(model.model_validate(dict(arguments)))


def method_of(params: type[WireModel], result: type[WireModel]) -> str:
    """The name of the method with these models.

    Raises:
        TypeError: No method, or several, have them.
    """
    names = [row.name for row in METHODS.values() if row.params is params and row.result is result]
    if len(names) != 1:
        raise TypeError(f"{len(names)} methods take {params.__name__} and answer {result.__name__}")
    return names[0]


def pieces(given: Input) -> list[dict[str, Any]]:
    """A turn's input as the wire has it."""
    if isinstance(given, str):
        return [{"type": "text", "text": given, "text_elements": []}]
    return [wire_shape(piece) if isinstance(piece, WireModel) else dict(piece) for piece in given]
