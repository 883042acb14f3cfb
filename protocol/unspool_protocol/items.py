"""Thread items as clients see them (`wire` §5): one union told apart by `type`, open for types of the future.

Owns shapes only; how a recorded item becomes one of these is decided in `history/`. Unknown members of a known item and
whole items of unknown type are kept and sent on unchanged. Times are milliseconds since the epoch.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter

from unspool_protocol.base import OpenWireModel


class ItemStatus(StrEnum):
    """How far an item that runs something has come."""

    IN_PROGRESS = "inProgress"
    COMPLETED = "completed"
    FAILED = "failed"
    DECLINED = "declined"


class TextInput(OpenWireModel):
    """A text of a user message; `text_elements` is snake_case on the wire too."""

    type: Literal["text"] = "text"
    text: str
    text_elements: tuple[Any, ...] = Field(default=(), alias="text_elements")


class ImageInput(OpenWireModel):
    """An image given by URL, usually a data URL."""

    type: Literal["image"] = "image"
    url: str


class LocalImageInput(OpenWireModel):
    """An image in a file of the server's machine."""

    type: Literal["localImage"] = "localImage"
    detail: str | None = None
    path: str


class SkillInput(OpenWireModel):
    """A skill that the user named, by the path of its file. Clients see it; the model has the text around it."""

    type: Literal["skill"] = "skill"
    name: str
    path: str


class MentionInput(OpenWireModel):
    """Something that the user pointed at, by a path or address; seen by clients, as `SkillInput`."""

    type: Literal["mention"] = "mention"
    name: str
    path: str


class OtherInput(OpenWireModel):
    """A piece of input of a type that is not told apart here."""

    type: str


def _kind(value: Any) -> str:
    found = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    return found if isinstance(found, str) else ""


def _input_tag(value: Any) -> str:
    kind = _kind(value)
    return kind if kind in {"text", "image", "localImage", "skill", "mention"} else "other"


UserInput = Annotated[
    Annotated[TextInput, Tag("text")]
    | Annotated[ImageInput, Tag("image")]
    | Annotated[LocalImageInput, Tag("localImage")]
    | Annotated[SkillInput, Tag("skill")]
    | Annotated[MentionInput, Tag("mention")]
    | Annotated[OtherInput, Tag("other")],
    Discriminator(_input_tag),
]
"""One piece of a user message, as `turn/start` takes it and `userMessage` items show it."""


class _Item(OpenWireModel):
    id: str
    started_at_ms: int | None = None
    completed_at_ms: int | None = None


class UserMessageItem(_Item):
    """What the user said. `client_id` echoes `clientUserMessageId` of `turn/start`."""

    type: Literal["userMessage"] = "userMessage"
    client_id: str | None = None
    content: tuple[UserInput, ...] = ()

    @property
    def text(self) -> str:
        """The text pieces joined by line feeds."""
        return "\n".join(part.text for part in self.content if isinstance(part, TextInput))


class AgentMessageItem(_Item):
    """What the model said; `phase` is `commentary`, `final_answer` or unknown.

    Addition: a member `partial: true` marks the text so far of a message that was cut off by an interrupt, a failure or
    a crash. Clients had seen it; the model never does. Reasoning that was cut off carries the same member.
    """

    type: Literal["agentMessage"] = "agentMessage"
    moderation: Any = None
    text: str = ""
    phase: str | None = None
    memory_citation: Any = None
    delivery: Any = None
    questions: Any = None


class ReasoningItem(_Item):
    """The model's reasoning: summaries, and the raw content where a model tells it."""

    type: Literal["reasoning"] = "reasoning"
    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


class CommandExecutionItem(_Item):
    """A command that ran: shell line, folder, and how it ended; no plugin runs any here."""

    type: Literal["commandExecution"] = "commandExecution"
    plugin_id: str | None = None
    script_path: str | None = None
    command: str = ""
    cwd: str = ""
    process_id: str | None = None
    source: str = "agent"
    status: ItemStatus = ItemStatus.IN_PROGRESS
    command_actions: tuple[Mapping[str, Any], ...] = ()
    aggregated_output: str | None = None
    exit_code: int | None = None
    duration_ms: int | None = None


class FileChangeItem(_Item):
    """Edits of files: each change is `{path, kind, diff}`."""

    type: Literal["fileChange"] = "fileChange"
    changes: tuple[Mapping[str, Any], ...] = ()
    status: ItemStatus = ItemStatus.IN_PROGRESS


class McpToolCallItem(_Item):
    """A call of a tool server.

    Attributes:
        read_only_hint: Whether the tool says that it changes nothing.
        result: `{content, structuredContent, _meta}` as the server gave it.
        error: `{message}` where there is no result.
    """

    type: Literal["mcpToolCall"] = "mcpToolCall"
    server: str = ""
    tool: str = ""
    status: ItemStatus = ItemStatus.IN_PROGRESS
    arguments: Any = None
    read_only_hint: bool | None = None
    result: Any = None
    error: Any = None
    duration_ms: int | None = None


class DynamicToolCallItem(_Item):
    """A call of a tool that the client runs (`dynamicTools`)."""

    type: Literal["dynamicToolCall"] = "dynamicToolCall"
    namespace: str | None = None
    tool: str = ""
    arguments: Any = None
    status: ItemStatus = ItemStatus.IN_PROGRESS
    content_items: tuple[Mapping[str, Any], ...] | None = None
    success: bool | None = None
    duration_ms: int | None = None


class FunctionCallOutputItem(_Item):
    """What a tool or another program sent without being called (`toolOutput` of `turn/start`)."""

    type: Literal["functionCallOutput"] = "functionCallOutput"
    name: str = ""
    namespace: str | None = None
    output: Any = None


class WebSearchItem(_Item):
    """A search that the model service ran."""

    type: Literal["webSearch"] = "webSearch"
    query: str = ""
    action: Mapping[str, Any] | None = None


class SubAgentActivityItem(_Item):
    """Something that happened to an agent that the thread has spawned.

    Attributes:
        agent_thread_id: The agent's thread.
        agent_path: Its name in the tree of agents, as `/root/NAME`.
    """

    type: Literal["subAgentActivity"] = "subAgentActivity"
    kind: Literal["started", "interacted", "interrupted", "completed"]
    agent_thread_id: str
    agent_path: str
    model: str | None = None
    reasoning_effort: str | None = None


class CollabAgentToolCallItem(_Item):
    """A call of a tool of the multi-agent kind that is no `subAgentActivity`: waiting."""

    type: Literal["collabAgentToolCall"] = "collabAgentToolCall"
    tool: str = "wait"
    status: ItemStatus = ItemStatus.IN_PROGRESS
    sender_thread_id: str
    receiver_thread_ids: tuple[str, ...] = ()
    agents_states: Mapping[str, Any] = Field(default_factory=dict)


class ContextCompactionItem(_Item):
    """The history was replaced by a summary here."""

    type: Literal["contextCompaction"] = "contextCompaction"


class PlanItem(_Item):
    """A plan the model proposed."""

    type: Literal["plan"] = "plan"
    text: str = ""


class ImageViewItem(_Item):
    """The model looked at an image file."""

    type: Literal["imageView"] = "imageView"
    path: str = ""


class EnteredReviewModeItem(_Item):
    """A review began; `review` says of what."""

    type: Literal["enteredReviewMode"] = "enteredReviewMode"
    review: str = ""


class ExitedReviewModeItem(_Item):
    """A review ended; `review` is its result as text."""

    type: Literal["exitedReviewMode"] = "exitedReviewMode"
    review: str = ""


class OtherItem(_Item):
    """An item of a type that is not told apart here; everything it holds is kept."""

    type: str


_KNOWN = frozenset(
    {
        "userMessage",
        "agentMessage",
        "reasoning",
        "commandExecution",
        "fileChange",
        "mcpToolCall",
        "dynamicToolCall",
        "functionCallOutput",
        "subAgentActivity",
        "collabAgentToolCall",
        "webSearch",
        "contextCompaction",
        "plan",
        "imageView",
        "enteredReviewMode",
        "exitedReviewMode",
    }
)


def _item_tag(value: Any) -> str:
    kind = _kind(value)
    return kind if kind in _KNOWN and not isinstance(value, OtherItem) else "other"


ThreadItem = Annotated[
    Annotated[UserMessageItem, Tag("userMessage")]
    | Annotated[AgentMessageItem, Tag("agentMessage")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[CommandExecutionItem, Tag("commandExecution")]
    | Annotated[FileChangeItem, Tag("fileChange")]
    | Annotated[McpToolCallItem, Tag("mcpToolCall")]
    | Annotated[DynamicToolCallItem, Tag("dynamicToolCall")]
    | Annotated[FunctionCallOutputItem, Tag("functionCallOutput")]
    | Annotated[SubAgentActivityItem, Tag("subAgentActivity")]
    | Annotated[CollabAgentToolCallItem, Tag("collabAgentToolCall")]
    | Annotated[WebSearchItem, Tag("webSearch")]
    | Annotated[ContextCompactionItem, Tag("contextCompaction")]
    | Annotated[PlanItem, Tag("plan")]
    | Annotated[ImageViewItem, Tag("imageView")]
    | Annotated[EnteredReviewModeItem, Tag("enteredReviewMode")]
    | Annotated[ExitedReviewModeItem, Tag("exitedReviewMode")]
    | Annotated[OtherItem, Tag("other")],
    Discriminator(_item_tag),
]
"""Any item of a turn."""

THREAD_ITEM: TypeAdapter[ThreadItem] = TypeAdapter(ThreadItem)
"""Parses an item from its wire form."""
