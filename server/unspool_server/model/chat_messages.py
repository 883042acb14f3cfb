"""Responses items as chat messages, and the tools of a request as chat functions. No I/O, no answers.

Chat has an order of its own: an assistant message holds its text and all its calls, their outputs follow at once.
What chat cannot say (encrypted reasoning, compaction items of other services) is left out.
"""

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from unspool_server.model.texts import item_text, part_text

CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")
NO_OUTPUT = "aborted"
"""For a call whose output is missing, as in requests of the other dialect (07 §9)."""
LONGEST_NAME = 64
"""Characters of a function's name."""
NO_SYSTEM = "system messages"
LATE_SYSTEM = "system messages behind the first"
SAME_ROLE = "messages of one role in a row"
REASONING = "reasoning"

Item = Mapping[str, Any]
Message = dict[str, Any]


def chat_messages(items: Sequence[Item], without: Collection[str] = ()) -> list[Message]:
    """Turn items into messages.

    Args:
        without: What the service refuses: `LATE_SYSTEM`, `NO_SYSTEM` (they become user messages), `SAME_ROLE` (they are
            joined), `REASONING` (it is left out).
    """
    messages = _Messages(items)
    for item in items:
        messages.add(item)
    made = _one_head(messages.finished())
    if REASONING in without:
        made = [{key: value for key, value in one.items() if key != "reasoning_content"} for one in made]
    if NO_SYSTEM in without or LATE_SYSTEM in without:
        kept = 0 if NO_SYSTEM in without else 1
        made = [*made[:kept], *({**one, "role": "user"} if one["role"] == "system" else one for one in made[kept:])]
    return _joined(made) if SAME_ROLE in without else made


class _Messages:
    """Messages so far, and the assistant message that is open until something else follows."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._made: list[Message] = []
        self._open: Message | None = None
        self._called: list[Item] = []
        self._outputs: defaultdict[Any, deque[Item]] = defaultdict(deque)
        calls = set()
        for item in items:
            if item.get("type") in OUTPUTS:
                self._outputs[item.get("call_id")].append(item)
            elif item.get("type") in CALLS:
                calls.add(item.get("call_id"))
        self._answerable = calls

    def add(self, item: Item) -> None:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") == "assistant":
            self._say(item_text({"content": item.get("content")}))
        elif kind in ("message", "agent_message"):
            self._close()
            role = "system" if item.get("role") in ("developer", "system") else "user"
            self._made.append({"role": role, "content": _content(item.get("content"))})
        elif kind == "reasoning" and (text := _thoughts(item)):
            if self._open is not None and (self._called or self._open["content"] is not None):
                self._close()
            message = self._assistant()
            message["reasoning_content"] = message.get("reasoning_content", "") + text
        elif kind in CALLS:
            self._assistant().setdefault("tool_calls", []).append(_call(item))
            self._called.append(item)
        elif kind in OUTPUTS and item.get("call_id") not in self._answerable:
            self._close()
            self._made.append({"role": "user", "content": _named_output(item)})
        elif kind in OUTPUTS:
            self._close()

    def finished(self) -> list[Message]:
        self._close()
        return self._made

    def _assistant(self) -> Message:
        if self._open is None:
            self._open = {"role": "assistant", "content": None}
            self._made.append(self._open)
        return self._open

    def _say(self, text: str) -> None:
        if self._open is not None and self._open["content"] is not None:
            self._close()
        self._assistant()["content"] = text

    def _close(self) -> None:
        """End the assistant message: the outputs of its calls follow it, and images that a tool message cannot hold."""
        if self._open is not None and not self._called and self._open["content"] is None:
            self._open["content"] = ""  # only a message with calls may do without
        shown: list[Message] = []
        for call in self._called:
            waiting = self._outputs[call.get("call_id")]
            output = waiting.popleft().get("output") if waiting else NO_OUTPUT
            tool = {"role": "tool", "tool_call_id": call.get("call_id", ""), "content": item_text({"output": output})}
            self._made.append(tool)
            if isinstance(output, list) and (images := [_image(part) for part in output if _is_image(part)]):
                shown.append({"role": "user", "content": images})
        self._made += shown
        self._open, self._called = None, []


def _call(item: Item) -> Message:
    """A call; arguments that are no JSON object are wrapped, since servers decode them and refuse the whole request."""
    name = function_name(item.get("namespace"), item.get("name"))
    if item.get("type") == "custom_tool_call":
        arguments = json.dumps({"input": item.get("input", "")}, ensure_ascii=False)
    else:
        arguments = item.get("arguments") or "{}"
        if not _is_object(arguments):
            arguments = json.dumps({"invalid": arguments}, ensure_ascii=False)
    function = {"name": name, "arguments": arguments}
    return {"id": item.get("call_id", ""), "type": "function", "function": function}


def _is_object(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _thoughts(item: Item) -> str:
    parts = item.get("content")
    return "".join(part_text(part) for part in parts) if isinstance(parts, list) else ""


def _named_output(item: Item) -> str:
    """An output that no call asked for: context of the client's (07 §9)."""
    text, name = item_text({"output": item.get("output")}), item.get("name")
    return f"{name}: {text}" if isinstance(name, str) and name else text


def _content(parts: object) -> str | list[Message]:
    """Plain text where it is only text, else the parts that chat knows."""
    if not isinstance(parts, list) or not any(_is_image(part) for part in parts):
        return item_text({"content": parts})
    return [_image(part) if _is_image(part) else {"type": "text", "text": part_text(part)} for part in parts]


def _is_image(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "input_image" and isinstance(part.get("image_url"), str)


def _image(part: Mapping[str, Any]) -> Message:
    detail = {"detail": part["detail"]} if isinstance(part.get("detail"), str) else {}
    return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}


def _one_head(messages: list[Message]) -> list[Message]:
    """System messages at the head as one: templates look at the first message only."""
    count = next((index for index, one in enumerate(messages) if one["role"] != "system"), len(messages))
    if count < 2:
        return messages
    head = "\n\n".join(_as_text(one["content"]) for one in messages[:count])
    return [{"role": "system", "content": head}, *messages[count:]]


def _joined(messages: list[Message]) -> list[Message]:
    """User messages in a row as one, for templates that want roles to alternate."""
    made: list[Message] = []
    for one in messages:
        if made and one["role"] == "user" == made[-1]["role"]:
            made[-1] = {"role": "user", "content": _both(made[-1]["content"], one["content"])}
        else:
            made.append(one)
    return made


def _both(one: Any, other: Any) -> str | list[Message]:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    return [*_parts(one), *_parts(other)]


def _parts(content: Any) -> list[Message]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _as_text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part_text(part) for part in content)


def function_name(namespace: object, name: object) -> str:
    """A tool's name as chat knows it: without namespaces, and cut with a check value where it would be too long."""
    whole = f"{namespace}__{name}" if isinstance(namespace, str) and namespace else str(name or "")
    if len(whole) <= LONGEST_NAME:
        return whole
    check = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{whole[: LONGEST_NAME - 1 - len(check)]}_{check}"


def chat_tools(tools: Sequence[Item]) -> tuple[list[Message], dict[str, Item]]:
    """Functions for a request's tools, and by their names what a call of theirs becomes as an item.

    Tools that only the Responses service itself runs are left out.
    """
    declared: list[Message] = []
    calls: dict[str, Item] = {}
    for namespace, tool in _flat(tools):
        name = function_name(namespace, tool.get("name"))
        known = {key: tool[key] for key in ("description", "parameters", "strict") if tool.get(key) is not None}
        if tool.get("type") == "custom":
            known = {"description": tool.get("description", ""), "parameters": _ONE_TEXT}
            calls[name] = {"type": "custom_tool_call", "name": tool.get("name")}
        else:
            scope = {"namespace": namespace} if namespace is not None else {}
            calls[name] = {"type": "function_call", "name": tool.get("name"), **scope}
        declared.append({"type": "function", "function": {"name": name, **known}})
    return declared, calls


def _flat(tools: Sequence[Item]) -> Iterable[tuple[str | None, Item]]:
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from (
                (str(tool.get("name")), one) for one in tool.get("tools") or () if one.get("type") == "function"
            )
        elif tool.get("type") in ("function", "custom"):
            yield None, tool


_ONE_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
