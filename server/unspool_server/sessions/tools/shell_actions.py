"""What a command line does, as far as it can be told safely: `commandActions` of an item. Best effort; pure.

Only plain reading is told apart (`read`, `listFiles`, `search`); a line with anything else in it is `unknown` as a
whole, so that no client shows a change as a look.
"""

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

Action = dict[str, Any]

MAX_LINE = 4096
"""Characters of a line that is looked into; taking apart a word costs the square of its length."""

_SEPARATORS = frozenset({"&&", "||", ";", "|"})
_TRIMMERS = frozenset({"head", "tail", "wc", "sort", "uniq"})
_SEARCHERS = frozenset({"rg", "grep", "egrep", "fgrep"})


def command_actions(command: str) -> tuple[Action, ...]:
    """The actions of a shell line; one `unknown` where it cannot be told."""
    unknown: tuple[Action, ...] = ({"type": "unknown", "command": command},)
    if len(command) > MAX_LINE or (any(sign in command for sign in "$`<>&()\n{}") and not _only_joined(command)):
        return unknown
    lexer = shlex.shlex(command, posix=True, punctuation_chars="&|;")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        return unknown
    actions: list[Action] = []
    for piped, part in _parts(words):
        if piped and part and part[0] in _TRIMMERS and _no_file(part):
            continue
        action = _action(part)
        if action is None:
            return unknown
        actions.append(action)
    return tuple(actions) or unknown


def _only_joined(command: str) -> bool:
    """Whether the only special signs are those of `&&`."""
    return not any(sign in command.replace("&&", "") for sign in "$`<>&()\n{}")


def _parts(words: Sequence[str]) -> list[tuple[bool, list[str]]]:
    """The simple commands of a line, and whether each reads what the one before it wrote."""
    parts: list[tuple[bool, list[str]]] = [(False, [])]
    for word in words:
        if word in _SEPARATORS:
            parts.append((word == "|", []))
        else:
            parts[-1][1].append(word)
    return parts


def _no_file(words: Sequence[str]) -> bool:
    return all(word.startswith("-") or word.isdecimal() for word in words[1:])


def _action(words: Sequence[str]) -> Action | None:
    if not words:
        return None
    name, plain = words[0], [word for word in words[1:] if not word.startswith("-")]
    told = shlex.join(words)
    if name == "ls" and len(plain) <= 1:
        return {"type": "listFiles", "command": told, "path": plain[0] if plain else None}
    if name == "cat" and len(plain) == 1:
        return {"type": "read", "command": told, "name": PurePosixPath(plain[0]).name, "path": plain[0]}
    if name in _SEARCHERS and plain:
        return {"type": "search", "command": told, "query": plain[0], "path": plain[1] if len(plain) > 1 else None}
    return None
