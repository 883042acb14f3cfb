"""When a backward reader has seen enough for `reconstruct` and `effective_settings` (03 §7).

Generation B: the newest checkpoint installs at once, so nothing before it matters. Generation A: an older checkpoint
also needs closed turns that tell settings and baseline. A rollback marker, or a newest checkpoint that lacks a field,
means: read to the start. Owns no reading; a caller feeds records and stops when told.
"""

from dataclasses import dataclass, field

from unspool_protocol.log import HistoryMode, Record

from .checkpoints import Checkpoint, checkpoint_of, rolled_back_turns
from .reconstruct import installs_at_once
from .segments import Baseline, ReverseScan
from .settings import applied_settings, token_info_of, turn_context_of

_ENDS = ("task_started", "task_complete", "turn_aborted")


@dataclass(slots=True)
class _Seen:
    """What the settings for the next turn, and the question whether a turn is open, need."""

    applied: bool = False
    context: bool = False
    tokens: bool = False
    turn_edge: bool = False

    def feed(self, record: Record) -> None:
        self.applied = self.applied or applied_settings(record) is not None
        self.context = self.context or turn_context_of(record) is not None
        self.tokens = self.tokens or token_info_of(record) is not None
        self.turn_edge = self.turn_edge or record.event in _ENDS

    @property
    def all(self) -> bool:
        return self.applied and self.context and self.tokens and self.turn_edge


@dataclass(slots=True)
class BoundedScan:
    """Collects records newest to oldest until they are enough; the log's start is always enough.

    Invariant: `reconstruct([header, *records()])` equals `reconstruct` of the whole log, spans aside, and the
    same holds for `effective_settings`.
    """

    mode: HistoryMode
    _records: list[Record] = field(default_factory=list)
    _scan: ReverseScan = field(default_factory=ReverseScan)
    _seen: _Seen = field(default_factory=_Seen)
    _newest: Checkpoint | None = None
    _whole: bool = False

    def feed(self, record: Record) -> bool:
        """Take the next older record; True when nothing older is needed. Further records may still be fed."""
        self._records.append(record)
        self._seen.feed(record)
        if self._whole:
            return False
        if rolled_back_turns(record):
            self._whole = True
            return False
        checkpoint = checkpoint_of(record)
        if checkpoint is not None and self._newest is None:
            self._newest = checkpoint
            self._whole = not checkpoint.complete
        self._scan.feed(-len(self._records), record)
        return self._enough()

    def records(self) -> list[Record]:
        """What was fed, oldest first. The thread's own header has to be put in front."""
        return self._records[::-1]

    def _enough(self) -> bool:
        if self._whole or self._newest is None or not self._seen.all:
            return False
        return installs_at_once(self._newest, self.mode) or self._turn_is_told()

    def _turn_is_told(self) -> bool:
        """Generation A: closed turns have told everything that older ones could still add."""
        scan = self._scan
        decided = scan.checkpoint is not None and scan.window is not None and scan.settings is not None
        return decided and scan.baseline is not Baseline.NEVER and scan.last_started is not None
