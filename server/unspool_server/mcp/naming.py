"""Names of servers and tools for the model: cleaned to its alphabet and length, told apart where they meet.

The scheme is the reference's: a namespace `mcp__SERVER` for each server, a name in it for each tool. The same servers
and tools always get the same names, whatever order they come in.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping

MAX_NAME = 128
"""Characters of namespace and name together."""

_MAX_NAMESPACE = 64
_DIGEST = 12
_FOREIGN = re.compile(r"[^A-Za-z0-9_]")


def namespaces(servers: Collection[str]) -> Mapping[str, str]:
    """The namespace of each server."""
    return _distinct({server: f"mcp__{server}" for server in servers}, _MAX_NAMESPACE)


def tool_names(namespace: str, tools: Collection[str]) -> Mapping[str, str]:
    """The name of each tool of one namespace."""
    return _distinct({tool: tool for tool in tools}, MAX_NAME - len(namespace), salt=namespace)


def _distinct(wanted: Mapping[str, str], longest: int, *, salt: str = "") -> Mapping[str, str]:
    clean = {key: _FOREIGN.sub("_", name) or "_" for key, name in wanted.items()}
    meeting = Counter(clean.values())
    return {
        key: name if meeting[name] == 1 and len(name) <= longest else _marked(name, f"{salt}\0{key}", longest)
        for key, name in clean.items()
    }


def _marked(name: str, raw: str, longest: int) -> str:
    digest = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{name[: longest - _DIGEST - 1]}_{digest}"
