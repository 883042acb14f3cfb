"""The texts of user input events, in either kind of log. Pure."""

from collections.abc import Mapping

from unspool_protocol.log import Record

from .boundaries import is_contextual_text
from .fields import list_of, object_of, text_of


def user_text(record: Record) -> str | None:
    """The text of a user input event of either mode, `""` when it has none; None for any other record (01 §3.6)."""
    if record.event == "user_message":
        text = text_of(record.payload, "message") or ""
        return None if is_contextual_text(text) else text
    item = object_of(record.payload, "item") if record.event == "item_completed" else None
    if item is None or item.get("type") != "UserMessage":
        return None
    parts = list_of(item, "content") or ()
    texts = [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return "\n".join(texts)
