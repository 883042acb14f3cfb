"""Text for shapes: what `reference` says about a member's type, default and meaning. Pure text, no tables.

Types are told in JSON's own words, since most readers write another language.
"""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.alias_generators import to_camel

from unspool_protocol import items, settings, thread_object

Schema = Mapping[str, Any]

_SOURCE = r"(?:`wire`|DESIGN|0\d) §[\w.]+"
_ALONE = re.compile(rf"\s*\((?:{_SOURCE}(?:, | and )?)+(?:, \"[^\"]*\")?\)")
_LEADING = re.compile(rf"\({_SOURCE}: ")
_CODE = re.compile(r"`([a-z0-9_.]+)`")


def _refs(schema: Schema) -> Iterator[str]:
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if "$ref" in branch:
            yield branch["$ref"].rpartition("/")[2]


_NAMED: Mapping[str, Any] = {
    "ThreadItem": items.ThreadItem,
    "UserInput": items.UserInput,
    "SandboxPolicy": settings.SandboxPolicy,
    "ThreadStatus": settings.ThreadStatus,
    "DynamicTool": thread_object.DynamicTool,
}

UNIONS: Mapping[str, frozenset[str]] = {
    name: frozenset(_refs(TypeAdapter(union).json_schema())) for name, union in _NAMED.items()
}
"""Unions that have a name of their own, by the names of their members."""


def link(name: str) -> str:
    """A link to a shape's own section."""
    return f"[{name}](#{name.lower()})"


def type_text(schema: Schema) -> str:
    """The type of a member, with links to the sections of named shapes."""
    if "$ref" in schema:
        return link(schema["$ref"].rpartition("/")[2])
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if branches:
        return _union_text(branches)
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    return _plain_text(schema)


def _union_text(branches: list[Schema]) -> str:
    refs = frozenset(branch["$ref"].rpartition("/")[2] for branch in branches if "$ref" in branch)
    name = next((name for name, members in UNIONS.items() if members == refs), None)
    texts = [link(name)] if name else []
    texts += [type_text(branch) for branch in branches if not (name and "$ref" in branch)]
    return " or ".join(sorted(texts, key=lambda text: text == "null"))


def _plain_text(schema: Schema) -> str:
    kind = schema.get("type", "any")
    if kind == "array":
        inner = type_text(schema.get("items", {}))
        return "array" if inner == "any" else f"array of ({inner})" if " or " in inner else f"array of {inner}"
    if kind == "object":
        inner_schema = schema.get("additionalProperties")
        return (
            f"object of {type_text(inner_schema)}" if isinstance(inner_schema, Mapping) and inner_schema else "object"
        )
    if kind == "integer" and "minimum" in schema:
        return f"integer >= {schema['minimum']}"
    return str(kind)


def default_text(name: str, schema: Schema, required: bool) -> str:
    """What happens where a member is left out."""
    if required:
        return "required"
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def summary(model: type) -> str:
    """The first paragraph of a shape's docstring, in the words of the wire."""
    return wire_words(" ".join(_paragraphs(model)[0].split()))


def meanings(model: type[BaseModel]) -> Mapping[str, str]:
    """What the docstrings of a shape and its bases say about single members, by wire name."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            for name, text in _attributes(base):
                field = model.model_fields.get(name)
                alias = field.alias if field is not None else None
                found[alias or to_camel(name)] = wire_words(text)
    return found


def _paragraphs(model: type) -> list[str]:
    own = model.__dict__.get("__doc__") or ""
    return inspect.cleandoc(own).split("\n\n") or [""]


def _attributes(model: type) -> Iterator[tuple[str, str]]:
    for paragraph in _paragraphs(model):
        if paragraph.startswith("Attributes:"):
            for entry in re.split(r"\n {4}(?=\w)", "\n" + paragraph.partition("\n")[2])[1:]:
                name, _, text = " ".join(entry.split()).partition(": ")
                yield name, text


def wire_words(text: str) -> str:
    """Take references to sources out of a docstring's text, and write member names as they are on the wire."""
    text = _LEADING.sub("(", _ALONE.sub("", text))
    return _CODE.sub(lambda found: f"`{'.'.join(map(to_camel, found[1].split('.')))}`", text)
