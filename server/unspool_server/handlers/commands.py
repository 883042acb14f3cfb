"""Commands of threads: the user's own, and those that the model left running."""

from unspool_protocol.command_methods import (
    BackgroundTerminal,
    ThreadBackgroundTerminalsCleanParams,
    ThreadBackgroundTerminalsCleanResult,
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResult,
    ThreadBackgroundTerminalsTerminateParams,
    ThreadBackgroundTerminalsTerminateResult,
    ThreadShellCommandParams,
    ThreadShellCommandResult,
)

from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.services import services
from unspool_server.handlers.startup import page_start
from unspool_server.sessions.tools.terminals import Terminal
from unspool_server.sessions.turns.user_shell import run_user_command


async def shell_command(ctx: RequestContext, params: ThreadShellCommandParams) -> ThreadShellCommandResult:
    """Run a command of the user's own; its events follow the answer."""
    session = services(ctx).sessions.require(params.thread_id)
    limit_s = None if params.timeout_ms is None else params.timeout_ms / 1000
    await run_user_command(session, params.command, limit_s, ctx.after)
    return ThreadShellCommandResult()


async def terminals_list(
    ctx: RequestContext, params: ThreadBackgroundTerminalsListParams
) -> ThreadBackgroundTerminalsListResult:
    """Commands that the model left running."""
    running = services(ctx).sessions.require(params.thread_id).terminals.running()
    start = page_start(params.cursor)
    end = len(running) if params.limit is None else start + params.limit
    return ThreadBackgroundTerminalsListResult(
        data=tuple(_shown(terminal) for terminal in running[start:end]),
        next_cursor=str(end) if end < len(running) else None,
    )


async def terminals_clean(
    ctx: RequestContext, params: ThreadBackgroundTerminalsCleanParams
) -> ThreadBackgroundTerminalsCleanResult:
    """End all of them."""
    await services(ctx).sessions.require(params.thread_id).terminals.stop()
    return ThreadBackgroundTerminalsCleanResult()


async def terminals_terminate(
    ctx: RequestContext, params: ThreadBackgroundTerminalsTerminateParams
) -> ThreadBackgroundTerminalsTerminateResult:
    """End one of them."""
    terminals = services(ctx).sessions.require(params.thread_id).terminals
    terminated = await terminals.stop(lambda terminal: str(terminal.number) == params.process_id)
    return ThreadBackgroundTerminalsTerminateResult(terminated=terminated)


def _shown(terminal: Terminal) -> BackgroundTerminal:
    return BackgroundTerminal(
        item_id=terminal.item.id,
        process_id=str(terminal.number),
        command=terminal.line,
        cwd=terminal.item.cwd,
        os_pid=terminal.os_pid,
    )
