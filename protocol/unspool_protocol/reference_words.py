"""The words of the reference manual: its introductions, and what each `data.reason` means. No logic."""

from collections.abc import Mapping

from unspool_protocol.errors import ErrorCode

REASONS: Mapping[str, tuple[ErrorCode, str]] = {
    "invalidRequest": (ErrorCode.INVALID_REQUEST, "No valid request, or refused in this state; the message says why."),
    "invalidParams": (
        ErrorCode.INVALID_REQUEST,
        "A parameter is missing, of the wrong type or out of range; `data.field` names it.",
    ),
    "notInitialized": (ErrorCode.INVALID_REQUEST, "A request came before `initialize`."),
    "alreadyInitialized": (ErrorCode.INVALID_REQUEST, "`initialize` came twice on one connection."),
    "unknownMethod": (ErrorCode.INVALID_REQUEST, "No such method."),
    "experimentalApi": (
        ErrorCode.INVALID_REQUEST,
        "A method or member that needs `capabilities.experimentalApi`; `data.field` names it.",
    ),
    "threadNotFound": (
        ErrorCode.INVALID_REQUEST,
        "The thread does not exist, is not live, or may not be seen by this caller.",
    ),
    "noRollout": (ErrorCode.INVALID_REQUEST, "There is no log of this thread."),
    "archived": (ErrorCode.INVALID_REQUEST, "The thread is in the archive; take it out first."),
    "exists": (ErrorCode.INVALID_REQUEST, "A thread with this id exists already; it was not touched."),
    "held": (
        ErrorCode.INVALID_REQUEST,
        "Another process writes to this thread; `data.holder` names it where it is known.",
    ),
    "notMaterialized": (
        ErrorCode.INVALID_REQUEST,
        "The thread has no record yet, so there is nothing to list, fork or revert.",
    ),
    "turnNotFound": (ErrorCode.INVALID_REQUEST, "The thread has no such turn."),
    "rolloutNotFound": (ErrorCode.INVALID_REQUEST, "The thread has no such rollout."),
    "idempotencyKeyReused": (
        ErrorCode.INVALID_REQUEST,
        "The `idempotencyKey` belongs to a call of this method with other parameters; nothing changed.",
    ),
    "activeTurn": (ErrorCode.INVALID_REQUEST, "A turn is running; `data.turnId` names it."),
    "noActiveTurn": (ErrorCode.INVALID_REQUEST, "No turn is running."),
    "otherActiveTurn": (ErrorCode.INVALID_REQUEST, "Another turn is running than the one that was named."),
    "queueFull": (ErrorCode.INVALID_REQUEST, "As many inputs wait already as may; `data.most` says how many."),
    "queuedInputNotFound": (ErrorCode.INVALID_REQUEST, "No such input waits (any more)."),
    "turnsOutOfRange": (
        ErrorCode.INVALID_REQUEST,
        "Not a whole number >= 1, or more turns than the thread has; nothing changed.",
    ),
    "positionInvalid": (
        ErrorCode.INVALID_REQUEST,
        "No place in any log of this thread, or one inside its header; `data.field` names the parameter.",
    ),
    "cutsCall": (
        ErrorCode.INVALID_REQUEST,
        "A cut between a call and its output; `data.before` and `data.after` are the nearest positions that are none.",
    ),
    "notRelated": (ErrorCode.INVALID_REQUEST, "The two threads share no part of their past."),
    "nothingToUndo": (ErrorCode.INVALID_REQUEST, "No rollback or revert is there to be undone."),
    "shellDisabled": (ErrorCode.INVALID_REQUEST, "Commands are turned off (`features.shell_tool`)."),
    "unsupported": (ErrorCode.INVALID_REQUEST, "A known method that this thread cannot serve in its mode or state."),
    "unknownProvider": (ErrorCode.INVALID_REQUEST, "No such model provider is configured."),
    "cursorInvalid": (ErrorCode.INVALID_REQUEST, "A cursor of another thread, of the future, or none of ours."),
    "notSubscribed": (ErrorCode.INVALID_REQUEST, "This connection does not follow the thread."),
    "dependentThreads": (
        ErrorCode.INVALID_REQUEST,
        "Other threads begin in this one, so it cannot be deleted; `data.threadIds` names them.",
    ),
    "conflict": (ErrorCode.INVALID_REQUEST, "The log has another end than expected; nothing was written."),
    "corrupt": (ErrorCode.INTERNAL, "The log cannot be opened; `data.rolloutId` and `data.line` say where."),
    "writeFailed": (ErrorCode.INTERNAL, "The system refused a write; nothing changed. `data.retryable` says more."),
    "storeClosed": (ErrorCode.INTERNAL, "The log was closed, or another writer took over."),
    "closing": (ErrorCode.INVALID_REQUEST, "The thread is being unloaded; try again."),
    "shuttingDown": (ErrorCode.INVALID_REQUEST, "The server is about to end; ask the next one (`data.retryable`)."),
    "cancelled": (ErrorCode.INVALID_REQUEST, "The connection ended before the request was served."),
    "model": (ErrorCode.INTERNAL, "The model service failed; `data.codexErrorInfo` says how."),
    "overloaded": (ErrorCode.OVERLOADED, "Too many requests in flight; nothing was done, try again later."),
    "rateLimited": (
        ErrorCode.OVERLOADED,
        "Too many requests of this connection or its token in a time; `data.retryAfterMs` says how long to wait.",
    ),
    "limitReached": (
        ErrorCode.OVERLOADED,
        "The server holds as many of something as it may; `data.limit` names the setting, `data.max` its value.",
    ),
    "forbidden": (ErrorCode.INVALID_REQUEST, "The caller's token lacks a scope; `data.scope` names it."),
    "configRefused": (
        ErrorCode.INVALID_REQUEST,
        "A setting that this caller may not bring for a thread of its own; `data.field` names it.",
    ),
    "pathRefused": (
        ErrorCode.INVALID_REQUEST,
        "A path outside of what the server allows; `data.field` names the parameter.",
    ),
    "parseError": (ErrorCode.PARSE_ERROR, "The message is no JSON."),
    "batch": (ErrorCode.INVALID_REQUEST, "Batches are not served."),
    "notAnObject": (ErrorCode.INVALID_REQUEST, "The message is JSON, but no object."),
    "invalidUnicode": (ErrorCode.INVALID_REQUEST, "A string holds half of a surrogate pair."),
    "invalidId": (ErrorCode.INVALID_REQUEST, "The id is neither a string nor a 64-bit integer."),
    "missingMethod": (ErrorCode.INVALID_REQUEST, "The request names no method."),
    "invalidMethod": (ErrorCode.INVALID_REQUEST, "The method's name is no string."),
    "tooLong": (ErrorCode.INVALID_REQUEST, "The message is longer than the limit; it was passed over."),
    "binaryFrame": (ErrorCode.INVALID_REQUEST, "WebSocket messages must be text frames."),
    "internal": (ErrorCode.INTERNAL, "A fault of the server; `data.errorId` leads to its entry in the server's log."),
}
"""`data.reason` of every refusal: the usual code, and what it means. In step with what the server raises (tested)."""

REFUSALS: Mapping[str, tuple[str, ...]] = {
    "thread/start": ("unknownProvider", "held"),
    "thread/resume": ("noRollout", "archived", "held", "corrupt", "cursorInvalid", "unknownProvider"),
    "thread/fork": (
        "noRollout",
        "notMaterialized",
        "turnNotFound",
        "positionInvalid",
        "cutsCall",
        "corrupt",
        "unknownProvider",
        "writeFailed",
    ),
    "thread/subscribe": ("threadNotFound", "cursorInvalid", "corrupt"),
    "thread/replay/next": ("notSubscribed",),
    "thread/read": ("threadNotFound", "positionInvalid", "unsupported", "corrupt"),
    "thread/turns/list": (
        "threadNotFound",
        "notMaterialized",
        "positionInvalid",
        "unsupported",
        "cursorInvalid",
        "corrupt",
    ),
    "thread/context": ("threadNotFound", "notMaterialized", "positionInvalid", "corrupt"),
    "thread/diff": ("threadNotFound", "notMaterialized", "positionInvalid", "notRelated", "corrupt"),
    "thread/restore": (
        "threadNotFound",
        "activeTurn",
        "notMaterialized",
        "positionInvalid",
        "cutsCall",
        "conflict",
        "writeFailed",
    ),
    "thread/items/list": ("threadNotFound", "unsupported", "cursorInvalid", "corrupt"),
    "thread/list": ("cursorInvalid",),
    "thread/name/set": ("noRollout", "unsupported", "held", "writeFailed"),
    "thread/archive": ("noRollout", "held"),
    "thread/unarchive": ("noRollout", "held"),
    "thread/delete": ("noRollout", "held", "dependentThreads"),
    "thread/inject_items": ("threadNotFound", "writeFailed"),
    "thread/compact/start": ("threadNotFound",),
    "thread/revert": ("threadNotFound", "notMaterialized", "turnNotFound", "unsupported", "conflict", "writeFailed"),
    "thread/compact": ("threadNotFound", "activeTurn", "conflict", "writeFailed"),
    "thread/rollback": (
        "threadNotFound",
        "activeTurn",
        "turnsOutOfRange",
        "notMaterialized",
        "conflict",
        "writeFailed",
    ),
    "thread/rollback/undo": ("threadNotFound", "activeTurn", "nothingToUndo", "conflict", "writeFailed"),
    "thread/verify": ("noRollout", "notMaterialized"),
    "thread/audit": ("threadNotFound", "rolloutNotFound", "cursorInvalid", "corrupt"),
    "thread/branches": ("threadNotFound",),
    "thread/lineage": ("threadNotFound", "noRollout", "cursorInvalid"),
    "turn/start": ("threadNotFound", "activeTurn", "queueFull", "writeFailed"),
    "thread/queue/list": ("threadNotFound", "corrupt"),
    "thread/queue/update": ("threadNotFound", "queuedInputNotFound", "writeFailed"),
    "thread/queue/remove": ("threadNotFound", "queuedInputNotFound", "writeFailed"),
    "thread/queue/resume": ("threadNotFound", "writeFailed"),
    "turn/steer": ("threadNotFound", "noActiveTurn", "otherActiveTurn"),
    "turn/interrupt": ("threadNotFound", "noActiveTurn", "otherActiveTurn"),
}
"""What a method may be refused for beside bad parameters and the reasons that every method knows."""

INTRODUCTION = """\
# Protocol

<!-- Generated from the models by `make docs`; do not edit. -->

Unspool speaks the protocol of `codex app-server`: JSON-RPC 2.0 requests, answers and notifications, one JSON object per
line on stdio, one per text frame on a WebSocket. What the reference does not have is marked **addition**; a client that
does not know the additions is not affected by them. JSON Schema of everything here, and of the records in the log, is
written by `unspool schema --out DIR`.

Contents: [Envelope](#envelope) · [Methods](#methods) · [Notifications](#notifications) ·
[Server requests](#server-requests) · [Errors](#errors) · [Findings](#findings) · [Objects](#objects)
"""

FINDINGS = """\
## Findings

Codes of `thread/verify`, and of the `warning` notifications of a log that is less than perfect.
"""

ENVELOPE = """\
## Envelope

The `jsonrpc` member may be left out. A client that sends it in `initialize` gets it in every message; a client that
does not is answered without it. Ids are strings or 64-bit integers and come back with their type. Unknown members are
ignored. Every request gets exactly one answer, malformed ones too: with the id if it can be read, else with null.
Batches are refused with one error.

The first request of a connection is `initialize`, the notification `initialized` follows.
"""

CURSORS = """\
`cursor` and `replayed` stand beside `params`. A cursor is opaque text; keep the newest one and hand it to
`thread/resume` as `replay.after` to go on exactly there: after the answer come all later events, marked
`"replayed": true`, then the live ones, without gap or repeat. This holds across restarts of the server and after
rollbacks, where an event that explains the jump comes first. Broadcasts to connections that do not follow the thread
carry no cursor.
"""

METHODS = """\
## Methods

Null stands for a member that is left out. Unknown members are ignored. *Experimental* methods and members are refused
unless `initialize` set `capabilities.experimentalApi`.
"""

NOTIFICATIONS = """\
## Notifications

*Recorded* events follow from the log and can be replayed at any time, also after a restart; *ephemeral* ones live in
memory, until their item is recorded or their moment is over. *Broadcast* ones go to every connection that is
initialised, the others to subscribers of their thread: starting, resuming, forking or watching (`thread/subscribe`) a
thread subscribes to it. The last event of a turn is `turn/completed`; the status `idle` comes before it.
"""

REQUESTS = """\
## Server requests

The server asks, the client answers under the same id. A request goes to every subscriber of the thread; the first
valid answer counts, and `serverRequest/resolved` tells everybody. A client that resumes the thread while a request is
open gets it again, with its id.
"""

ERRORS = """\
## Errors

An error has `code`, `message` and `data`. Like the reference, the server uses -32600 for nearly every refusal; programs
should look at `data.reason`. A refused request has changed nothing. Reasons beside bad parameters stand with each
method; those of the envelope, the handshake and the server itself hold for all.
"""
