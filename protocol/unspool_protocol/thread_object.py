"""The thread object, and what the methods that make or open threads share (`wire` §5)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Tag

from unspool_protocol.base import ExtendedWireModel, OpenWireModel, PathText, WireModel
from unspool_protocol.settings import (
    IDLE,
    ActivePermissionProfile,
    ApprovalPolicy,
    ApprovalsReviewer,
    DangerFullAccess,
    GitInfo,
    SandboxMode,
    SandboxPolicy,
    SessionSource,
    ThreadEnvironment,
    ThreadStatus,
)
from unspool_protocol.turns import Turn


class Thread(WireModel):
    """A thread as clients see it. Times are seconds since the epoch; `turns` is empty unless asked for."""

    id: str
    environments: tuple[ThreadEnvironment, ...] | None = None
    extra: Any = None
    session_id: str
    forked_from_id: str | None = None
    attached_to_thread_id: str | None = None
    parent_thread_id: str | None = None
    preview: str = ""
    ephemeral: bool = False
    section: Any = None
    section_entered_at: int | None = None
    project_id: str | None = None
    history_mode: Literal["legacy", "paginated"] = "paginated"
    model_provider: str
    model: str | None = None
    reasoning_effort: str | None = None
    created_at: int
    updated_at: int
    recency_at: int | None = None
    status: ThreadStatus = IDLE
    path: str | None = None
    cwd: str
    cli_version: str
    originator: str | None = None
    source: SessionSource = "unknown"
    can_accept_direct_input: bool | None = None
    thread_source: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    git_info: GitInfo | None = None
    name: str | None = None
    daybreak_enabled: bool | None = None
    turns: tuple[Turn, ...] = ()


class ReadState(WireModel):
    """What of a thread was read already; `revision` changes with every change."""

    first_unread: Mapping[str, Any] | None = None
    revision: str


class FunctionTool(OpenWireModel):
    """A tool that the client runs; `input_schema` is the JSON Schema of its arguments."""

    type: Literal["function"] = "function"
    name: str
    description: str = ""
    input_schema: Mapping[str, Any]


class ToolNamespace(OpenWireModel):
    """Tools of the client under a common name."""

    type: Literal["namespace"] = "namespace"
    name: str
    description: str = ""
    tools: tuple[FunctionTool, ...] = ()


def _tool_tag(value: Any) -> str:
    kind = value.get("type", "function") if isinstance(value, Mapping) else getattr(value, "type", "function")
    return kind if isinstance(kind, str) else ""


DynamicTool = Annotated[
    Annotated[FunctionTool, Tag("function")] | Annotated[ToolNamespace, Tag("namespace")], Discriminator(_tool_tag)
]
"""An entry of `thread/start.dynamicTools`; a function where no `type` is given."""


class ThreadOverrides(WireModel):
    """Settings that start, resume and fork accept alike; null or absent keeps what is configured or recorded."""

    cwd: PathText | None = None
    runtime_workspace_roots: tuple[PathText, ...] | None = None
    model: str | None = None
    model_provider: str | None = None
    service_tier: str | None = None
    approval_policy: ApprovalPolicy | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox: SandboxMode | None = None
    permissions: Any = None
    config: Mapping[str, Any] | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None
    personality: str | None = None


class ThreadSetup(ExtendedWireModel):
    """What start, resume and fork answer alike.

    Attributes:
        cursor: Addition: the thread's newest event that this answer reflects; the stream goes on after it.
    """

    additions: ClassVar[frozenset[str]] = frozenset({"cursor"})

    thread: Thread
    model: str
    model_provider: str
    service_tier: str | None = None
    disabled_plugin_ids: tuple[str, ...] = ()
    cwd: str
    runtime_workspace_roots: tuple[str, ...] = ()
    instruction_sources: tuple[str, ...] = ()
    approval_policy: ApprovalPolicy = "never"
    approvals_reviewer: ApprovalsReviewer = "user"
    sandbox: SandboxPolicy = DangerFullAccess()
    active_permission_profile: ActivePermissionProfile | None = None
    reasoning_effort: str | None = None
    multi_agent_mode: str = "explicitRequestOnly"
    cursor: str | None = None
