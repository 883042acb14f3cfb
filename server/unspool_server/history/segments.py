"""The reverse scan: which turns survive, and what the newest surviving ones say (03 §3, §4).

Records are fed newest first. They gather in a segment until the record that started its turn comes; the segment is then
finalised: taken into account, or dropped by a pending rollback. Records between two turns belong to the older one.
Everything that was decided stays decided, so feeding may stop as soon as `ReverseScan` knows what the caller needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from unspool_protocol.log import Record, RecordType

from .boundaries import is_instruction_record
from .checkpoints import Checkpoint, checkpoint_of, rolled_back_segments, settings_of
from .fields import flag_of, object_of, text_of
from .items import agent_message
from .state import PreviousSettings, Window


class Baseline(Enum):
    """What is known of the reference context item: nothing yet, cleared by a compaction, or the newest one."""

    NEVER = 0
    CLEARED = 1
    LATEST = 2


@dataclass(frozen=True, slots=True)
class WorldStep:
    """One change of the environment baseline: a whole state, a patch, or its end by a compaction (`state` None)."""

    key: int
    full: bool
    state: Mapping[str, Any] | None


@dataclass(slots=True)
class Segment:
    """The records of one turn as far as the scan has seen them."""

    turn_id: str | None = None
    completed: bool = False
    user: bool = False
    settings: PreviousSettings | None = None
    baseline: Baseline = Baseline.NEVER
    reference: Mapping[str, Any] | None = None
    reference_key: int | None = None
    world: list[WorldStep] = field(default_factory=list)
    full_world: bool = False
    checkpoint: int | None = None
    window: Window | None = None

    def compatible(self, turn_id: str | None) -> bool:
        """Equal ids, or at least one is missing."""
        return self.turn_id is None or turn_id is None or self.turn_id == turn_id

    def clear_baseline(self) -> None:
        """A compaction forgets the baseline, unless a newer record set one."""
        if self.baseline is Baseline.NEVER:
            self.baseline = Baseline.CLEARED


@dataclass(slots=True)
class ReverseScan:
    """What the newest surviving segments say. `key` values are the caller's; they only come back in results.

    Attributes:
        pending: Turns that rollback markers still have to remove.
        checkpoint: Key of the newest surviving checkpoint.
        reference_key: Key of the record of `reference`.
        world: Changes of the environment baseline in surviving segments, newest first.
    """

    pending: int = 0
    segment: Segment | None = None
    checkpoint: int | None = None
    window: Window | None = None
    settings: PreviousSettings | None = None
    baseline: Baseline = Baseline.NEVER
    reference: Mapping[str, Any] | None = None
    reference_key: int | None = None
    world: list[WorldStep] = field(default_factory=list)
    last_started: str | None = None

    def feed(self, key: int, record: Record) -> None:
        """Take the next older record."""
        match record.type:
            case RecordType.EVENT_MSG:
                self._event(record)
            case RecordType.RESPONSE_ITEM | RecordType.INTER_AGENT:
                if record.type == RecordType.RESPONSE_ITEM or agent_message(record.payload) is not None:
                    segment = self._open()
                    segment.user = segment.user or is_instruction_record(record)
            case RecordType.TURN_CONTEXT:
                self._turn_context(key, record.payload)
            case RecordType.WORLD_STATE:
                self._world_state(key, record.payload)
            case _:
                checkpoint = checkpoint_of(record)
                if checkpoint is not None:
                    self._checkpoint(key, checkpoint)

    def finish(self, *, base: Checkpoint | None = None) -> None:
        """The start of the log, or the record after a checkpoint that was installed at once, has been reached (03 §4).

        Companion records written with such a checkpoint restore the baseline only, not the settings.
        """
        if self.segment is None:
            return
        if base is not None and base.resume is not None and not self.segment.completed:
            self.segment.settings = None
        self._finalise(self.segment)

    def _open(self) -> Segment:
        if self.segment is None:
            self.segment = Segment()
        return self.segment

    def _event(self, record: Record) -> None:
        turn_id = text_of(record.payload, "turn_id")
        match record.event:
            case "thread_rolled_back":
                self.pending += rolled_back_segments(record)
            case "user_message":
                self._open().user = True
            case "task_complete":
                segment = self._open()
                segment.completed = True
                segment.turn_id = segment.turn_id or turn_id
            case "turn_aborted":
                if self.segment is not None or turn_id is not None:
                    segment = self._open()
                    segment.turn_id = segment.turn_id or turn_id
            case "task_started":
                self.last_started = self.last_started or turn_id
                if self.segment is not None and self.segment.compatible(turn_id):
                    self._finalise(self.segment)
            case _:
                pass

    def _turn_context(self, key: int, payload: Mapping[str, Any]) -> None:
        settings = settings_of(payload)
        if settings is None:
            return
        segment, turn_id = self._open(), text_of(payload, "turn_id")
        segment.turn_id = segment.turn_id or turn_id
        if segment.compatible(turn_id):
            segment.settings = settings
            if segment.baseline is Baseline.NEVER:
                segment.baseline, segment.reference, segment.reference_key = Baseline.LATEST, payload, key

    def _world_state(self, key: int, payload: Mapping[str, Any]) -> None:
        full, state = flag_of(payload, "full"), object_of(payload, "state")
        if full is None or state is None:
            return
        segment = self._open()
        compacted = any(step.state is None for step in segment.world)
        segment.full_world = segment.full_world or (full and not compacted)
        segment.world.append(WorldStep(key, full, state))

    def _checkpoint(self, key: int, checkpoint: Checkpoint) -> None:
        segment = self._open()
        segment.world.append(WorldStep(key, True, None))
        segment.clear_baseline()
        if segment.window is None:
            segment.window = checkpoint.window
        if segment.checkpoint is None and checkpoint.replacement is not None:
            segment.checkpoint = key

    def _finalise(self, segment: Segment) -> None:
        self.segment = None
        if self.pending > 0:
            self.pending -= 1 if segment.user else 0
            return
        self.world.extend(segment.world)
        if self.checkpoint is None:
            self.checkpoint = segment.checkpoint
        if self.window is None:
            self.window = segment.window
        has_context = segment.user or segment.full_world
        if self.settings is None and has_context:
            self.settings = segment.settings
        if self.baseline is Baseline.NEVER and (has_context or segment.baseline is Baseline.CLEARED):
            self.baseline, self.reference = segment.baseline, segment.reference
            self.reference_key = segment.reference_key
