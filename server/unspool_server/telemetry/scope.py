"""What the work at hand is about: connection, request, thread, turn. Log lines and traces carry it along.

Work that is handed to another task (the owner of a thread) takes its scope with it: `current` here, `within` there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Scope:
    """Facts by name, and the span that a new one begins in (of `traces`; None outside any)."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    span: Any = None


_NOWHERE = Scope()
_SCOPE: ContextVar[Scope] = ContextVar("unspool scope", default=_NOWHERE)


def current() -> Scope:
    """The scope of this task."""
    return _SCOPE.get()


@contextmanager
def within(scope: Scope) -> Iterator[None]:
    """Do something in a scope that was taken elsewhere."""
    token = _SCOPE.set(scope)
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextmanager
def bound(**facts: Any) -> Iterator[None]:
    """Add facts to the scope for the length of a block."""
    scope = _SCOPE.get()
    with within(Scope({**scope.facts, **facts}, scope.span)):
        yield


def entered(scope: Scope) -> None:
    """Make a scope that of the whole task from now on; for a task of its own, at its begin."""
    _SCOPE.set(scope)
