"""Where an upgrade comes from: `Origin` and `Host` against what is allowed (`wire` §1).

Browsers cannot lie about `Origin`, so that no web page gets in unless it was named. `Host` keeps out pages whose name
was made to point at this machine (DNS rebinding): a page cannot make a browser send an address that it was not loaded
from.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Provenance:
    """What is allowed.

    Attributes:
        origins: Exactly these; an entry that ends in `://*` allows every origin of its scheme, which is only taken for
            schemes that no web page can have (`vscode-webview://*`).
        hosts: Names that requests may be addressed to, beside `localhost` and IP addresses.
        names_checked: Whether other names are refused.
    """

    origins: Sequence[str] = ()
    hosts: Sequence[str] = ()
    names_checked: bool = True

    def origin_allowed(self, origin: str | None) -> bool:
        """Without the header it is no browser; with it, it must have been named. `null` is never allowed."""
        if origin is None:
            return True
        if origin == "null":
            return False
        return any(_same_origin(allowed, origin) for allowed in self.origins)

    def host_allowed(self, host: str | None) -> bool:
        """Whether a request may be addressed so; the port does not matter."""
        if not self.names_checked:
            return True
        name = _without_port(host or "").lower().rstrip(".")
        return name == "localhost" or _is_address(name) or name in {one.lower() for one in self.hosts}


_WEB = frozenset({"http", "https", "ws", "wss", "file", "null", ""})


def is_usable_origin(allowed: str) -> bool:
    """Whether an entry of the configuration means anything: an origin in full, or a scheme that is not the web's."""
    scheme, separator, rest = allowed.partition("://")
    if not separator or not rest or allowed.strip() != allowed:
        return False
    return "/" not in rest and (scheme.lower() not in _WEB if rest == "*" else "*" not in rest)


def _same_origin(allowed: str, origin: str) -> bool:
    if allowed.endswith("://*"):
        return is_usable_origin(allowed) and origin.startswith(allowed[:-1]) and len(origin) > len(allowed) - 1
    return origin == allowed


def _without_port(host: str) -> str:
    if host.startswith("["):
        address, _, rest = host[1:].partition("]")
        return address if rest == "" or rest.startswith(":") else host
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return "%" not in name  # what stands behind it may be anything
