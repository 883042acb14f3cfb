"""Cuts that would part a call from its output, and where the nearest cuts are that would not (DESIGN §4; 04 §3.4)."""

from collections.abc import Sequence

from unspool_protocol.log import Position, Record, RecordType

from .prompt import OUTPUT_OF, call_id_of

_OUTPUTS = frozenset(OUTPUT_OF.values())


def has_open_call(records: Sequence[Record]) -> bool:
    """Whether a call among the records has no output there."""
    calls, outputs = _placed(records)
    return any(key not in outputs for key in calls)


def nearest_legal_cuts(before: Sequence[Record], after: Sequence[Record]) -> tuple[Position, Position] | None:
    """Where to cut instead when a cut between `before` and `after` parts a call from its output; None when it does not.

    Args:
        before: Records up to the cut, oldest first, at least those since the oldest call without an output.
        after: All records behind the cut.
    """
    records = [*before, *after]
    calls, outputs = _placed(records)
    spans = [(calls[key], outputs[key]) for key in calls if outputs.get(key, -1) > calls[key]]
    cut = len(before)
    if not any(call < cut <= output for call, output in spans):
        return None
    low, high = cut, cut
    while around := [span for span in spans if span[0] < low <= span[1]]:
        low = min(call for call, _ in around)
    while around := [span for span in spans if span[0] < high <= span[1]]:
        high = max(output for _, output in around) + 1
    last = records[high - 1]
    return records[low].position, Position(last.rollout_id, last.ordinal + 1)


_Key = tuple[str, str]


def _placed(records: Sequence[Record]) -> tuple[dict[_Key, int], dict[_Key, int]]:
    """Index of the first record of each call, and of the first output for each call."""
    calls: dict[_Key, int] = {}
    outputs: dict[_Key, int] = {}
    for index, record in enumerate(records):
        if record.type != RecordType.RESPONSE_ITEM:
            continue
        kind, call_id = record.payload.get("type"), call_id_of(record.payload)
        if not isinstance(kind, str) or call_id is None:
            continue
        if kind in OUTPUT_OF:
            calls.setdefault((OUTPUT_OF[kind], call_id), index)
        elif kind in _OUTPUTS:
            outputs.setdefault((kind, call_id), index)
    return calls, outputs
