"""The `<environment_context>` text and what of it the baseline keeps (07 §1). Pure text; reads no system state."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.sax.saxutils import escape

SandboxKind = Literal["danger-full-access", "read-only", "workspace-write", "external"]

PROTECTED_NAMES = (".git", ".agents", ".codex", ".aws")
"""Folders in a writable root that stay read-only, whether they exist or not."""


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """What commands may touch. `network` is never shown to the model; paths are absolute."""

    kind: SandboxKind
    network: bool = False
    writable_roots: tuple[str, ...] = ()
    exclude_tmpdir: bool = False
    exclude_slash_tmp: bool = False


@dataclass(frozen=True, slots=True)
class Environment:
    """What the model is told of the machine: absolute folders, the shell's base name, a date and a zone name."""

    cwd: str
    shell: str
    current_date: str
    timezone: str
    workspace_roots: tuple[str, ...]
    sandbox: SandboxPolicy

    @property
    def filesystem(self) -> str:
        """The whole `<filesystem>` element, as text and baseline have it."""
        roots = "".join(f"<root>{_xml(root)}</root>" for root in self._roots)
        profile, files = self._profile()
        content = f'<permission_profile type="{profile}">{files}</permission_profile>'
        return f"<filesystem><workspace_roots>{roots}</workspace_roots>{content}</filesystem>"

    def document(self) -> dict[str, Any]:
        """The `environments` section of a world state."""
        local = {"cwd": normal_path(self.cwd), "status": "available", "shell": self.shell}
        return {
            "environments": {"local": local},
            "current_date": self.current_date,
            "timezone": self.timezone,
            "filesystem": self.filesystem,
        }

    def text(self, *, long: bool) -> str:
        """The context text; the long form adds cwd and shell. All lines of a form are always sent."""
        lines = [f"<cwd>{_xml(normal_path(self.cwd))}</cwd>", f"<shell>{_xml(self.shell)}</shell>"] if long else []
        lines.append(f"<current_date>{_xml(self.current_date)}</current_date>")
        lines.append(f"<timezone>{_xml(self.timezone)}</timezone>")
        lines.append(self.filesystem)
        return "\n".join(["<environment_context>", *(f"  {line}" for line in lines), "</environment_context>"])

    @property
    def _roots(self) -> Sequence[str]:
        return [normal_path(root) for root in self.workspace_roots or (self.cwd,)]

    def _profile(self) -> tuple[str, str]:
        match self.sandbox.kind:
            case "danger-full-access":
                return "disabled", '<file_system type="unrestricted" />'
            case "external":
                return "external", '<file_system type="external" />'
            case "read-only":
                return "managed", _restricted([_ROOT_READ])
            case "workspace-write":
                return "managed", _restricted(self._workspace_entries())

    def _workspace_entries(self) -> Iterator[str]:
        yield _ROOT_READ
        for root in self._roots:
            yield _entry("write", path=root)
        if not self.sandbox.exclude_slash_tmp:
            yield _entry("write", special=":slash_tmp")
        if not self.sandbox.exclude_tmpdir:
            yield _entry("write", special=":tmpdir")
        for root in self.sandbox.writable_roots:
            yield _entry("write", path=normal_path(root))
        for name in PROTECTED_NAMES:
            for root in self._roots:
                yield _entry("read", path=posixpath.join(root, name))


def environment_form(baseline: Mapping[str, Any] | None, now: Mapping[str, Any]) -> Literal["long", "short"] | None:
    """Which form is due against the recorded `environments` section: None when nothing changed (07 §1).

    Args:
        baseline: The section as recorded; None or ill-shaped means unknown.
        now: `Environment.document()`.
    """
    if not isinstance(baseline, Mapping):
        return "long"
    known = baseline.get("environments")
    if not isinstance(known, Mapping) or known.get("local") != now["environments"]["local"]:
        return "long"
    same = all(baseline.get(key) == now[key] for key in ("current_date", "timezone", "filesystem"))
    return None if same else "short"


def normal_path(path: str) -> str:
    """An absolute path without `..` and trailing slash; links are kept and nothing need exist."""
    return posixpath.normpath(path)


def _xml(text: str) -> str:
    return escape(text, {'"': "&quot;", "'": "&apos;"})


def _entry(access: str, *, path: str | None = None, special: str | None = None) -> str:
    target = f"<special>{special}</special>" if special is not None else f"<path>{_xml(path or '')}</path>"
    return f'<entry access="{access}">{target}</entry>'


_ROOT_READ = _entry("read", special=":root")


def _restricted(entries: Iterable[str]) -> str:
    return f'<file_system type="restricted">{"".join(entries)}</file_system>'
