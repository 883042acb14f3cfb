"""The provider of a fresh machine: deterministic, without network or key (DESIGN §5).

Echoes the last user text; its summary is the first line of each user message; or it follows a script.
"""

import asyncio
import hashlib
import itertools
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

from unspool_server.config import OFFLINE_MODEL
from unspool_server.model.contract import (
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    ResponseDone,
    TextDelta,
    Usage,
)
from unspool_server.model.failures import http_failure, response_failure, stream_cut
from unspool_server.model.script import Reply, Script, Step
from unspool_server.model.texts import item_text, part_text

CONTEXT_OPENINGS = ("<environment_context>", "# AGENTS.md instructions", "<turn_aborted>")
"""What clients put into user messages by themselves (07 §8); no sentence of the user's."""

_replies = itertools.count(1)
"""One count for the process, so that no two of its items share an id."""


class OfflineProvider:
    """Answers from the request itself, or from a script.

    Args:
        model: The one model that `models` shows.
        pace_s: Seconds between two text deltas; 0 only lets other tasks run.
        compact_prompt: A last user text equal to this asks for a summary, like `purpose == "compact"`.
        compacts: Answer a trailing `compaction_trigger` with a `compaction` item.
        context_window: Tokens, for `models`.
        stream_max_retries: How often a turn may go on after a scripted `cut`; a script is followed to the letter
            unless this is set.
    """

    def __init__(
        self,
        *,
        script: Script | None = None,
        model: str = OFFLINE_MODEL,
        pace_s: float = 0.0,
        compact_prompt: str | None = None,
        compacts: bool = False,
        context_window: int | None = None,
        stream_max_retries: int = 0,
    ) -> None:
        self.script = script or Script()
        self._model = model
        self._pace_s = pace_s
        self._compact_prompt = compact_prompt
        self._compacts = compacts
        self._context_window = context_window
        self._stream_max_retries = stream_max_retries
        self._hanging: set[asyncio.Future[None]] = set()

    @property
    def compacts(self) -> bool:
        """True when the provider was told to behave like a service that compacts by itself."""
        return self._compacts

    @property
    def stream_max_retries(self) -> int:
        """None by default: nothing breaks here that a script did not ask for."""
        return self._stream_max_retries

    async def models(self) -> Sequence[ModelInfo]:
        """The one model there is."""
        description = "Answers without a network: echoes what it is told."
        return [
            ModelInfo(self._model, self._model, description, is_default=True, context_window=self._context_window),
        ]

    async def close(self) -> None:
        """End replies that hang."""
        for hanging in self._hanging:
            hanging.cancel()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream one reply; see `ModelProvider.stream`."""
        number, compact = next(_replies), self._asks_for_summary(request)
        steps = self.script.take(compact=compact)
        if steps is None:
            steps = self._summary(request) if compact else self._echo(request)
        if steps and "http" in steps[0]:
            raise http_failure(steps[0]["http"], '{"error": {"message": "scripted error"}}')
        stem, said = f"{_digest(request)}_{number:04d}", []
        for index, step in enumerate(steps):
            if not await self._pause(step):
                async for event in self._speak(step, f"{stem}_{index}"):
                    if isinstance(event, ItemDone):
                        said.append(event.item)
                    yield event
        yield ResponseDone(f"resp_{stem}", self._usage(request, said))

    async def _pause(self, step: Step) -> bool:
        """Do what a step says about the stream itself; False when it is about an item."""
        if "wait" in step:
            await asyncio.sleep(step["wait"])
        elif step.get("hang"):
            await self._hang()
        elif step.get("cut"):
            raise stream_cut()
        elif "fail" in step:
            raise response_failure(step["fail"], "scripted failure")
        else:
            return "hang" in step or "cut" in step
        return True

    async def _hang(self) -> None:
        """Stay open until the caller goes away or the provider is closed."""
        hanging: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hanging.add(hanging)
        try:
            await hanging
        finally:
            self._hanging.discard(hanging)

    async def _speak(self, step: Step, name: str) -> AsyncGenerator[ModelEvent, None]:
        """The events of one item; only messages are streamed in pieces."""
        item = _item(step, name)
        if "say" in step:
            yield ItemStarted({**item, "content": []})
            for piece in _pieces(step["say"]):
                await asyncio.sleep(self._pace_s)
                yield TextDelta(item["id"], piece)
        if not step.get("partial"):
            yield ItemDone(item)

    def _asks_for_summary(self, request: ModelRequest) -> bool:
        if request.purpose == "compact" or not request.input:
            return request.purpose == "compact"
        last = request.input[-1]
        prompt = self._compact_prompt
        return last.get("type") == "compaction_trigger" or (prompt is not None and item_text(last) == prompt)

    def _summary(self, request: ModelRequest) -> Reply:
        if request.input and request.input[-1].get("type") == "compaction_trigger":
            return [{"raw": {"type": "compaction", "encrypted_content": f"offline-{_digest(request)}"}}]
        # The last item is the prompt that asks for the summary.
        lines = [text.strip().split("\n", 1)[0] for text in _user_texts(request.input[:-1])]
        return [{"say": "\n".join(lines)}]

    def _echo(self, request: ModelRequest) -> Reply:
        return [{"say": next(reversed(list(_user_texts(request.input))), "")}]

    def _usage(self, request: ModelRequest, said: Sequence[Mapping[str, Any]]) -> Usage:
        if self.script.usage is None:
            return Usage.estimated(request.input, said)
        taken, given = self.script.usage
        return Usage(input_tokens=taken, output_tokens=given, total_tokens=taken + given)


def _user_texts(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The texts of user messages that the user wrote, oldest first."""
    for item in items:
        if item.get("type", "message") == "message" and item.get("role") == "user":
            content = item.get("content")
            parts = [part_text(part) for part in content] if isinstance(content, list) else [item_text(item)]
            if not any(part.strip().startswith(CONTEXT_OPENINGS) for part in parts):
                yield "".join(parts)


def _item(step: Step, name: str) -> dict[str, Any]:
    if "say" in step:
        item = {
            "type": "message",
            "id": f"msg_{name}",
            "role": "assistant",
            "content": [{"type": "output_text", "text": step["say"]}],
        }
        return {**item, "phase": step["phase"]} if "phase" in step else item
    if "reason" in step:
        summary = [{"type": "summary_text", "text": step["reason"]}]
        encrypted = step.get("enc", f"enc-{name}")
        return {"type": "reasoning", "id": f"rs_{name}", "summary": summary, "encrypted_content": encrypted}
    if "call" in step:
        return {
            "type": "function_call",
            "id": f"fc_{name}",
            "call_id": step.get("id", f"call_{name}"),
            "name": step["call"],
            "arguments": json.dumps(step.get("args", {})),
        }
    return dict(step["raw"])


def _pieces(text: str) -> list[str]:
    """Cut a text into words with the white space behind them; joined they are the text."""
    return re.findall(r"\s*\S+\s*|\s+", text)


def _digest(request: ModelRequest) -> str:
    """Eight characters that tell requests apart: ids stay unique in a thread although the count restarts."""
    spoken = "\x1f".join(item_text(item) for item in request.input)
    return hashlib.blake2b(spoken.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
