"""Deciding about commands: a callback that sees the question as a model, in place of raw requests."""

from collections.abc import Awaitable, Callable
from typing import Any

from unspool_protocol.requests import (
    Decision,
    ItemCommandExecutionRequestApprovalRequest,
    ItemCommandExecutionRequestApprovalResponse,
)

from unspool_client.desk import RequestHandler

CommandApproval = ItemCommandExecutionRequestApprovalRequest
"""The question: `command`, `cwd`, and `reason` where the model gave one."""

Decide = Callable[[CommandApproval], Awaitable[Decision]]
"""Says `accept`, `acceptForSession`, `decline` (the turn goes on) or `cancel` (it is interrupted)."""


def approval_handler(decide: Decide) -> RequestHandler:
    """The handler of approval requests that asks `decide`. What it raises is answered as an error: nothing is run."""

    async def handle(params: dict[str, Any]) -> dict[str, Any]:
        decision = await decide(CommandApproval.model_validate(params))
        response = ItemCommandExecutionRequestApprovalResponse(decision=decision)
        shape: dict[str, Any] = response.model_dump(by_alias=True, mode="json")
        return shape

    return handle
