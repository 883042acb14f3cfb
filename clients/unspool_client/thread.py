"""A thread as its user holds it: turns, changes and events of one thread."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from unspool_protocol.items import ThreadItem
from unspool_protocol.threads import Thread
from unspool_protocol.time_travel import ThreadContextResult, ThreadDiffResult
from unspool_protocol.turns import ThreadTokenUsage, Turn, TurnError

from unspool_client.errors import ConnectionLost, RpcError
from unspool_client.feed import RESUMED, EventStream, Feed
from unspool_client.shapes import Input, Place, key, params_of, pieces, place

if TYPE_CHECKING:
    from unspool_client.client import Client

_ITEM: TypeAdapter[ThreadItem] = TypeAdapter(ThreadItem)
_RECENT_TURNS = 5
_LOOK_AGAIN_S = (0.0, 0.1, 0.4)


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn went.

    Attributes:
        status: `completed`, `interrupted` or `failed`; then `error` says why.
        text: The last agent message, empty where there was none.
        items: The turn's finished items in order; those from before the input joined a running turn are not among them.
        usage: Tokens of the last response and of the thread, where the server told them.
        cursor: The place of the turn's end among the thread's events.
    """

    thread_id: str
    turn_id: str
    status: str
    text: str
    items: tuple[ThreadItem, ...]
    usage: ThreadTokenUsage | None = None
    error: TurnError | None = None
    cursor: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the turn was completed."""
        return self.status == "completed"


class ThreadHandle:
    """One thread that this client follows. Handles of the same thread share its events.

    Attributes:
        setup: The raw answer to start, resume or fork: model, cwd, policies and the thread.
    """

    def __init__(self, client: "Client", feed: Feed, setup: Mapping[str, Any]) -> None:
        self._client, self._feed = client, feed
        self.setup = setup

    @property
    def id(self) -> str:
        """The thread's id."""
        return self._feed.thread_id

    @property
    def info(self) -> Thread:
        """The thread as it was when this handle was made; `read` gives it anew."""
        return Thread.model_validate(self.setup["thread"])

    @property
    def cursor(self) -> str | None:
        """The place of the newest event that came in; keep it to go on from there in another process."""
        return self._feed.newest

    # Turns

    async def run(self, given: Input, **overrides: Any) -> TurnResult:
        """Start a turn and wait for its end, across reconnects; bound it with `asyncio.timeout`.

        Raises:
            ConnectionLost: The connection is lost for good, or it was lost while the turn was being started and the
                thread does not show the input (`maybe_executed` is then True).
        """
        async with aclosing(self._feed.stream("now", notices=True)) as stream:
            turn = await self.start_turn(given, **overrides)
            return await self._finish(turn.id, stream)

    async def start_turn(self, given: Input, **overrides: Any) -> Turn:
        """Start a turn, or do with a running one what `if_busy` says; overrides are the fields of `TurnStartParams`.

        Every input carries a `client_user_message_id`. If the connection is lost before the answer, the turn is looked
        up by it after the reconnect, so that an input never runs twice and is not reported lost when it ran.
        """
        mark = overrides.setdefault("client_user_message_id", str(uuid.uuid4()))
        params = params_of("turn/start", {**overrides, "thread_id": self.id, "input": pieces(given)})
        try:
            return Turn.model_validate((await self._client.call("turn/start", params))["turn"])
        except ConnectionLost as lost:
            found = await self._find_turn(mark) if lost.maybe_executed else None
            if found is None:
                raise
            return found

    async def steer(self, given: Input, *, turn_id: str, idempotency_key: str | None = None) -> str:
        """Add input to the running turn; refused unless that is `turn_id`. Gives the turn's id."""
        params = {"threadId": self.id, "expectedTurnId": turn_id, "input": pieces(given)}
        params |= key(idempotency_key)
        return str((await self._client.call("turn/steer", params))["turnId"])

    async def interrupt(self, turn_id: str, *, idempotency_key: str | None = None) -> None:
        """Stop the running turn; its `turn/completed` follows."""
        await self._client.call("turn/interrupt", {"threadId": self.id, "turnId": turn_id, **key(idempotency_key)})

    # Changes

    async def compact(
        self, summary: str, keep_last: int = 0, *, interrupt: bool = False, idempotency_key: str | None = None
    ) -> Thread:
        """Put a summary in place of the older history, keeping the newest items."""
        params = {"summary": summary, "keepLast": keep_last, **_options(interrupt, idempotency_key)}
        return await self._change("thread/compact", params)

    async def compact_start(self, *, idempotency_key: str | None = None) -> None:
        """Let the model summarise the history, in a turn of its own."""
        await self._client.call("thread/compact/start", {"threadId": self.id, **key(idempotency_key)})

    async def rollback(self, n: int, *, interrupt: bool = False, idempotency_key: str | None = None) -> Thread:
        """Drop the newest n turns. Nothing is lost: `undo_rollback` brings them back."""
        return await self._change("thread/rollback", {"numTurns": n, **_options(interrupt, idempotency_key)})

    async def undo_rollback(self, *, interrupt: bool = False, idempotency_key: str | None = None) -> Thread:
        """Go back to before the newest rollback, revert or restore; again and again, until none is left."""
        return await self._change("thread/rollback/undo", _options(interrupt, idempotency_key))

    async def restore(self, at: Place, *, interrupt: bool = False, idempotency_key: str | None = None) -> Thread:
        """Make an earlier point of any branch the thread's present again."""
        return await self._change("thread/restore", {"at": place(at), **_options(interrupt, idempotency_key)})

    async def fork(self, at: Place | None = None, **params: Any) -> "ThreadHandle":
        """Start a thread from this one's past; further arguments are the fields of `ThreadForkParams`."""
        cut = {} if at is None else {"at": place(at)}
        return await self._client.fork_thread(self.id, **cut, **params)

    async def revert(self, before_turn_id: str, *, idempotency_key: str | None = None) -> Thread:
        """Drop this turn and all later ones."""
        return await self._change("thread/revert", {"beforeTurnId": before_turn_id, **key(idempotency_key)})

    async def set_name(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Name the thread."""
        await self._client.call("thread/name/set", {"threadId": self.id, "name": name, **key(idempotency_key)})

    async def inject_items(self, items: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None) -> None:
        """Append raw items to the model's history."""
        await self._client.call(
            "thread/inject_items", {"threadId": self.id, "items": list(items), **key(idempotency_key)}
        )

    async def _change(self, method: str, params: Mapping[str, Any]) -> Thread:
        result = await self._client.call(method, {"threadId": self.id, **params})
        return Thread.model_validate(result["thread"])

    # Reading

    def events(self, after: str | None = None) -> EventStream:
        """The thread's events, in order, from a place on; reading goes on across reconnects.

        Args:
            after: A cursor; None for the thread's beginning; `"now"` for what comes from this call on.
        """
        return self._feed.stream(after)

    async def read(self, *, include_turns: bool = False, at: Place | None = None) -> Thread:
        """The thread as stored, or as it was at a point of any branch."""
        if at is None:
            return await self._client.read_thread(self.id, include_turns=include_turns)
        params = {"threadId": self.id, "includeTurns": include_turns, "at": place(at)}
        return Thread.model_validate((await self._client.call("thread/read", params))["thread"])

    async def context(self, at: Place | None = None) -> ThreadContextResult:
        """Exactly what the model sees, now or at a point of any branch."""
        params = {"threadId": self.id, **({} if at is None else {"at": place(at)})}
        return ThreadContextResult.model_validate(await self._client.call("thread/context", params))

    async def diff(
        self, start: Place | None = None, end: Place | None = None, *, other_thread_id: str | None = None
    ) -> ThreadDiffResult:
        """What differs between two points of this thread, or between one of it and one of a related thread.

        A point that is not given is the thread's present end.
        """
        given = {"from": start, "to": end}
        params: dict[str, Any] = {name: place(at) for name, at in given.items() if at is not None}
        if other_thread_id is not None:
            params["otherThreadId"] = other_thread_id
        return ThreadDiffResult.model_validate(await self._client.call("thread/diff", {"threadId": self.id, **params}))

    async def turns(
        self, *, newest_first: bool = False, items_view: str = "full", limit: int = 50
    ) -> AsyncIterator[Turn]:
        """All turns, fetched in pages of `limit`."""
        direction = "desc" if newest_first else "asc"
        params = {"threadId": self.id, "sortDirection": direction, "itemsView": items_view, "limit": limit}
        async with aclosing(self._client.pages("thread/turns/list", params)) as entries:
            async for entry in entries:
                yield Turn.model_validate(entry)

    async def unsubscribe(self) -> str:
        """Stop following the thread; event streams end. Gives what the subscription was."""
        return await self._client.unsubscribe(self.id)

    # The end of a turn

    async def _finish(self, turn_id: str, stream: EventStream) -> TurnResult:
        items: list[Mapping[str, Any]] = []
        usage: Mapping[str, Any] | None = None
        async for event in stream:
            if event.method == RESUMED and (cut := await self._cut_short(turn_id)) is not None:
                return _result(self.id, cut, list(cut["items"]), usage, None)
            if event.turn_id != turn_id:
                continue
            if event.method == "item/completed":
                items.append(event.params["item"])
            elif event.method == "thread/tokenUsage/updated":
                usage = event.params.get("tokenUsage")
            elif event.method == "turn/completed":
                return _result(self.id, event.params["turn"], items, usage, event.cursor)
        raise ConnectionLost("the thread was closed before its turn ended", maybe_executed=True)

    async def _cut_short(self, turn_id: str) -> Mapping[str, Any] | None:
        """The turn, if it died with the daemon: the new one shows it as interrupted and sends no event for its end.

        Raises:
            ConnectionLost: The new daemon does not know the turn, and nothing runs.
        """
        turns = await self._recent_turns()
        turn = next((turn for turn in turns if turn.get("id") == turn_id), None)
        if turns and turn is None and (await self.read()).status.type != "active":
            raise ConnectionLost("the turn was lost with the daemon", maybe_executed=True)
        return turn if turn is not None and turn.get("status") == "interrupted" else None

    async def _find_turn(self, mark: str) -> Turn | None:
        # The daemon may still be busy with what it read from the connection that was lost.
        for pause_s in _LOOK_AGAIN_S:
            await asyncio.sleep(pause_s)
            for turn in await self._recent_turns():
                if any(item.get("clientId") == mark for item in turn.get("items", ())):
                    return Turn.model_validate(turn)
        return None

    async def _recent_turns(self) -> Sequence[Mapping[str, Any]]:
        params = {"threadId": self.id, "limit": _RECENT_TURNS, "sortDirection": "desc", "itemsView": "full"}
        try:
            return list((await self._client.call("thread/turns/list", params))["data"])
        except RpcError:
            return ()  # nothing recorded yet, or an ephemeral thread: lists are not served


def _options(interrupt: bool, idempotency_key: str | None) -> dict[str, Any]:
    return {**({"interrupt": True} if interrupt else {}), **key(idempotency_key)}


def _result(
    thread_id: str,
    turn: Mapping[str, Any],
    items: Sequence[Mapping[str, Any]],
    usage: Mapping[str, Any] | None,
    cursor: str | None,
) -> TurnResult:
    told = [*turn.get("items", ()), *items]
    # Text that was cut off is shown among the items; it is no answer.
    texts = [item.get("text", "") for item in told if item.get("type") == "agentMessage" and not item.get("partial")]
    error = turn.get("error")
    return TurnResult(
        thread_id=thread_id,
        turn_id=turn["id"],
        status=turn["status"],
        text=texts[-1] if texts else "",
        items=tuple(_ITEM.validate_python(item) for item in items),
        usage=ThreadTokenUsage.model_validate(usage) if usage is not None else None,
        error=TurnError.model_validate(error) if error is not None else None,
        cursor=cursor,
    )
