"""Parameters against their model, with the reference's error texts (`wire` §2).

Owns the wording of refusals only; which model belongs to which method is the handlers' table.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError
from unspool_protocol.base import WireModel

from unspool_server.errors import InvalidParams

M = TypeVar("M", bound=WireModel)

_SHOWN_CHARACTERS = 200

_EXPECTED = {
    "string": "a string",
    "bool": "a boolean",
    "int": "u32",
    "float": "a number",
    "list": "a sequence",
    "tuple": "a sequence",
    "set": "a sequence",
    "dict": "a map",
    "mapping": "a map",
    "model": "an object",
    "dataclass": "an object",
}


def validate(model: type[M], params: Any) -> M:
    """Check parameters strictly: no text for numbers, no numbers for text.

    Args:
        params: The decoded `params` member; None when absent or null.

    Raises:
        InvalidParams: `data.field` names the first member at fault, dotted; empty for `params` as a whole.
    """
    if params is None:
        raise _refusal("missing field `params`", "params")
    if not isinstance(params, Mapping):
        raise _refusal(f"invalid type: {describe(params)}, expected struct {model.__name__}", "params")
    try:
        # Strictness by JSON rules: enums and tuples come from text and arrays, but nothing is coerced.
        return model.model_validate_json(_to_json(params), strict=True)
    except ValidationError as error:
        raise _translate(error, params) from error


def describe(value: Any) -> str:
    """A JSON value as the reference's messages show it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean `{str(value).lower()}`"
    if isinstance(value, int):  # at most 64 bits, as the decoder has it
        return f"integer `{value}`"
    if isinstance(value, float):
        return f"floating point `{value}`"
    if isinstance(value, str):
        return f"string {json.dumps(shorten(value), ensure_ascii=False)}"
    return "map" if isinstance(value, Mapping) else "sequence"


def shorten(text: str) -> str:
    """A client's text as an error may repeat it; what is longer helps nobody."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _to_json(params: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(params)
    except TypeError:  # nested deeper than orjson writes
        return json.dumps(params).encode()


def _translate(error: ValidationError, params: Mapping[str, Any]) -> InvalidParams:
    """The first complaint of pydantic in the words of serde."""
    first = error.errors(include_url=False)[0]
    kind, location, value, context = first["type"], first["loc"], first["input"], first.get("ctx", {})
    field = _field(params, location, missing=kind == "missing")
    if kind == "json_invalid":
        return _refusal("params are nested too deeply", "params")
    if kind == "missing":
        return _refusal(f"missing field `{location[-1]}`", field)
    if kind in ("enum", "literal_error"):
        return _refusal(_unknown_variant(value, str(context["expected"])), field)
    if kind == "union_tag_invalid":
        return _refusal(_unknown_variant(context["tag"], str(context["expected_tags"])), field)
    if kind == "union_tag_not_found":
        return _refusal(f"missing field `{str(context['discriminator']).strip(chr(39))}`", field)
    if kind == "value_error":
        return _refusal(str(context["error"]), field)
    if kind.startswith(("greater_than", "less_than")):
        return _refusal(f"invalid value: {describe(value)}, expected {_EXPECTED['int']}", field)
    expected = _EXPECTED.get(kind.removesuffix("_type").removesuffix("_from_float"))
    if expected is not None:
        return _refusal(f"invalid type: {describe(value)}, expected {expected}", field)
    return _refusal(first["msg"], field)


def _field(params: Any, location: Sequence[str | int], *, missing: bool) -> str:
    """The dotted path that the client wrote. pydantic's locations also name members of unions, which are no fields."""
    path: list[str] = []
    for part in location:
        inside = (isinstance(params, Mapping) and part in params) or (
            isinstance(params, list) and isinstance(part, int) and part < len(params)
        )
        if inside:
            params = params[part]
            path.append(str(part))
    if missing:
        path.append(str(location[-1]))
    return ".".join(path)


def _unknown_variant(value: Any, expected: str) -> str:
    """`expected` is pydantic's list, `'a', 'b' or 'c'`."""
    names = [part.strip().strip("'") for part in expected.replace(" or ", ", ").split(",")]
    quoted = [f"`{name}`" for name in names]
    listing = {1: quoted[0], 2: " or ".join(quoted)}.get(len(quoted), "one of " + ", ".join(quoted))
    shown = shorten(value) if isinstance(value, str) else describe(value)
    return f"unknown variant `{shown}`, expected {listing}"


def _refusal(text: str, field: str) -> InvalidParams:
    return InvalidParams(f"Invalid request: {text}", data={"field": field})
