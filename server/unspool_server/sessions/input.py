"""User input of a turn: checked once, then as the model sees it and as clients see it (07 §9)."""

import base64
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unspool_protocol.errors import ErrorCode
from unspool_protocol.items import ImageInput, LocalImageInput, TextInput, UserMessageItem

from unspool_server.errors import InvalidParams
from unspool_server.sessions.clock import new_id

INPUT_LIMIT = 1 << 20
"""Characters of text that one input may hold (07 §9)."""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """One piece of user input, ready to be recorded.

    Attributes:
        content: Content parts of the Responses item.
        item: What clients see.
    """

    content: Sequence[Mapping[str, Any]]
    item: UserMessageItem
    item_id: str = field(default_factory=lambda: f"msg_{new_id()}")

    @property
    def response_item(self) -> dict[str, Any]:
        """The message as the model sees it."""
        return {"type": "message", "id": self.item_id, "role": "user", "content": list(self.content)}

    @property
    def text(self) -> str:
        """All texts joined, for previews."""
        return "".join(part.text for part in self.item.content if isinstance(part, TextInput))


def user_message(parts: Sequence[Any], client_id: str | None) -> UserMessage | None:
    """Turn `turn/start` input into a message; None for an empty list.

    Raises:
        InvalidParams: Text over the limit, a remote image URL, or a part of unknown type.
    """
    if not parts:
        return None
    if sum(len(part.text) for part in parts if isinstance(part, TextInput)) > INPUT_LIMIT:
        raise InvalidParams(
            f"Input exceeds the maximum length of {INPUT_LIMIT} characters.",
            data={"field": "input", "limit": INPUT_LIMIT},
            code=ErrorCode.INVALID_PARAMS,
        )
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
                content.extend(_local_image(part.path, images))
            case _:
                raise InvalidParams(
                    f"Invalid request: unknown variant `{part.type}`, expected one of `text`, `image`, `localImage`",
                    data={"field": f"input[{index}].type"},
                )
    return UserMessage(content, UserMessageItem(id=new_id(), client_id=client_id, content=tuple(parts)))


def _inline_url(url: str, index: int) -> str:
    if not url.startswith("data:"):
        raise InvalidParams("remote image URLs are not supported", data={"field": f"input[{index}].url"})
    return url


def _local_image(path: str, number: int) -> list[dict[str, Any]]:
    try:
        # A pipe or device would never end.
        blob = Path(path).read_bytes() if Path(path).is_file() else None
    except (OSError, ValueError):
        blob = None
    if blob is None:
        return [{"type": "input_text", "text": f"(The image {Path(path).name} could not be read.)"}]
    kind = mimetypes.guess_type(path)[0] or "image/png"
    url = f"data:{kind};base64,{base64.b64encode(blob).decode()}"
    return [
        {"type": "input_text", "text": f'<image name=[Image #{number}] path="{path}">'},
        {"type": "input_image", "image_url": url},
        {"type": "input_text", "text": "</image>"},
    ]
