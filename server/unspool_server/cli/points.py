"""Positions in a thread's log as people type them: `[ROLLOUT:]ORDINAL`."""

from collections.abc import Mapping
from typing import Any

import click


class Point(click.ParamType[dict[str, Any]]):
    """A position: the ordinal of the first record that does not count, after a rollout's id where it is not present."""

    name = "[ROLLOUT:]ORDINAL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Read what was typed."""
        if isinstance(value, Mapping):
            return dict(value)
        rollout_id, _, ordinal = str(value).rpartition(":")
        if not (ordinal.isascii() and ordinal.isdigit()):
            self.fail(f"{value!r} is no position; write ORDINAL or ROLLOUT:ORDINAL", param, ctx)
        return {"ordinal": int(ordinal), **({"rolloutId": rollout_id} if rollout_id else {})}


POINT = Point()
"""The type of parameters that name a position."""


def place_text(at: Mapping[str, Any]) -> str:
    """The position as it is typed."""
    return ":".join(str(part) for part in (at.get("rolloutId"), at["ordinal"]) if part is not None)
