"""Sandbox policies between their three spellings: wire (`sandbox`), log (`sandbox_policy`, `permission_profile`).

No sandbox is enforced here; this is what clients, logs and the model's context say about it (07 §1).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unspool_protocol.settings import DangerFullAccess, ExternalSandbox, ReadOnly, SandboxPolicy, WorkspaceWrite

from unspool_server.history.environment import PROTECTED_NAMES
from unspool_server.history.environment import SandboxPolicy as ContextSandbox


def policy_of_mode(mode: str, write: WorkspaceWrite) -> SandboxPolicy:
    """The policy that a `sandbox` mode word stands for; `write` holds the configured workspace-write details."""
    if mode == "danger-full-access":
        return DangerFullAccess()
    return write if mode == "workspace-write" else ReadOnly()


def log_policy(policy: SandboxPolicy) -> dict[str, Any]:
    """The `sandbox_policy` member of a `turn_context` record (01 §3.4)."""
    match policy:
        case DangerFullAccess():
            return {"type": "danger-full-access"}
        case ReadOnly():
            return {"type": "read-only", **({"network_access": True} if policy.network_access else {})}
        case ExternalSandbox():
            return {"type": "external-sandbox", "network_access": policy.network_access}
        case WorkspaceWrite():
            roots = {"writable_roots": list(policy.writable_roots)} if policy.writable_roots else {}
            return {
                "type": "workspace-write",
                **roots,
                "network_access": policy.network_access,
                "exclude_tmpdir_env_var": policy.exclude_tmpdir_env_var,
                "exclude_slash_tmp": policy.exclude_slash_tmp,
            }
    raise TypeError(policy)


def permission_profile(policy: SandboxPolicy, workspace_roots: Sequence[str]) -> dict[str, Any]:
    """The `permission_profile` member of log records, in the order of 07 §1."""
    match policy:
        case DangerFullAccess():
            return {"type": "disabled"}
        case ExternalSandbox():
            return {"type": "external", "network": policy.network_access}
        case ReadOnly():
            entries = [_special("root", "read")]
        case WorkspaceWrite():
            entries = _workspace_entries(policy, workspace_roots)
        case _:
            raise TypeError(policy)
    network = "enabled" if policy.network_access else "restricted"
    return {"type": "managed", "file_system": {"type": "restricted", "entries": entries}, "network": network}


def _workspace_entries(policy: WorkspaceWrite, roots: Sequence[str]) -> list[dict[str, Any]]:
    temporary = [] if policy.exclude_slash_tmp else [_special("slash_tmp", "write")]
    if not policy.exclude_tmpdir_env_var:
        temporary.append(_special("tmpdir", "write"))
    protected = [
        {**_path(f"{root.rstrip('/')}/{name}", "read"), "missing_path_behavior": "skip"}
        for name in PROTECTED_NAMES
        for root in roots
    ]
    writable = [_path(root, "write") for root in roots]
    extra = [_path(root, "write") for root in policy.writable_roots]
    return [_special("root", "read"), *writable, *temporary, *extra, *protected]


def _special(kind: str, access: str) -> dict[str, Any]:
    return {"path": {"type": "special", "value": {"kind": kind}}, "access": access}


def _path(path: str, access: str) -> dict[str, Any]:
    return {"path": {"type": "path", "path": path}, "access": access}


def context_sandbox(policy: SandboxPolicy) -> ContextSandbox:
    """The policy as the model's context shows it (07 §1)."""
    match policy:
        case DangerFullAccess():
            return ContextSandbox("danger-full-access", network=True)
        case ReadOnly():
            return ContextSandbox("read-only", network=policy.network_access)
        case ExternalSandbox():
            return ContextSandbox("external", network=policy.network_access == "enabled")
        case WorkspaceWrite():
            return ContextSandbox(
                "workspace-write",
                network=policy.network_access,
                writable_roots=policy.writable_roots,
                exclude_tmpdir=policy.exclude_tmpdir_env_var,
                exclude_slash_tmp=policy.exclude_slash_tmp,
            )
    raise TypeError(policy)


def policy_from_log(recorded: Mapping[str, Any] | None, workspace_roots: Sequence[str]) -> SandboxPolicy | None:
    """Read a recorded `sandbox_policy` or `permission_profile`; None where it cannot be told.

    Whatever cannot be read is never taken for a wider permission: the caller falls back to its configuration only
    where nothing was recorded (07 §0), and an unreadable managed profile means read-only.
    """
    if not isinstance(recorded, Mapping):
        return None
    match recorded.get("type"):
        case "danger-full-access" | "disabled":
            return DangerFullAccess()
        case "external-sandbox" | "external":
            return ExternalSandbox()
        case "read-only":
            return ReadOnly(network_access=recorded.get("network_access") is True)
        case "workspace-write":
            return WorkspaceWrite(
                writable_roots=tuple(root for root in recorded.get("writable_roots") or () if isinstance(root, str)),
                network_access=recorded.get("network_access") is True,
                exclude_tmpdir_env_var=recorded.get("exclude_tmpdir_env_var") is True,
                exclude_slash_tmp=recorded.get("exclude_slash_tmp") is True,
            )
        case "managed":
            return _from_profile(recorded, workspace_roots)
    return None


def narrower(one: SandboxPolicy, other: SandboxPolicy) -> SandboxPolicy:
    """The policy that allows less; `other` where neither does."""
    return one if _width(one) < _width(other) else other


def _width(policy: SandboxPolicy) -> tuple[int, int]:
    match policy:
        case ReadOnly():
            return 0, int(policy.network_access)
        case WorkspaceWrite():
            more = [not policy.exclude_slash_tmp, not policy.exclude_tmpdir_env_var, *policy.writable_roots]
            return 1, 100 * int(policy.network_access) + sum(map(bool, more))
        case ExternalSandbox():
            return 2, 0
    return 3, 0


def _from_profile(profile: Mapping[str, Any], workspace_roots: Sequence[str]) -> SandboxPolicy:
    network = profile.get("network") == "enabled"
    file_system = profile.get("file_system")
    entries = file_system.get("entries") if isinstance(file_system, Mapping) else None
    paths: list[str] = []
    specials: set[str] = set()
    for entry in entries if isinstance(entries, list) else ():
        place = entry.get("path") if isinstance(entry, Mapping) and entry.get("access") == "write" else None
        if isinstance(place, Mapping):
            value = place.get("value")
            if isinstance(place.get("path"), str):
                paths.append(place["path"])
            elif isinstance(value, Mapping):
                specials.add(str(value.get("kind")))
    if not paths and not specials:
        return ReadOnly(network_access=network)
    return WorkspaceWrite(
        writable_roots=tuple(path for path in paths if path not in workspace_roots),
        network_access=network,
        exclude_slash_tmp="slash_tmp" not in specials,
        exclude_tmpdir_env_var="tmpdir" not in specials,
    )
