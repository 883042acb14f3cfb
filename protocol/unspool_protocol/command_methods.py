"""Methods about commands that threads run: the user's own, and those that the model left running (`wire` §6)."""

from typing import Annotated

from pydantic import Field, StrictInt

from unspool_protocol.base import Limit, PathText, WireModel


class _ThreadParams(WireModel):
    thread_id: str


class ThreadShellCommandParams(_ThreadParams):
    """`thread/shellCommand`: a line for the user's shell. It is the user's word: nobody is asked, nothing confines it.

    Attributes:
        timeout_ms: Longest life of the command; what the configuration says where it is missing.
    """

    command: str
    timeout_ms: Annotated[StrictInt, Field(ge=0)] | None = None


class ThreadShellCommandResult(WireModel):
    """Accepted; the command runs in a turn of its own, or beside the running one."""


class ThreadBackgroundTerminalsListParams(_ThreadParams):
    """`thread/backgroundTerminals/list`."""

    cursor: str | None = None
    limit: Limit | None = None


class BackgroundTerminal(WireModel):
    """A command that is still running: `process_id` is the session that the model knows, `os_pid` the system's."""

    item_id: str
    process_id: str
    command: str
    cwd: PathText
    os_pid: int | None = None
    cpu_percent: float | None = None
    rss_kb: int | None = None


class ThreadBackgroundTerminalsListResult(WireModel):
    """Commands that the model left running, oldest first."""

    data: tuple[BackgroundTerminal, ...] = ()
    next_cursor: str | None = None


class ThreadBackgroundTerminalsCleanParams(_ThreadParams):
    """`thread/backgroundTerminals/clean`."""


class ThreadBackgroundTerminalsCleanResult(WireModel):
    """They were told to end, and have ended."""


class ThreadBackgroundTerminalsTerminateParams(_ThreadParams):
    """`thread/backgroundTerminals/terminate`."""

    process_id: str


class ThreadBackgroundTerminalsTerminateResult(WireModel):
    """Whether there was such a command to end."""

    terminated: bool
