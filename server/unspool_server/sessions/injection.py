"""`thread/inject_items`: raw Responses items into a thread's history, without a turn (07 §9)."""

from collections.abc import Mapping, Sequence
from typing import Any

from unspool_protocol.log import NewRecord, RecordType

from unspool_server.errors import RequestError
from unspool_server.history.context import context_update
from unspool_server.sessions.clock import new_id
from unspool_server.sessions.records import item_record
from unspool_server.sessions.session import Session
from unspool_server.sessions.settings import settings_record, turn_context_record
from unspool_server.sessions.turns.context import context_facts


def check_items(items: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Refuse what no Responses item can be; unknown types pass, as in the reference.

    Raises:
        RequestError: An empty list, or an entry that is no object with a `type`.
    """
    if not items:
        raise RequestError("items must not be empty", data={"reason": "invalidParams", "field": "items"})
    for index, item in enumerate(items):
        if not isinstance(item, Mapping) or not isinstance(item.get("type"), str):
            raise RequestError(
                f"items[{index}] is not a valid response item: expected an object with a `type`",
                data={"reason": "invalidParams", "field": f"items[{index}]"},
            )
    return list(items)


async def inject(session: Session, items: Sequence[Mapping[str, Any]]) -> None:
    """Record the items, behind the running turn's finished ones if a turn runs. Written when it returns.

    Where the model was not told its context yet, as on a thread that never ran, context and settings come first, as in
    the reference. Runs inside a step.

    Raises:
        WriteFailed: nothing was injected.
    """
    untold = session.log.deferred or session.history.state.reference_context is None
    records = _first_records(session) if untold else []
    records += [item_record(item if item.get("id") else {**item, "id": f"item_{new_id()}"}) for item in items]
    await session.record_written(*records)
    if untold:
        session.applied = session.settings


def _first_records(session: Session) -> list[NewRecord]:
    settings = session.settings
    update = context_update(session.history.state, context_facts(session, settings))
    records = [item_record({**item, "id": f"msg_{new_id()}"}) for item in update.items]
    if update.world_state is not None:
        full, state = update.world_state
        records.append(NewRecord(RecordType.WORLD_STATE, {"full": full, "state": state}))
    applied = [] if settings == session.applied else [settings_record(settings, session.thread_id)]
    return [*records, turn_context_record(settings, None), *applied]
