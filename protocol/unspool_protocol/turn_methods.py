"""`turn/start`, `turn/steer` and `turn/interrupt` (`wire` §4, §6)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator

from unspool_protocol.base import ExtendedWireModel, KeyedParams, PathText, WireModel
from unspool_protocol.items import ImageInput, LocalImageInput, MentionInput, SkillInput, TextInput
from unspool_protocol.settings import ApprovalPolicy, ApprovalsReviewer, CollaborationMode, SandboxPolicy
from unspool_protocol.turns import Turn

TurnInput = Annotated[TextInput | ImageInput | LocalImageInput | SkillInput | MentionInput, Discriminator("type")]
"""A piece of input that a turn accepts; unlike `items.UserInput` it refuses types that nobody here could act on."""


class TurnToolOutput(WireModel):
    """What a tool or another program reports on its own account; it has a tool's authority, not the user's.

    Attributes:
        output: A text, or content parts of a function output: `input_text` with `text`, `input_image` with `image_url`.
    """

    name: str
    namespace: str | None = None
    output: str | tuple[Mapping[str, Any], ...]


class AdditionalContext(WireModel):
    """One piece of context that a client adds; the model is told again only when its value has changed (07 §9).

    Attributes:
        kind: `application` speaks with the developer's authority, `untrusted` with a tool's.
        name: How an untrusted piece is labelled instead of by its key.
    """

    kind: Literal["untrusted", "application"]
    value: str
    name: str | None = None


class TurnStartParams(KeyedParams):
    """`turn/start`: overrides stay in force for later turns. While a turn runs, the input joins it (`wire` §6).

    Attributes:
        client_user_message_id: Comes back as the item's `clientId`. A message sent again with the same id is answered
            with its turn and not run again, also after a restart, a compaction, or a rollback of that turn (addition).
        if_busy: Addition: what happens while a turn runs. `join` (as without it): the input joins that turn. `reject`:
            the call is refused. `interrupt`: the running turn is ended first. `queue`: the input is recorded and runs
            as a turn of its own when the thread is idle, in order, also after a restart.
        tool_output: Instead of `input`.
        additional_context: By an identifier that the client chooses; told before the message.
        turn_trigger: What made the client start the turn; recorded, without further meaning.
    """

    thread_id: str
    input: tuple[TurnInput, ...]
    model: str | None = None
    effort: str | None = None
    summary: str | None = None
    cwd: PathText | None = None
    runtime_workspace_roots: tuple[PathText, ...] | None = None
    approval_policy: ApprovalPolicy | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_policy: SandboxPolicy | None = None
    permissions: Any = None
    output_schema: Mapping[str, Any] | None = None
    personality: str | None = None
    service_tier: str | None = None
    client_user_message_id: str | None = None
    if_busy: Literal["join", "reject", "queue", "interrupt"] | None = None
    collaboration_mode: CollaborationMode | None = None
    tool_output: TurnToolOutput | None = None
    additional_context: Mapping[str, AdditionalContext] | None = None
    turn_trigger: str | None = None


class QueuePlace(WireModel):
    """Where an input waits: its id in the queue, and its place from the front, 0 for the next one."""

    queue_id: str
    position: int


class TurnStartResult(ExtendedWireModel):
    """The turn as it begins, without items, or the running one that the input joined.

    Attributes:
        queued: Addition: the input waits; `turn` is the one that will run, with the id that it will have.
    """

    additions: ClassVar[frozenset[str]] = frozenset({"queued"})

    turn: Turn
    queued: QueuePlace | None = None


class TurnSteerParams(KeyedParams):
    """`turn/steer`: input for the running turn, refused unless that is the expected one."""

    thread_id: str
    expected_turn_id: str
    input: tuple[TurnInput, ...]
    client_user_message_id: str | None = None
    additional_context: Mapping[str, AdditionalContext] | None = None


class TurnSteerResult(WireModel):
    """The turn that was steered."""

    turn_id: str


class TurnInterruptParams(KeyedParams):
    """`turn/interrupt`."""

    thread_id: str
    turn_id: str


class TurnInterruptResult(WireModel):
    """Accepted; status idle and `turn/completed` follow."""
