"""`turn/*`: parameters in, a step of the thread's owner, the turn out."""

from collections.abc import Sequence
from typing import Any

from unspool_protocol.items import LocalImageInput
from unspool_protocol.turn_methods import (
    TurnInterruptParams,
    TurnInterruptResult,
    TurnStartParams,
    TurnStartResult,
    TurnSteerParams,
    TurnSteerResult,
)

from unspool_server.errors import PathRefused
from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.keys import keyed
from unspool_server.handlers.services import services
from unspool_server.sessions.turns.admission import interrupt_turn, start_turn, steer_turn
from unspool_server.sessions.turns.input import turn_message


async def turn_start(ctx: RequestContext, params: TurnStartParams) -> TurnStartResult:
    """Begin a turn or join the running one; the turn's events follow the answer."""
    shared = services(ctx)
    session = shared.sessions.require(params.thread_id)
    check_images(ctx, params.input)
    message = turn_message(
        params.input,
        params.client_user_message_id,
        params.additional_context,
        params.tool_output,
        limits=shared.env.config.limits,
    )
    shared.sessions.check_turns(session)
    call = keyed(ctx, "turn/start", params, session.thread_id)
    return await start_turn(session, params, message, call, ctx.after)


async def turn_steer(ctx: RequestContext, params: TurnSteerParams) -> TurnSteerResult:
    """Add input to the running turn."""
    shared = services(ctx)
    session = shared.sessions.require(params.thread_id)
    check_images(ctx, params.input)
    limits = shared.env.config.limits
    message = turn_message(params.input, params.client_user_message_id, params.additional_context, limits=limits)
    call = keyed(ctx, "turn/steer", params, session.thread_id)
    return TurnSteerResult(turn_id=await steer_turn(session, params.expected_turn_id, message, call, ctx.after))


def check_images(ctx: RequestContext, parts: Sequence[Any]) -> None:
    """Only the machine's owner may have any file of this machine read. Raises PathRefused."""
    if ctx.peer.principal.unbound:
        return
    allowed = services(ctx).images
    for index, part in enumerate(parts):
        if isinstance(part, LocalImageInput) and not allowed.allows(part.path):
            raise PathRefused(f"input[{index}].path")


async def turn_interrupt(ctx: RequestContext, params: TurnInterruptParams) -> TurnInterruptResult:
    """End the running turn; status and `turn/completed` follow the answer."""
    session = services(ctx).sessions.require(params.thread_id)
    call = keyed(ctx, "turn/interrupt", params, session.thread_id)
    await interrupt_turn(session, params.turn_id, call, ctx.after)
    return TurnInterruptResult()
