"""Settings of threads and turns as they cross the wire: policies, sandboxes, git facts, status (`wire` §5, §6).

Owns shapes only; which settings are in force is decided in `history/` and `sessions/`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field

from unspool_protocol.base import Flag, OpenWireModel, WireModel

SandboxMode = Literal["read-only", "workspace-write", "danger-full-access"]
"""A sandbox as `thread/start` names it."""

ApprovalsReviewer = Literal["user", "auto_review"]
"""Who answers approval requests."""

SortDirection = Literal["asc", "desc"]
"""The order of a page."""

SessionSource = str | Mapping[str, Any]
"""Where a thread came from: `cli`, `vscode`, `exec`, `appServer`, `unknown`, `{custom}` or `{subAgent}`."""


class GranularApproval(OpenWireModel):
    """Approval decided per kind of action: `{"granular": {...}}`, its members kept as they are."""

    granular: Mapping[str, Any]


ApprovalPolicy = Literal["untrusted", "on-request", "never"] | GranularApproval
"""When the user is asked before a command runs."""


class DangerFullAccess(WireModel):
    """No sandbox."""

    type: Literal["dangerFullAccess"] = "dangerFullAccess"


class ReadOnly(WireModel):
    """Commands may read everything and write nothing."""

    type: Literal["readOnly"] = "readOnly"
    network_access: Flag = False


class WorkspaceWrite(WireModel):
    """Commands may write in the thread's folder and the roots given."""

    type: Literal["workspaceWrite"] = "workspaceWrite"
    writable_roots: tuple[str, ...] = ()
    network_access: Flag = False
    exclude_tmpdir_env_var: Flag = False
    exclude_slash_tmp: Flag = False


class ExternalSandbox(WireModel):
    """The caller has put the server into a sandbox already."""

    type: Literal["externalSandbox"] = "externalSandbox"
    network_access: Literal["restricted", "enabled"] = "restricted"


SandboxPolicy = Annotated[DangerFullAccess | ReadOnly | WorkspaceWrite | ExternalSandbox, Discriminator("type")]
"""A sandbox as results, `turn/start` and settings notifications spell it out."""

_POLICIES: dict[SandboxMode, SandboxPolicy] = {
    "read-only": ReadOnly(),
    "workspace-write": WorkspaceWrite(),
    "danger-full-access": DangerFullAccess(),
}


def sandbox_policy(mode: SandboxMode) -> SandboxPolicy:
    """The policy that a mode stands for."""
    return _POLICIES[mode]


class ActivePermissionProfile(WireModel):
    """The named permission profile in force; built-in ones begin with a colon (`:read-only`)."""

    id: str
    extends: str | None = None


class GitInfo(WireModel):
    """The repository a thread's folder belonged to when its log was first written."""

    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class ThreadEnvironment(WireModel):
    """A place where a thread's commands run; `local` is the server's own machine."""

    environment_id: str = "local"
    cwd: str
    runtime_workspace_roots: tuple[str, ...] = ()


class CollaborationSettings(OpenWireModel):
    """Settings of a collaboration mode; snake_case on the wire."""

    model: str
    reasoning_effort: str | None = Field(default=None, alias="reasoning_effort")
    developer_instructions: str | None = Field(default=None, alias="developer_instructions")


class CollaborationMode(WireModel):
    """How agent and user work together; `default` where nobody chose."""

    mode: str = "default"
    settings: CollaborationSettings


class InactiveStatus(WireModel):
    """A thread without a running turn; `systemError` after a failed model call, until the next turn."""

    type: Literal["notLoaded", "idle", "systemError"]


class ActiveStatus(WireModel):
    """A thread with a running turn; flags are `waitingOnApproval` and `waitingOnUserInput`."""

    type: Literal["active"] = "active"
    active_flags: tuple[Literal["waitingOnApproval", "waitingOnUserInput"], ...] = ()


ThreadStatus = Annotated[InactiveStatus | ActiveStatus, Discriminator("type")]
"""Where a thread stands."""

NOT_LOADED = InactiveStatus(type="notLoaded")
"""The thread is stored, but not live in memory."""
IDLE = InactiveStatus(type="idle")
"""The thread is live and waits for a turn."""
SYSTEM_ERROR = InactiveStatus(type="systemError")
"""The last turn's model call failed; the thread stays usable."""


class ThreadSettings(WireModel):
    """Settings in force for the next turn, as `thread/settings/updated` tells them."""

    disabled_plugin_ids: tuple[str, ...] = ()
    cwd: str
    environments: tuple[ThreadEnvironment, ...] = ()
    approval_policy: ApprovalPolicy = "never"
    approvals_reviewer: ApprovalsReviewer = "user"
    sandbox_policy: SandboxPolicy = DangerFullAccess()
    active_permission_profile: ActivePermissionProfile | None = None
    model: str
    model_provider: str
    service_tier: str | None = None
    effort: str | None = None
    summary: str | None = None
    collaboration_mode: CollaborationMode | None = None
    multi_agent_mode: str = "explicitRequestOnly"
    personality: str | None = None
