"""What reconstruction yields: values only, no rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Item = Mapping[str, Any]
"""One Responses item as recorded."""


@dataclass(frozen=True, slots=True)
class PreviousSettings:
    """Settings of the newest surviving turn (01 §1.3)."""

    model: str
    comp_hash: str | None = None
    realtime_active: bool | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """The context window in force (01 §3.3); ids are None where the log does not tell them."""

    number: int = 0
    first_id: str | None = None
    previous_id: str | None = None
    id: str | None = None


class Out(StrEnum):
    """Why a record is not part of the effective history."""

    ROLLBACK = "rollback"
    COMPACTION = "compaction"
    DAMAGE = "damage"
    LEGACY_RULE = "legacyRule"


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive records (indices into the records given, end exclusive) with one fate.

    `out` is None for records in force; `by` is the index of the record that put the others out.
    """

    start: int
    end: int
    out: Out | None = None
    by: int | None = None


@dataclass(frozen=True, slots=True)
class Degradation:
    """Something in the log makes the result less than perfect; clients are told (DESIGN §4).

    Attributes:
        code: Stable, for example `legacyCompaction`, `patchWithoutBase`, `invalidCheckpoint`.
        ordinals: The records concerned.
        effect: One sentence in plain words.
    """

    code: str
    ordinals: tuple[int, ...]
    effect: str


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """Everything a log says about a thread's model side (03 §1).

    Attributes:
        history: Raw model history: orphans are kept, prompt-time normalisation is `prompt.prompt_items`.
        reference_context: The `turn_context` payload that claims what the model was shown, or None.
        world_state: The environment baseline, or None.
        open_turn_id: The newest explicit turn without an end, None when none is open.
        spans: The fate of every record given to `reconstruct`, in order, for the model's view.
    """

    history: tuple[Item, ...] = ()
    previous_settings: PreviousSettings | None = None
    reference_context: Mapping[str, Any] | None = None
    world_state: Mapping[str, Any] | None = None
    window: Window = Window()
    last_started_turn_id: str | None = None
    open_turn_id: str | None = None
    degradations: tuple[Degradation, ...] = ()
    spans: Sequence[Span] = field(default=())


@dataclass(frozen=True, slots=True)
class Origins:
    """Which records (indices into those given) a reconstruction came from.

    Attributes:
        history: For each item of `Reconstruction.history`, the record that brought it: its own, or a checkpoint.
        reference: The record of `reference_context`.
        world: The records that `world_state` is built from, oldest first: a whole state and its patches.
        cleared: The legacy compaction that took the reference context away, if one did.
        base: The checkpoint that the history begins with, None where it begins with the log.
    """

    history: tuple[int, ...] = ()
    reference: int | None = None
    world: tuple[int, ...] = ()
    cleared: int | None = None
    base: int | None = None

    def moved(self, places: Sequence[int]) -> "Origins":
        """The same where record `n` of those given is record `places[n]` of a longer list."""

        def place(index: int | None) -> int | None:
            return None if index is None else places[index]

        return Origins(
            tuple(places[index] for index in self.history),
            place(self.reference),
            tuple(places[index] for index in self.world),
            place(self.cleared),
            place(self.base),
        )
