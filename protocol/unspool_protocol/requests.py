"""Requests that the server sends to its clients, and their answers (`wire` §6, "Server → client requests")."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, StrictBool

from unspool_protocol.base import OpenWireModel, WireModel


class ExecpolicyAmendment(WireModel):
    """A rule to be added to the execution policy: the command words that need no approval from now on."""

    execpolicy_amendment: tuple[str, ...] = Field(alias="execpolicy_amendment")


class AcceptWithExecpolicyAmendment(WireModel):
    """Accept, and do not ask for such commands again."""

    accept_with_execpolicy_amendment: ExecpolicyAmendment


Decision = Literal["accept", "acceptForSession", "decline", "cancel"]
"""`decline`: the item is declined and the turn goes on; `cancel`: the turn is interrupted as well."""


class ItemCommandExecutionRequestApprovalRequest(OpenWireModel):
    """`item/commandExecution/requestApproval`: may this command run?"""

    kind: str = "command"
    thread_id: str
    turn_id: str
    item_id: str
    started_at_ms: int
    environment_id: str | None = "local"
    reason: str | None = None
    command: str | None = None
    cwd: str | None = None
    command_actions: tuple[Mapping[str, Any], ...] | None = None
    proposed_execpolicy_amendment: tuple[str, ...] | None = None
    available_decisions: tuple[Decision | AcceptWithExecpolicyAmendment, ...] | None = None


class ItemCommandExecutionRequestApprovalResponse(WireModel):
    """What the user decided about a command."""

    decision: Decision | AcceptWithExecpolicyAmendment


class ItemFileChangeRequestApprovalRequest(OpenWireModel):
    """`item/fileChange/requestApproval`: may these edits be made?"""

    thread_id: str
    turn_id: str
    item_id: str
    started_at_ms: int
    reason: str | None = None
    grant_root: str | None = None


class ItemFileChangeRequestApprovalResponse(WireModel):
    """What the user decided about edits."""

    decision: Decision


class ItemToolCallRequest(WireModel):
    """`item/tool/call`: run one of the client's tools (`thread/start.dynamicTools`)."""

    thread_id: str
    turn_id: str
    call_id: str
    namespace: str | None = None
    tool: str
    arguments: Any = None


class ToolOutput(OpenWireModel):
    """A piece of a tool's output: `inputText` with `text`, or `inputImage` with `imageUrl`."""

    type: str
    text: str | None = None
    image_url: str | None = None


class ItemToolCallResponse(WireModel):
    """What the tool gave back."""

    content_items: tuple[ToolOutput, ...]
    success: StrictBool


class McpServerElicitationRequest(OpenWireModel):
    """`mcpServer/elicitation/request`: may this tool of an MCP server run? `_meta` tells the tool and its arguments."""

    thread_id: str
    turn_id: str | None = None
    server_name: str
    environment_id: str | None = None
    mode: Literal["form"] = "form"
    message: str
    requested_schema: Mapping[str, Any]


class McpServerElicitationRequestResponse(OpenWireModel):
    """What the user decided; `_meta: {persist: "session"}` allows the tool for as long as the thread is loaded."""

    action: Literal["accept", "decline", "cancel"]
    content: Any = None


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One row of the table: parameters sent, and the shape a valid answer has."""

    name: str
    params: type[WireModel]
    response: type[WireModel]


COMMAND_APPROVAL = "item/commandExecution/requestApproval"
FILE_CHANGE_APPROVAL = "item/fileChange/requestApproval"
TOOL_CALL = "item/tool/call"
MCP_ELICITATION = "mcpServer/elicitation/request"

SERVER_REQUESTS: Mapping[str, ServerRequest] = {
    row.name: row
    for row in (
        ServerRequest(
            COMMAND_APPROVAL, ItemCommandExecutionRequestApprovalRequest, ItemCommandExecutionRequestApprovalResponse
        ),
        ServerRequest(
            FILE_CHANGE_APPROVAL, ItemFileChangeRequestApprovalRequest, ItemFileChangeRequestApprovalResponse
        ),
        ServerRequest(TOOL_CALL, ItemToolCallRequest, ItemToolCallResponse),
        ServerRequest(MCP_ELICITATION, McpServerElicitationRequest, McpServerElicitationRequestResponse),
    )
}
"""Every request the server sends."""
