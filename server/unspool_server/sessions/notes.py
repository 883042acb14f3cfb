"""What clients are told of a log that is less than perfect: warnings with a stable code, the places and the effect.

The words are the table that checks use too (`unspool_protocol.finding_words`); a note is about what was read only.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from unspool_protocol.finding_words import MEANINGS
from unspool_protocol.log import LineFault, Record

from unspool_server.history.state import Degradation
from unspool_server.telemetry import metrics
from unspool_server.telemetry.logs import event

MAX_ORDINALS = 50
"""Places that one note names; the message tells how many there are."""

Note = dict[str, Any]

logger = logging.getLogger(__name__)


def damage_notes(faults: Iterable[LineFault], *, partly: bool) -> list[Note]:
    """One note for each kind of damage in each file.

    Args:
        partly: Only the end of the log was read, which the note then says.
    """
    grouped: dict[tuple[str, str], list[LineFault]] = {}
    for fault in dict.fromkeys(faults):
        grouped.setdefault((fault.rollout_id, fault.code), []).append(fault)
    return [_note(rollout_id, code, found, partly=partly) for (rollout_id, code), found in grouped.items()]


def _note(rollout_id: str, code: str, found: Sequence[LineFault], *, partly: bool) -> Note:
    meaning = MEANINGS[code]
    places = sorted({fault.line for fault in found})
    effect = meaning.still_works if meaning.lost is None else f"Lost: {meaning.lost} {meaning.still_works}"
    message = f"{meaning.what} Found {len(found)} time(s)"
    message += " in the part of the log that was read; thread/verify looks at all of it." if partly else "."
    return {
        "message": message,
        "code": code,
        "rolloutId": rollout_id,
        "ordinals": places[:MAX_ORDINALS],
        "effect": effect,
    }


def degradation_notes(found: Iterable[Degradation]) -> list[Note]:
    """Notes on old or unreadable records that made the model's history less than perfect."""
    return [
        {"message": one.effect, "code": one.code, "ordinals": list(one.ordinals[:MAX_ORDINALS]), "effect": one.effect}
        for one in found
    ]


def header_note(header: Record | None, thread_id: str) -> list[Note]:
    """A note where the header names another thread than the file, whose name counts."""
    if header is None or header.payload.get("id") == thread_id:
        return []
    fault = LineFault(header.rollout_id, header.ordinal, "headerOtherThread")
    return damage_notes([fault], partly=False)


def counted(notes: list[Note], source: Literal["load", "read"], thread_id: str) -> list[Note]:
    """Give the notes back, after operators were told what clients are about to be told (DESIGN §4)."""
    about_log = [note for note in notes if "ordinals" in note]
    for note in about_log:
        metrics.FINDINGS.add(note["code"], source, amount=max(1, len(note["ordinals"])))
    if about_log and source == "load":
        codes = sorted({note["code"] for note in about_log})
        event(logger, "the log is less than perfect", level=logging.WARNING, thread=thread_id, codes=codes)
    return notes
