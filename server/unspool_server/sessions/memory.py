"""Live memory of a thread: the records since its newest checkpoint and what they reconstruct to.

A cache of the log and nothing else: it is computed by `history.reconstruct` from the same records that a restart
would read, so both always agree (DESIGN §1.1, §9.1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from unspool_protocol.log import HistoryMode, Record, RecordType

from unspool_server.history.checkpoints import rolled_back_turns
from unspool_server.history.reconstruct import reconstruct
from unspool_server.history.settings import EffectiveSettings, effective_settings
from unspool_server.history.state import Reconstruction

_PLAIN_ITEMS = frozenset({"reasoning", "function_call", "custom_tool_call"})
"""Response items that a forward replay only appends (03 §5.2): no boundary, nothing cut at load."""

_NO_MODEL_INPUT = frozenset({RecordType.TOKEN_USAGE, RecordType.PARTIAL_MESSAGE})
"""Records that change nothing of what is reconstructed."""


class LiveHistory:
    """Records of a live thread, oldest first, with the reconstruction computed when asked for."""

    def __init__(self, mode: HistoryMode, header: Record, records: Sequence[Record]) -> None:
        self.mode = mode
        self.header = header
        self._records: list[Record] = list(records)
        self._state: Reconstruction | None = None
        self._settings: EffectiveSettings | None = None

    @classmethod
    def fresh(cls, mode: HistoryMode, header: Mapping[str, Any], rollout_id: str) -> Self:
        """The history of a thread that has no record yet; its header is still to be written."""
        return cls(mode, Record(rollout_id, 0, RecordType.SESSION_META, header), ())

    @property
    def records(self) -> Sequence[Record]:
        """The header followed by the records from the newest checkpoint (or the start) on."""
        return [self.header, *self._records]

    @property
    def in_place(self) -> Sequence[Record]:
        """The same records with the header where the log has it: behind what the rollout inherits."""
        rollout_id = self.header.rollout_id
        inherited = next((n for n, one in enumerate(self._records) if one.rollout_id == rollout_id), len(self._records))
        return [*self._records[:inherited], self.header, *self._records[inherited:]]

    @property
    def state(self) -> Reconstruction:
        """What the log says now."""
        if self._state is None:
            self._state = reconstruct(self.records, self.mode)
        return self._state

    @property
    def settings(self) -> EffectiveSettings:
        """The settings recorded last (07 §0)."""
        if self._settings is None:
            self._settings = effective_settings(self.records)
        return self._settings

    def extend(self, records: Sequence[Record]) -> None:
        """Take in records that the log has accepted."""
        for record in records:
            self._records.append(record)
            if self._state is not None and self._appends_plainly(record):
                self._state = replace(self._state, history=(*self._state.history, record.payload), spans=())
            elif record.type not in _NO_MODEL_INPUT:
                self._state = None
            if record.type != RecordType.PARTIAL_MESSAGE:
                self._settings = None

    def trim(self) -> None:
        """Drop records before the newest complete checkpoint; a restart would not read them either (03 §7)."""
        for index in range(len(self._records) - 1, 0, -1):
            record = self._records[index]
            if record.type == RecordType.COMPACTED:
                if "replacement_history" in record.payload and "window_number" in record.payload:
                    self._trim_to(index)
                return

    def _trim_to(self, index: int) -> None:
        if "resume_metadata" not in self._records[index].payload:
            return
        kept = self._records[index:]
        if any(rolled_back_turns(record) for record in kept):
            return  # a legacy marker may have removed the checkpoint's own turn
        if effective_settings([self.header, *kept]) == self.settings:
            self._records = kept

    @staticmethod
    def _appends_plainly(record: Record) -> bool:
        return record.type == RecordType.RESPONSE_ITEM and record.payload.get("type") in _PLAIN_ITEMS
