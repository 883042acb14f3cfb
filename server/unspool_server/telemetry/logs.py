"""Log lines for operators: on stderr only, as JSON or for people, each with what the work at hand is about.

Code logs through `logging`, or through `event` where a line has facts. structlog renders, and is imported with the
first line, so that a start that has nothing to say does not pay for it (DESIGN §8). No prompt and no secret is ever a
fact; values that a validator quotes are left out of tracebacks.
"""

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from pydantic import ValidationError

from unspool_server.config_daemon import LoggingOptions
from unspool_server.telemetry.scope import current

OURS = ("unspool", "unspool_server")
"""Roots of our loggers. The level is theirs; libraries tell warnings only: some log addresses with keys in them."""

KEPT_FAULTS = 50
"""Warnings and errors that are kept for diagnostics."""

_FACTS = "unspool_facts"
_SCOPE = "unspool_scope"


def event(
    logger: logging.Logger,
    text: str,
    *,
    level: int = logging.INFO,
    exc_info: BaseException | None = None,
    **facts: Any,
) -> None:
    """Log one notable event with its facts; None stands for what is not known and is left out."""
    if logger.isEnabledFor(level):
        known = {name: value for name, value in facts.items() if value is not None}
        logger.log(level, text, exc_info=exc_info, extra={_FACTS: known}, stacklevel=2)


@dataclass(frozen=True, slots=True)
class Fault:
    """A warning or an error as diagnostics tell it; `at` is in seconds since the epoch."""

    at: float
    level: str
    logger: str
    text: str
    error_id: str | None = None


class Faults(logging.Handler):
    """Remembers the newest warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.newest: deque[Fault] = deque(maxlen=KEPT_FAULTS)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one; its traceback is in the log."""
        facts: Mapping[str, Any] = getattr(record, _FACTS, {})
        level, text = record.levelname.lower(), record.getMessage()
        self.newest.append(Fault(record.created, level, record.name, text, facts.get("error_id")))


FAULTS = Faults()
"""Of this process."""


class _Scoped(logging.Filter):
    """Puts the scope of the task that logs into the record; drops what libraries tell below warnings."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Some libraries set a level of their own, which the root's does not stop."""
        setattr(record, _SCOPE, current().facts)
        return record.levelno >= logging.WARNING or record.name.partition(".")[0] in OURS


class _Rendered(logging.Formatter):
    """Renders a record with structlog, which it imports when it first has one."""

    def __init__(self, kind: str, *, colors: bool) -> None:
        super().__init__()
        self._kind, self._colors = kind, colors
        self._render: Callable[[dict[str, Any]], str] | None = None

    def format(self, record: logging.LogRecord) -> str:
        """One line; for people also the traceback below it."""
        if self._render is None:
            self._render = _renderer(self._kind, colors=self._colors)
        entry = _entry(record)
        if self._kind != "json":
            entry["event"] = _harmless(entry["event"])
            if "exception" in entry:
                entry["exception"] = "\n".join(map(_harmless, entry["exception"].split("\n")))
        return self._render(entry)


def _harmless(text: str) -> str:
    """One line, with nothing in it that would do something to a terminal; JSON does without."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def _renderer(kind: str, *, colors: bool) -> Callable[[dict[str, Any]], str]:
    import structlog

    render: Any = (
        structlog.processors.JSONRenderer(default=str)
        if kind == "json"
        else structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=0, sort_keys=False)
    )
    return lambda entry: str(render(None, "", entry))


def _entry(record: logging.LogRecord) -> dict[str, Any]:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
    entry: dict[str, Any] = {
        "timestamp": moment,
        "level": record.levelname.lower(),
        "event": record.getMessage(),
        "logger": record.name,
        **getattr(record, _SCOPE, {}),
        **getattr(record, _FACTS, {}),
    }
    if record.exc_info and record.exc_info[1] is not None:
        entry["exception"] = _traceback(record.exc_info[1])
    return entry


def _traceback(error: BaseException) -> str:
    """The traceback of an error and of what led to it, without the values that validators quote."""
    import traceback

    lines: list[str] = []
    for one in traceback.TracebackException.from_exception(error).format():
        lines.append(one)
    told = "".join(lines).rstrip()
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ValidationError):
            told = told.replace(str(cause), _without_values(cause))
        cause = cause.__cause__ or cause.__context__
    return told


def _without_values(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    places = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['type']}" for fault in faults)
    return f"{error.error_count()} validation errors for {error.title}: {places}"


class _Stderr(logging.Handler):
    """Writes to whatever stderr is at the moment, or to a given stream."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line at once."""
        try:
            out = self._stream if self._stream is not None else sys.stderr
            out.write(self.format(record) + "\n")
            out.flush()
        except (OSError, ValueError):
            # Nobody reads our stderr any more; there is no other place to say so.
            self.handleError(record)


def install(options: LoggingOptions, *, quiet: bool, stream: TextIO | None = None) -> None:
    """Log to stderr from now on; replaces what an earlier call installed.

    Args:
        quiet: Where no level is configured, tell warnings only: our stderr is another program's to show.
    """
    out = stream if stream is not None else sys.stderr
    kind = options.format or ("console" if out.isatty() else "json" if not quiet else "console")
    handler = _Stderr(stream)
    handler.setFormatter(_Rendered(kind, colors=out.isatty()))
    handler.addFilter(_Scoped())
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one.formatter, _Rendered) or one is FAULTS]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.addHandler(FAULTS)
    root.setLevel(logging.WARNING)
    level = (options.level or ("warning" if quiet else "info")).upper()
    for name in OURS:
        logging.getLogger(name).setLevel(level)
