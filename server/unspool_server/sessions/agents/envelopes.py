"""Messages between agents as input of a turn or as records of an idle thread (03 §2; shapes as the reference's).

Owns what an envelope says and how it is recorded; who sends one when is `agents.py`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from unspool_protocol.items import SubAgentActivityItem
from unspool_protocol.log import NewRecord, RecordType

from unspool_server.history.calls import CallMark
from unspool_server.sessions.clock import new_id
from unspool_server.sessions.records import item_record

EnvelopeKind = Literal["NEW_TASK", "MESSAGE", "FINAL_ANSWER"]


@dataclass(frozen=True, slots=True)
class Envelope:
    """What one agent says to another.

    Attributes:
        author: Path of the agent that speaks, as `/root/NAME`; `recipient` of the one that is spoken to.
        trigger: It begins a turn, so that it is a boundary (03 §2).
        activity: What clients of the recipient see, where it is recorded within a turn.
        call: Its mark in the recipient's log, so that it is recorded once.
    """

    author: str
    recipient: str
    body: str
    kind: EnvelopeKind
    trigger: bool = False
    activity: SubAgentActivityItem | None = None
    call: CallMark | None = None
    item_id: str = field(default_factory=lambda: f"amsg_{new_id()}")
    client_id: None = None
    queue_id: str | None = None

    @property
    def text(self) -> str:
        """What a list of threads shows of it."""
        return self.body

    @property
    def response_item(self) -> dict[str, Any]:
        """The message as the model sees it."""
        lead = f"Message Type: {self.kind}\nTask name: {self.recipient}\nSender: {self.author}\nPayload:\n"
        content = [{"type": "input_text", "text": lead + self.body}]
        sides = {"author": self.author, "recipient": self.recipient}
        return {"type": "agent_message", "id": self.item_id, **sides, "content": content}


def envelope_records(envelope: Envelope, item: Mapping[str, Any]) -> list[NewRecord]:
    """Whether it triggers, then the message; `item` is its Responses item, attributed to a turn or not."""
    return [NewRecord(RecordType.INTER_AGENT_METADATA, {"trigger_turn": envelope.trigger}), item_record(item)]
