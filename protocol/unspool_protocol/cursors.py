"""A client's place among the events of one thread (DESIGN §6)."""

import base64
import binascii
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class EventCursor:
    """An event's place: the record it comes from, and a counter among the events of that record.

    Events derived from the record itself have the counters 0, 1, …; events that are not recorded (deltas, status)
    carry the newest record's ordinal and the counters after those. Cursors of one rollout are ordered by
    (ordinal, counter); rollouts of one thread are ordered by their creation.
    """

    rollout_id: str
    ordinal: int
    counter: int

    @property
    def key(self) -> tuple[int, int]:
        """Order among cursors of the same rollout."""
        return (self.ordinal, self.counter)

    def encode(self) -> str:
        """The opaque text that clients keep: URL-safe, without padding."""
        text = f"1:{self.rollout_id}:{self.ordinal}:{self.counter}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Self:
        """The reverse of `encode`.

        Raises:
            ValueError: The text is no cursor of ours.
        """
        try:
            plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
            version, rollout_id, ordinal, counter = plain.split(":")
            if version != "1" or not rollout_id or not (ordinal.isdecimal() and counter.isdecimal()):
                raise ValueError
            return cls(rollout_id, int(ordinal), int(counter))
        except (binascii.Error, UnicodeDecodeError, ValueError) as error:
            raise ValueError("not an event cursor") from error
