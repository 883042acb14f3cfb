"""Which variables a command gets: what is inherited, what is left out, what is set (`shell_environment_policy`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

CORE = ("PATH", "HOME", "SHELL", "USER", "LOGNAME", "TMPDIR", "TEMP", "TMP", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""What `inherit = "core"` keeps."""

SECRET_PATTERNS = ("*KEY*", "*SECRET*", "*TOKEN*", "*PASSWORD*", "*CREDENTIAL*")
"""Left out unless the configuration turns that off."""

FIXED: Mapping[str, str] = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "NO_COLOR": "1",
    "COLORTERM": "",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "LC_CTYPE": "C.UTF-8",
}
"""Set for every command, so that output is plain text and nothing waits for a pager."""


@dataclass(frozen=True, slots=True)
class EnvironmentPolicy:
    """What the configuration says of commands' variables.

    Attributes:
        keep_secrets: Whether names that look like secrets stay in.
        include_only: Patterns; where there are any, everything else is left out.
        secret: Exact names that are left out whatever the rest says.
    """

    inherit: Literal["all", "core", "none"] = "all"
    keep_secrets: bool = False
    exclude: Sequence[str] = ()
    include_only: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    secret: frozenset[str] = frozenset()


def child_environment(policy: EnvironmentPolicy, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a command, out of the server's own."""
    names = {"all": tuple(environ), "core": CORE, "none": ()}[policy.inherit]
    excluded = (*policy.exclude, *(() if policy.keep_secrets else SECRET_PATTERNS))
    kept = {name: environ[name] for name in names if name in environ and not _matches(name, excluded)}
    kept = {**kept, **FIXED, **policy.variables}
    if policy.include_only:
        kept = {name: value for name, value in kept.items() if _matches(name, policy.include_only)}
    return {name: value for name, value in kept.items() if name not in policy.secret}


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.upper(), pattern.upper()) for pattern in patterns)
