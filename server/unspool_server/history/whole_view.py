"""The client's view of a whole log: which records `client_view` is told of, and the turns that come out."""

from collections.abc import Callable, Sequence

from unspool_protocol.log import HistoryMode, Record
from unspool_protocol.turns import Turn

from .client_view import ClientView
from .event_shapes import TURN_ENDS, ClientEvent
from .in_force import restore_of
from .state import Out, Span
from .survival import client_survival


def folded_view(
    records: Sequence[Record],
    thread_id: str,
    mode: HistoryMode,
    survival: Sequence[Span] | None = None,
    *,
    watch: Callable[[int, ClientView, Sequence[ClientEvent]], None] | None = None,
) -> ClientView:
    """A view that has seen a whole log and goes on live: markers that are applied to it later are carried out.

    Args:
        survival: The fate of each record in the client's view; computed here when it is not at hand. Records that
            a rollback put out are left out, and the markers among the records mean nothing more.
        watch: Called after each record that was applied, with its index and its events.
    """
    view = ClientView(thread_id, mode, obeys_markers=False)
    survival = client_survival(records, mode) if survival is None else survival
    gone, forgotten = rolled_back_indices(survival), restored_away(records, survival)
    for index, record in enumerate(records):
        if index not in gone or (index not in forgotten and ends_surviving_turn(view, record)):
            events = view.apply(record)
            if watch is not None:
                watch(index, view, events)
    view.obeys_markers = True
    return view


def client_turns(
    records: Sequence[Record], thread_id: str, mode: HistoryMode, survival: Sequence[Span] | None = None
) -> list[Turn]:
    """The whole client view of a log. An open turn is shown interrupted; the caller lays the running one over it.

    Args:
        survival: As for `folded_view`.
    """
    view = folded_view(records, thread_id, mode, survival)
    if view.current_draft is not None:
        view.current_draft.settle()
    return view.turns


def rolled_back_indices(survival: Sequence[Span]) -> frozenset[int]:
    """Indices of the records that a rollback put out."""
    return frozenset(index for span in survival if span.out is Out.ROLLBACK for index in range(span.start, span.end))


def restored_away(records: Sequence[Record], survival: Sequence[Span]) -> frozenset[int]:
    """Indices of the records that a restore put out: they end no turn, the log reads as if they were not there."""
    return frozenset(
        index
        for span in survival
        if span.by is not None and restore_of(records[span.by]) is not None
        for index in range(span.start, span.end)
    )


def ends_surviving_turn(view: ClientView, record: Record) -> bool:
    """Whether a removed record ends a turn whose beginning stays (03 §10 row 52): the turn was not cut off."""
    current = view.current_draft
    return current is not None and record.event in TURN_ENDS and record.payload.get("turn_id") == current.id
