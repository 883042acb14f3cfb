"""Sandbox policies between their three spellings: wire (`sandbox`), log (`sandbox_policy`, `permission_profile`).

No sandbox is enforced here; this is what clients, logs and the model's context say about it (07 §1).
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath
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
    where nothing was recorded (07 §0); a policy of an unknown kind and an unreadable managed profile mean read-only.
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
    return ReadOnly()


def allowed_by_both(one: SandboxPolicy, other: SandboxPolicy) -> SandboxPolicy:
    """The policy that allows what both allow: never wider than either."""
    if isinstance(one, DangerFullAccess):
        return other
    if isinstance(other, DangerFullAccess):
        return one
    network = _has_network(one) and _has_network(other)
    if isinstance(one, ReadOnly) or isinstance(other, ReadOnly):
        return ReadOnly(network_access=network)
    if isinstance(one, WorkspaceWrite) and isinstance(other, WorkspaceWrite):
        return WorkspaceWrite(
            writable_roots=_inside_both(one.writable_roots, other.writable_roots),
            network_access=network,
            exclude_tmpdir_env_var=one.exclude_tmpdir_env_var or other.exclude_tmpdir_env_var,
            exclude_slash_tmp=one.exclude_slash_tmp or other.exclude_slash_tmp,
        )
    for policy in (one, other):
        if isinstance(policy, WorkspaceWrite):
            return policy.model_copy(update={"network_access": network})
    return ExternalSandbox(network_access="enabled" if network else "restricted")


def _has_network(policy: SandboxPolicy) -> bool:
    if isinstance(policy, ExternalSandbox):
        return policy.network_access == "enabled"
    return isinstance(policy, DangerFullAccess) or policy.network_access


def _inside_both(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Each folder of one side that lies in a folder of the other."""
    inner = [root for root in one if any(_inside(root, outer) for outer in other)]
    return tuple(dict.fromkeys([*inner, *(root for root in other if any(_inside(root, outer) for outer in one))]))


def _inside(path: str, folder: str) -> bool:
    return PurePath(os.path.normpath(path)).is_relative_to(os.path.normpath(folder))


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
