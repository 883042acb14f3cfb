"""The protocol's reference manual, written out of the models (`docs/protocol.md`).

Owns the order and the words between the tables; what is in the tables comes from `methods`, `notifications`,
`requests`, `errors` and the shapes themselves, so the manual cannot fall behind them.
"""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from unspool_protocol import envelope
from unspool_protocol import reference_words as words
from unspool_protocol.base import WireModel
from unspool_protocol.errors import ErrorCode
from unspool_protocol.finding_words import MEANINGS
from unspool_protocol.methods import EXPERIMENTAL_FIELDS, METHODS, Method
from unspool_protocol.notifications import NOTIFICATIONS, NotificationKind
from unspool_protocol.reference_types import (
    UNIONS,
    default_text,
    link,
    meanings,
    summary,
    type_text,
    wire_words,
)
from unspool_protocol.requests import SERVER_REQUESTS
from unspool_protocol.startup import AnyParams
from unspool_protocol.thread_object import ThreadOverrides, ThreadSetup

_REMARK = re.compile(r"^\s*\([^()]*\):")


def render() -> str:
    """The whole manual as Markdown; equal models give equal text."""
    return _Manual().text()


class _Manual:
    """Holds the schemas of everything while the text is put together."""

    def __init__(self) -> None:
        models = list(dict.fromkeys(_all_models()))
        _, schemas = models_json_schema([(model, "validation") for model in models], by_alias=True)
        self._schemas: Mapping[str, Any] = schemas["$defs"]
        self._top = {model.__name__ for model in models} - {ThreadOverrides.__name__, ThreadSetup.__name__}
        self._classes = {kind.__name__: kind for kind in _shapes(BaseModel, Enum)}

    def text(self) -> str:
        parts = [words.INTRODUCTION, words.ENVELOPE, *self._table(envelope.Notification), words.CURSORS, words.METHODS]
        for method in METHODS.values():
            parts += self._method(method)
        parts.append(words.NOTIFICATIONS)
        for kind in NOTIFICATIONS.values():
            parts += self._notification(kind)
        parts.append(words.REQUESTS)
        for request in SERVER_REQUESTS.values():
            parts += [f"### `{request.name}`\n", f"{_said(summary(request.params), request.name)}\n"]
            parts += [*self._table(request.params), f"Answer: {summary(request.response)}\n"]
            parts += self._table(request.response)
        parts += [words.ERRORS, *_error_tables(), words.FINDINGS, _finding_table(), "## Objects\n"]
        for name in sorted(self._objects()):
            parts += self._object(name)
        return "\n".join(parts)

    def _method(self, method: Method) -> Iterator[str]:
        yield f"### `{method.name}`\n"
        marks = [text for text, holds in (("Addition", method.ours), ("Experimental", method.experimental)) if holds]
        prefix = f"**{', '.join(marks)}.** " if marks else ""
        yield f"{prefix}{_sentence(method.doc.removeprefix('Addition: '))}\n"
        if method.params is None:
            yield "Parameters: none; null or absent.\n"
        elif method.params is AnyParams:
            yield "Parameters: an object; what it holds makes no difference.\n"
        else:
            said = _said(summary(method.params), method.name)
            yield f"Parameters: {said}\n" if said and not method.doc.endswith(said) else "Parameters:\n"
            yield from self._table(method.params, experimental=EXPERIMENTAL_FIELDS.get(method.name, frozenset()))
        yield f"Result: {_said(summary(method.result), method.name)}\n"
        yield from self._table(method.result, answer=True)
        if method.name in words.REFUSALS:
            yield f"Refused for: {', '.join(f'`{reason}`' for reason in words.REFUSALS[method.name])}.\n"

    def _notification(self, kind: NotificationKind) -> Iterator[str]:
        yield f"### `{kind.name}` (notification)\n"
        marks = ["recorded" if kind.recorded else "ephemeral", *(["broadcast"] if kind.broadcast else [])]
        yield f"{summary(kind.params)} *{', '.join(marks).capitalize()}.*\n"
        yield from self._table(kind.params)

    def _table(
        self, model: type[BaseModel], *, answer: bool = False, experimental: frozenset[str] = frozenset()
    ) -> Iterator[str]:
        """The members of a shape; those of the large shared bases are left to a link."""
        schema = self._schemas[model.__name__]
        told = meanings(model)
        base = next(
            (base for base in (ThreadOverrides, ThreadSetup) if issubclass(model, base) and model is not base), None
        )
        shared = set(self._schemas[base.__name__]["properties"]) if base is not None else set()
        rows = []
        for name, member in schema.get("properties", {}).items():
            if name in shared:
                continue
            meaning = " ".join(
                filter(
                    None, ("*Experimental.*" if name in experimental else "", told.get(name) or self._addition(member))
                )
            )
            default = "" if answer else default_text(name, member, name in schema.get("required", ()))
            rows.append((f"`{name}`", type_text(member), *(() if answer else (default,)), meaning))
        if rows:
            heads = ("member", "type", "meaning") if answer else ("member", "type", "when left out", "meaning")
            yield _markdown_table(heads, rows)
        if base is not None:
            gated = ", ".join(f"`{name}`" for name in sorted(experimental & shared))
            note = f" (experimental: {gated})" if gated else ""
            yield f"{'And the' if rows else 'The'} members of {link(base.__name__)}{note}.\n"
        if not rows and base is None:
            yield "`{}`\n"

    def _addition(self, member: Mapping[str, Any]) -> str:
        """What a member's own shape says where that shape is an addition."""
        refs = [branch["$ref"].rpartition("/")[2] for branch in member.get("anyOf", ()) if "$ref" in branch]
        told = summary(self._classes[refs[0]]) if len(refs) == 1 and refs[0] in self._classes else ""
        return told if told.startswith("Addition") else ""

    def _objects(self) -> Iterator[str]:
        yield from UNIONS
        for name in self._schemas:
            if name not in self._top:
                yield name

    def _object(self, name: str) -> Iterator[str]:
        yield f"### {name}\n"
        if name in UNIONS:
            members = sorted(UNIONS[name], key=list(self._schemas).index)
            yield f"Told apart by `type`: {', '.join(map(link, members))}.\n"
            return
        kind = self._classes[name]
        yield f"{summary(kind)}\n"
        if issubclass(kind, BaseModel):
            yield from self._table(kind, answer=kind is ThreadSetup)
        else:
            yield f"{type_text(self._schemas[name])}\n"


def _all_models() -> Iterator[type[BaseModel]]:
    yield from (envelope.Notification, ThreadOverrides, ThreadSetup)
    for method in METHODS.values():
        yield from (model for model in (method.params, method.result) if model is not None)
    for kind in NOTIFICATIONS.values():
        yield kind.params
    for request in SERVER_REQUESTS.values():
        yield from (request.params, request.response)


def _shapes(*roots: type[Any]) -> Iterator[type[Any]]:
    """Every class of this package below the given ones."""
    for root in roots:
        subclasses: list[type[Any]] = root.__subclasses__()
        for kind in subclasses:
            if kind.__module__.startswith(f"{WireModel.__module__.partition('.')[0]}."):
                yield kind
            yield from _shapes(kind)


def _finding_table() -> str:
    rows = [
        (f"`{code}`", one.severity.value, one.what, one.lost or "", one.still_works) for code, one in MEANINGS.items()
    ]
    return _markdown_table(("code", "severity", "what is wrong", "what is lost", "what still works"), rows)


def _error_tables() -> Iterator[str]:
    codes = [(str(int(code)), _member_docs(ErrorCode).get(code.name, "")) for code in ErrorCode]
    yield _markdown_table(("code", "meaning"), codes)
    reasons = [(f"`{reason}`", str(int(code)), meaning) for reason, (code, meaning) in words.REASONS.items()]
    yield _markdown_table(("`data.reason`", "usual code", "meaning"), reasons)


def _member_docs(enum: type[Enum]) -> Mapping[str, str]:
    """The texts below the members of an enumeration, which Python does not keep."""
    body = ast.parse(inspect.getsource(enum)).body[0]
    found: dict[str, str] = {}
    name = ""
    for statement in body.body if isinstance(body, ast.ClassDef) else ():
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
        elif name and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            found[name] = wire_words(" ".join(str(statement.value.value).split()))
    return found


def _said(text: str, name: str) -> str:
    """A shape's summary without the method's own name in front."""
    text = text.removeprefix("Addition").lstrip(": ").removeprefix(f"`{name}`")
    return _sentence(_REMARK.sub("", text).lstrip(".;:, "))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _markdown_table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    heads = tuple(heads)
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
