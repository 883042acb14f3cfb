"""Whether a command may run, must be asked about, or is refused. Pure.

There is no sandbox here: whatever a mode would allow inside one is not allowed outside of it. Without full access a
command runs only when somebody says so.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from unspool_protocol.settings import DangerFullAccess, ExternalSandbox, SandboxPolicy


class Ruling(Enum):
    """What is to be done about a command."""

    RUN = auto()
    ASK = auto()
    REFUSE = auto()


REFUSED = (
    "this server has no sandbox, and the approval policy does not let it ask: without full access no command is run"
)
"""The reason that the model is told."""


def ruling(policy: str | Mapping[str, Any], sandbox: SandboxPolicy) -> Ruling:
    """What policy and sandbox mode of a thread say of any command.

    `untrusted` asks about everything. With full access, or inside a sandbox that the client provides, all others run
    it; without, `never` refuses, `granular` asks where its `sandbox_approval` is on, and the rest asks.
    """
    if policy == "untrusted":
        return Ruling.ASK
    if isinstance(sandbox, DangerFullAccess | ExternalSandbox):
        return Ruling.RUN
    if isinstance(policy, Mapping):
        granular = policy.get("granular")
        allowed = isinstance(granular, Mapping) and granular.get("sandbox_approval") is True
        return Ruling.ASK if allowed else Ruling.REFUSE
    return Ruling.REFUSE if policy == "never" else Ruling.ASK
