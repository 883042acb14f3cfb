"""Which tools a thread has: gathered for each request from what was declared and configured."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from unspool_server.sessions.tools import agents
from unspool_server.sessions.tools.agents import agent_tools
from unspool_server.sessions.tools.contract import Tool
from unspool_server.sessions.tools.dynamic import dynamic_tools, namespace_descriptions
from unspool_server.sessions.tools.mcp import mcp_descriptions, mcp_tools
from unspool_server.sessions.tools.shell import shell_tools

if TYPE_CHECKING:
    from unspool_server.sessions.session import Session


class Toolbox:
    """The tools of a thread, in the order they are declared; where two share a name, the first one is meant."""

    def __init__(self, session: "Session") -> None:
        self._descriptions = {
            agents.NAMESPACE: agents.DESCRIPTION,
            **mcp_descriptions(session),
            **namespace_descriptions(session.facts.dynamic_tools),
        }
        self._tools: dict[tuple[str | None, str], Tool] = {}
        for tool in _sources(session):
            self._tools.setdefault((tool.namespace, tool.name), tool)

    def find(self, namespace: Any, name: Any) -> Tool | None:
        """The tool that a call means; None when there is none of that name."""
        if not isinstance(name, str) or not isinstance(namespace, str | None):
            return None
        return self._tools.get((namespace, name))

    def declarations(self) -> list[dict[str, Any]]:
        """The tools as a request declares them; tools of one namespace stand together at its first one's place."""
        declared: list[dict[str, Any]] = []
        spaces: dict[str, list[dict[str, Any]]] = {}
        for (namespace, _), tool in self._tools.items():
            if namespace is None:
                declared.append(tool.declaration())
                continue
            if namespace not in spaces:
                spaces[namespace] = []
                described = self._descriptions.get(namespace, "")
                space = {"type": "namespace", "name": namespace, "description": described, "tools": spaces[namespace]}
                declared.append(space)
            spaces[namespace].append(tool.declaration())
        return declared


def _sources(session: "Session") -> Iterator[Tool]:
    """Every kind of tool, the client's own first: it knows best what its names mean."""
    yield from dynamic_tools(session.facts.dynamic_tools)
    yield from shell_tools(session)
    yield from agent_tools(session)
    yield from mcp_tools(session)
