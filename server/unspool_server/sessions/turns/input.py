"""Input of a turn: checked once, then as the model sees it and as clients see it (07 §9)."""

import base64
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unspool_protocol.errors import ErrorCode
from unspool_protocol.items import (
    FunctionCallOutputItem,
    ImageInput,
    LocalImageInput,
    MentionInput,
    SkillInput,
    TextInput,
    UserMessageItem,
)
from unspool_protocol.turn_methods import AdditionalContext, TurnToolOutput

from unspool_server.config_daemon import Limits
from unspool_server.errors import InvalidParams
from unspool_server.history.calls import CallMark
from unspool_server.sessions.agents.envelopes import Envelope
from unspool_server.sessions.clock import new_id

_REPORTED: Mapping[str, str] = {"input_text": "text", "input_image": "image_url"}
"""The parts of a report's output, and the text that each must have."""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """One piece of user input, ready to be recorded.

    Attributes:
        content: Content parts of the Responses item.
        item: What clients see.
        additions: Context that the client adds; told before the message where the model does not know it.
        call: The keyed call that brought it, where its mark is to be recorded with the message.
        queue_id: Its id in the queue that it waited in.
    """

    content: Sequence[Mapping[str, Any]]
    item: UserMessageItem
    item_id: str = field(default_factory=lambda: f"msg_{new_id()}")
    call: CallMark | None = None
    queue_id: str | None = None
    additions: Mapping[str, AdditionalContext] = field(default_factory=dict)

    @property
    def client_id(self) -> str | None:
        """The client's own name for the message."""
        return self.item.client_id

    @property
    def response_item(self) -> dict[str, Any]:
        """The message as the model sees it."""
        return {"type": "message", "id": self.item_id, "role": "user", "content": list(self.content)}

    @property
    def text(self) -> str:
        """All texts joined, for previews."""
        return "".join(part.text for part in self.item.content if isinstance(part, TextInput))


@dataclass(frozen=True, slots=True)
class ExternalMessage:
    """What a tool or another program reports without being asked; it stands in the history as an output without call.

    Attributes:
        report: As the client gave it.
    """

    report: TurnToolOutput
    item_id: str = field(default_factory=lambda: f"fco_{new_id()}")
    additions: Mapping[str, AdditionalContext] = field(default_factory=dict)
    call: CallMark | None = None
    queue_id: str | None = None
    client_id: None = None
    text: str = ""

    @property
    def response_item(self) -> dict[str, Any]:
        """The report as the model sees it."""
        place = {"namespace": self.report.namespace} if self.report.namespace is not None else {}
        return {
            "type": "function_call_output",
            "id": self.item_id,
            "name": self.report.name,
            **place,
            "output": self._output(),
        }

    @property
    def item(self) -> FunctionCallOutputItem:
        """What clients see."""
        return FunctionCallOutputItem(
            id=self.item_id, name=self.report.name, namespace=self.report.namespace, output=self._output()
        )

    def _output(self) -> Any:
        return self.report.output if isinstance(self.report.output, str) else [*map(dict, self.report.output)]


TurnMessage = UserMessage | ExternalMessage | Envelope
"""One piece of a turn's input."""


def turn_message(
    parts: Sequence[Any],
    client_id: str | None,
    additions: Mapping[str, AdditionalContext] | None = None,
    report: TurnToolOutput | None = None,
    *,
    limits: Limits,
    accepted: bool = False,
) -> TurnMessage | None:
    """Turn the input of `turn/start` or `turn/steer` into a message; None when there is none.

    Args:
        accepted: It was taken before, perhaps under other limits, and is not refused for its size any more.

    Raises:
        InvalidParams: Text or an image over the limit, a remote image URL, a report without a name or beside other
            input, or additional context without a message that it could go with.
    """
    if report is not None:
        if not report.name:
            raise InvalidParams("`toolOutput.name` must not be empty", data={"field": "toolOutput.name"})
        if parts:
            raise InvalidParams("`toolOutput` cannot be combined with nonempty `input`", data={"field": "toolOutput"})
        _check_report(report)
        if not accepted:
            _check_length(limits, report.model_dump_json())
        return ExternalMessage(report, additions=additions or {})
    if not accepted:
        texts = [part.text for part in parts if isinstance(part, TextInput)]
        _check_length(limits, *texts, *(piece.value for piece in (additions or {}).values()))
        _check_images(limits, parts)
    message = _user_message(parts, client_id, additions or {}, limits.image_bytes)
    if message is None and additions:
        raise InvalidParams("`additionalContext` needs an input to go with", data={"field": "additionalContext"})
    return message


def _user_message(
    parts: Sequence[Any], client_id: str | None, additions: Mapping[str, AdditionalContext], image_bytes: int
) -> UserMessage | None:
    """Turn pieces of user input into a message; None for an empty list. Skills and mentions are only shown.

    Raises:
        InvalidParams: A remote image URL, or a part of unknown type.
    """
    if not parts:
        return None
    content: list[dict[str, Any]] = []
    images = 0
    for index, part in enumerate(parts):
        match part:
            case TextInput():
                content.append({"type": "input_text", "text": part.text})
            case ImageInput():
                content.append({"type": "input_image", "image_url": _inline_url(part.url, index)})
            case LocalImageInput():
                images += 1
                content.extend(_local_image(part.path, images, image_bytes))
            case SkillInput() | MentionInput():
                pass
            case _:
                known = "`text`, `image`, `localImage`, `skill`, `mention`"
                raise InvalidParams(
                    f"Invalid request: unknown variant `{part.type}`, expected one of {known}",
                    data={"field": f"input[{index}].type"},
                )
    item = UserMessageItem(id=new_id(), client_id=client_id, content=tuple(parts))
    return UserMessage(content, item, additions=additions)


def _check_report(report: TurnToolOutput) -> None:
    """A part that services do not know would have them refuse every later request of the thread."""
    for index, part in enumerate(() if isinstance(report.output, str) else report.output):
        kind = part.get("type")
        member = _REPORTED.get(kind) if isinstance(kind, str) else None
        if member is None or not isinstance(part.get(member), str):
            known = " or ".join(f"`{kind}` with `{needed}`" for kind, needed in _REPORTED.items())
            raise InvalidParams(
                f"Invalid request: expected a part of type {known}", data={"field": f"toolOutput.output[{index}]"}
            )


def _check_length(limits: Limits, *texts: str) -> None:
    limit = limits.input_characters
    if sum(map(len, texts)) > limit:
        raise InvalidParams(
            f"Input exceeds the maximum length of {limit} characters.",
            data={"field": "input", "limit": limit},
            code=ErrorCode.INVALID_PARAMS,
        )


def _inline_url(url: str, index: int) -> str:
    if not url.startswith("data:"):
        raise InvalidParams("remote image URLs are not supported", data={"field": f"input[{index}].url"})
    return url


def _check_images(limits: Limits, parts: Sequence[Any]) -> None:
    for index, part in enumerate(parts):
        if isinstance(part, LocalImageInput) and _size(part.path) > limits.image_bytes:
            raise InvalidParams(
                f"The image exceeds the maximum size of {limits.image_bytes} bytes.",
                data={"field": f"input[{index}].path", "limit": limits.image_bytes},
                code=ErrorCode.INVALID_PARAMS,
            )


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return 0


def _read(path: str, limit: int) -> bytes | None:
    try:
        if not Path(path).is_file():  # a pipe or device would never end
            return None
        with Path(path).open("rb") as file:
            blob = file.read(limit + 1)
    except (OSError, ValueError):
        return None
    return blob if len(blob) <= limit else None


def _local_image(path: str, number: int, limit: int) -> list[dict[str, Any]]:
    blob = _read(path, limit)
    if blob is None:
        return [{"type": "input_text", "text": f"(The image {Path(path).name} could not be read.)"}]
    kind = mimetypes.guess_type(path)[0] or "image/png"
    url = f"data:{kind};base64,{base64.b64encode(blob).decode()}"
    return [
        {"type": "input_text", "text": f'<image name=[Image #{number}] path="{path}">'},
        {"type": "input_image", "image_url": url},
        {"type": "input_text", "text": "</image>"},
    ]
