"""Tools that clients run: `dynamicTools` of `thread/start` -> `item/tool/call` (`wire` §6)."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unspool_protocol.items import DynamicToolCallItem, ItemStatus

from unspool_server.sessions.settings import is_usable_cwd
from unspool_server.sessions.tools.contract import ToolResult

if TYPE_CHECKING:
    from unspool_server.sessions.tools.calls import OpenCall
    from unspool_server.sessions.turns.turn import Turn


@dataclass(frozen=True, slots=True)
class DynamicTool:
    """One declared tool; `spec` is its entry as the client gave it."""

    spec: Mapping[str, Any]
    namespace: str | None = None

    @property
    def name(self) -> str:
        """The declared name."""
        return str(self.spec.get("name"))

    def declaration(self) -> dict[str, Any]:
        """As a function; a tool without a schema takes an empty object."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.spec.get("description", ""),
            "strict": False,
            "parameters": self.spec.get("inputSchema") or {"type": "object", "properties": {}},
        }

    async def run(self, turn: "Turn", call: "OpenCall", arguments: Any) -> ToolResult:
        """Ask whoever is subscribed, or comes to be, and wait for the first valid answer."""
        if not is_usable_cwd(turn.plan.settings.cwd):
            turn.session.warn(
                f"The tool {self.name} was not run: the thread's working directory is no path of this system.",
                code="cwdMissing",
                effect="Give a cwd when you start the next turn.",
            )
            return ToolResult("the tool was not run: the thread has no working directory on this system")
        item = DynamicToolCallItem(
            id=call.call_id,
            namespace=self.namespace,
            tool=self.name,
            arguments=arguments,
            status=ItemStatus.IN_PROGRESS,
        )
        turn.show_started(item)
        request = {
            "threadId": turn.session.thread_id,
            "turnId": turn.id,
            "callId": call.call_id,
            "namespace": self.namespace,
            "tool": self.name,
            "arguments": arguments,
        }
        answer = await turn.session.env.sink.ask(turn.session.thread_id, turn.id, "item/tool/call", request)
        return _answered(item, answer, int((time.monotonic() - call.began) * 1000))


def dynamic_tools(specs: Sequence[Mapping[str, Any]]) -> Iterator[DynamicTool]:
    """The declared tools, those inside namespaces included, in order."""
    for spec in specs:
        if spec.get("type") == "namespace":
            for inner in spec.get("tools") or ():
                yield DynamicTool(inner, str(spec.get("name")))
        else:
            yield DynamicTool(spec)


def namespace_descriptions(specs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What clients said of their namespaces."""
    spaces = (spec for spec in specs if spec.get("type") == "namespace")
    return {str(spec.get("name")): str(spec.get("description") or "") for spec in spaces}


def _answered(item: DynamicToolCallItem, answer: Mapping[str, Any], duration_ms: int) -> ToolResult:
    result = answer.get("result")
    if not isinstance(result, Mapping) or not isinstance(result.get("contentItems"), list):
        reason = "dynamic tool request failed"
        changes: dict[str, Any] = {"status": ItemStatus.FAILED, "success": False, "duration_ms": duration_ms}
        shown = ({"type": "inputText", "text": reason},)
        return ToolResult(reason, item.model_copy(update={**changes, "content_items": shown}))
    success = result.get("success") is not False
    content = [part for part in result["contentItems"] if isinstance(part, Mapping)]
    changes = {
        "status": ItemStatus.COMPLETED if success else ItemStatus.FAILED,
        "success": success,
        "content_items": tuple(content),
        "duration_ms": duration_ms,
    }
    return ToolResult(_model_output(content), item.model_copy(update=changes))


def _model_output(content: Sequence[Mapping[str, Any]]) -> str | list[dict[str, Any]]:
    """A single text is the output itself, as in the reference; anything else is a list of parts."""
    parts = [_model_part(part) for part in content]
    return parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts


def _model_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "inputImage":
        return {"type": "input_image", "image_url": part.get("imageUrl", "")}
    return {"type": "input_text", "text": str(part.get("text", ""))}
