"""Whose a thread is: the member `tenant` of what we add to a log's header. A log without one is the machine owner's."""

from typing import Any

from unspool_protocol.log import Record

from .fields import object_of, text_of


def tenant_of(header: Record | None) -> str:
    """The tenant that a header names; empty where it names none."""
    ours = object_of(header.extra, "unspool") if header is not None else None
    return (text_of(ours, "tenant") if ours is not None else None) or ""


def tenant_member(tenant: str) -> dict[str, Any]:
    """What a new header says of it: nothing for the machine's owner."""
    return {"tenant": tenant} if tenant else {}
