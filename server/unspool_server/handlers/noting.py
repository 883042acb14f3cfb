"""What is noted beside a thread's conversation: what was read, project and git facts; and goals, which are not kept."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from unspool_protocol.log import Marks
from unspool_protocol.threads import (
    ThreadGoalClearParams,
    ThreadGoalClearResult,
    ThreadGoalGetParams,
    ThreadGoalGetResult,
    ThreadGoalSetParams,
    ThreadGoalSetResult,
    ThreadMetadataUpdateParams,
    ThreadMetadataUpdateResult,
    ThreadReadStateUpdateParams,
    ThreadReadStateUpdateResult,
)

from unspool_server.errors import InvalidParams, RequestError, Unsupported
from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.services import services
from unspool_server.history.marks import updated_git
from unspool_server.sessions.marking import mark_read, mark_thread
from unspool_server.sessions.opening import check_thread_id
from unspool_server.sessions.session import read_state
from unspool_server.sessions.views.summaries import live_thread, stored_thread, summary_of


async def goal_get(ctx: RequestContext, params: ThreadGoalGetParams) -> ThreadGoalGetResult:
    """Goals are not kept here; works for unloaded threads too."""
    await services(ctx).sessions.info(check_thread_id(params.thread_id))
    return ThreadGoalGetResult()


async def goal_set(ctx: RequestContext, params: ThreadGoalSetParams) -> ThreadGoalSetResult:
    """Refused: a goal that nothing follows would only seem to be kept."""
    await services(ctx).sessions.info(check_thread_id(params.thread_id))
    raise Unsupported("goals are not supported by this server")


async def goal_clear(ctx: RequestContext, params: ThreadGoalClearParams) -> ThreadGoalClearResult:
    """There is none."""
    await services(ctx).sessions.info(check_thread_id(params.thread_id))
    return ThreadGoalClearResult()


async def read_state_update(ctx: RequestContext, params: ThreadReadStateUpdateParams) -> ThreadReadStateUpdateResult:
    """Note that everything was read. Refused when the caller has not seen the newest state yet."""
    shared = services(ctx)
    thread_id = check_thread_id(params.thread_id)
    if params.operation.get("type") != "read":
        text = f"Invalid request: unknown variant `{params.operation.get('type')}`, expected `read`"
        raise InvalidParams(text, data={"field": "operation.type"})
    marks = await mark_read(shared.sessions, thread_id, params.expected_revision)
    return ThreadReadStateUpdateResult(read_state=read_state(marks, thread_id))


async def metadata_update(ctx: RequestContext, params: ThreadMetadataUpdateParams) -> ThreadMetadataUpdateResult:
    """Change git facts or the project; they are recorded in the thread's log."""
    shared = services(ctx)
    thread_id = check_thread_id(params.thread_id)
    session = shared.sessions.get(thread_id)
    if session is not None and session.facts.ephemeral:
        raise RequestError(
            f"ephemeral thread does not support metadata updates: {thread_id}", data={"reason": "unsupported"}
        )
    await mark_thread(shared.sessions, thread_id, partial(_metadata, params))
    session = shared.sessions.get(thread_id)
    if session is not None:
        told = live_thread(session).model_copy(update={"can_accept_direct_input": None})
        return ThreadMetadataUpdateResult(thread=told)
    summary = await summary_of(shared.env, thread_id)
    path = (await shared.env.store.find(thread_id)).path
    return ThreadMetadataUpdateResult(thread=stored_thread(summary, path))


_GIT_NAMES = {"sha": "commit_hash", "branch": "branch", "origin_url": "repository_url"}
"""Members of the wire's git facts, and what logs call them."""


def _metadata(
    params: ThreadMetadataUpdateParams, marks: Marks, git: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    changes: dict[str, Any] = {}
    if params.git_info is not None:
        given = {_GIT_NAMES[name]: getattr(params.git_info, name) for name in params.git_info.model_fields_set}
        changes["git"] = updated_git(git, given)
    if "project_id" in params.model_fields_set:
        changes["projectId"] = params.project_id
    return changes or None
