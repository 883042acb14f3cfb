"""Places in a thread's log as requests and answers spell them."""

from typing import Annotated

from pydantic import Field, StrictInt

from unspool_protocol.base import WireModel


class LogPosition(WireModel):
    """Addition: the thread as it was just before the record with this ordinal (exclusive end; legacy logs: line index).

    Attributes:
        rollout_id: The log file that holds the record, any that the thread ever had; without it, the present one.
        ordinal: Of the first record that does not count; the ordinal behind the last record means the rollout's end.
    """

    rollout_id: str | None = None
    ordinal: Annotated[StrictInt, Field(ge=0)]
