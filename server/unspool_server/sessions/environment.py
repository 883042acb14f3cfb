"""What every session shares: configuration, stores, model services, the event sink, and facts of this machine."""

import asyncio
import os
import pwd
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from unspool_server.config import Config
from unspool_server.history.agents_md import AgentsMd, agents_md_candidates, assemble_agents_md
from unspool_server.lifecycle import Lifecycle
from unspool_server.mcp.servers import McpServers
from unspool_server.model.registry import Providers
from unspool_server.sessions.agents.host import AgentHost, NoAgents
from unspool_server.sessions.sink import EventSink
from unspool_server.store.contract import Catalogue, LogStore

BASE_INSTRUCTIONS = (
    "You are a capable assistant working with the user in their environment. Be precise and helpful, say plainly what "
    "you did and what you could not do, and ask when an instruction is ambiguous in a way that matters."
)
"""Used where neither client nor configuration gives base instructions."""


SHELLS = frozenset({"bash", "zsh", "sh", "dash", "ksh", "fish"})
"""Shells that take `-l` and `-c` as commands are given to them."""


@dataclass(slots=True)
class Environment:
    """Shared by all sessions of a process.

    Attributes:
        store: Logs that last.
        ephemeral: Logs of ephemeral threads, in memory only.
        mcp: Tool servers, shared by the threads that use them.
        cwd: The server's own working directory, absolute.
        later: Calls something after so many seconds; tests put a clock of their own here.
        shell_program: What runs commands; `shell` is the name that the model is told.
        sleep: The clock of time limits on answers.
    """

    config: Config
    home: Path
    store: LogStore
    ephemeral: LogStore
    catalogue: Catalogue
    providers: Providers
    sink: EventSink
    mcp: McpServers
    cwd: str = field(default_factory=os.getcwd)
    shell: str = ""
    shell_program: str = ""
    timezone: str = ""
    sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep

    agents: AgentHost = field(default_factory=NoAgents)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    on_idle: Callable[[str], None] = lambda _thread_id: None
    later: Callable[[float, Callable[[], None]], asyncio.TimerHandle] = lambda delay_s, call: (
        asyncio.get_running_loop().call_later(delay_s, call)
    )

    def __post_init__(self) -> None:
        self.shell = self.shell or login_shell()
        self.shell_program = self.shell_program or shell_program()
        self.timezone = self.timezone or timezone_name(os.environ)

    def idle(self, thread_id: str) -> None:
        """A turn of the thread has ended; the registry may begin to count its unload delay."""
        self.on_idle(thread_id)

    def store_of(self, *, ephemeral: bool) -> LogStore:
        """The store that holds a thread's log."""
        return self.ephemeral if ephemeral else self.store

    def today(self) -> str:
        """The date in the zone that the model is told."""
        try:
            zone = ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError):
            return datetime.now().astimezone().date().isoformat()
        return datetime.now(zone).date().isoformat()

    def read_agents_md(self, cwd: str) -> AgentsMd | None:
        """AGENTS.md texts in force for a folder (07 §2.2); unreadable files count as absent."""
        texts = []
        for candidates in agents_md_candidates(cwd, self._project_root(Path(cwd))):
            for name in candidates:
                if (text := _read_text(Path(name))) is not None:
                    texts.append(text)
                    break
        return assemble_agents_md(cwd, texts, _read_text(self.home / "AGENTS.md"))

    def _project_root(self, cwd: Path) -> str | None:
        for folder in (cwd, *cwd.parents):
            # Not `Path.exists`, which raises for folders without access and for names that are too long.
            if any(os.path.exists(folder / marker) for marker in self.config.project_root_markers):  # noqa: PTH110
                return str(folder)
        return None


def _read_text(path: Path) -> str | None:
    try:
        if not path.is_file():  # a pipe or device would never end
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):  # ValueError: a path with NUL, out of an old log
        return None


def login_shell() -> str:
    """Base name of the login shell (07 §1); `SHELL` is not consulted."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_shell).name or "sh"
    except KeyError:
        return "sh"


def shell_program() -> str:
    """The login shell's path, or `/bin/sh` where that is none that runs commands (`nologin` and the like)."""
    try:
        program = Path(pwd.getpwuid(os.getuid()).pw_shell)
    except KeyError:
        return "/bin/sh"
    return str(program) if program.name in SHELLS and os.access(program, os.X_OK) else "/bin/sh"


def timezone_name(environ: Mapping[str, str]) -> str:
    """The zone that the model is told: `TZ`, else the system's."""
    named = environ.get("TZ", "").lstrip(":")
    if named:
        return named
    try:
        target = str(Path("/etc/localtime").resolve())
    except OSError:
        target = ""
    return target.split("zoneinfo/", 1)[1] if "zoneinfo/" in target else "Etc/UTC"
