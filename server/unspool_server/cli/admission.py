"""Who may come in, put together from flags, configuration and the files that they name."""

import ipaddress
from pathlib import Path

from unspool_server.access.bearer import Capability, CapabilityTokens, EitherOf, Verifier, digest_of
from unspool_server.access.principal import Principal, Scope, scopes_of
from unspool_server.access.provenance import Provenance, is_usable_origin
from unspool_server.access.secret_files import SecretRefused, home_token, read_secret
from unspool_server.cli.options import ServerOptions, WebSocketAuth
from unspool_server.config_base import ConfigError
from unspool_server.config_daemon import AccessOptions
from unspool_server.transport.gate import Rules

_ALL = frozenset({Scope.ADMIN})


def rules_of(options: ServerOptions, access: AccessOptions, home: Path) -> Rules:
    """What a WebSocket listener checks. With a token in the configuration, or by flag, every client needs one.

    Names in `Host` are not checked beyond loopback where none were configured: there every client needs a token, which
    a page of another site does not have.

    Raises:
        SecretRefused: A file with a secret cannot be used.
        ConfigError: An origin that means nothing.
    """
    for origin in access.allowed_origins:
        if not is_usable_origin(origin):
            text = (
                f"`{origin}` is no origin: give scheme and host in full, or a scheme that is not the web's with `://*`"
            )
            raise ConfigError(text, key="access.allowed_origins")
    local = ipaddress.ip_address(options.listen.host).is_loopback
    provenance = Provenance(access.allowed_origins, access.allowed_hosts, local or bool(access.allowed_hosts))
    return Rules(_verifier(options, access, home), provenance)


def _verifier(options: ServerOptions, access: AccessOptions, home: Path) -> Verifier | None:
    known = [
        Capability(bytes.fromhex(one.sha256), Principal(one.name, one.tenant, scopes_of(one.scopes)))
        for one in access.tokens
    ]
    if options.home_token:
        known.append(Capability(digest_of(home_token(home)), Principal("home", "", _ALL)))
    auth = options.auth
    if auth is not None and auth.mode == "capability-token":
        known.append(Capability(_digest(auth), Principal("flag", "", _ALL)))
    if auth is None or auth.mode == "capability-token":
        return CapabilityTokens(known) if known else None
    signed = _signed(auth)
    return EitherOf(CapabilityTokens(known), signed) if known else signed


def _digest(auth: WebSocketAuth) -> bytes:
    if auth.token_sha256 is not None:
        return bytes.fromhex(auth.token_sha256)
    assert auth.token_file is not None
    return digest_of(read_secret(auth.token_file))


def _signed(auth: WebSocketAuth) -> Verifier:
    # Imported here: most daemons check no signatures.
    from unspool_server.access.signed import DEFAULT_SKEW_S, MIN_SECRET_BYTES, SignedTokens

    assert auth.shared_secret_file is not None
    secret = read_secret(auth.shared_secret_file).encode()
    if len(secret) < MIN_SECRET_BYTES:
        path = auth.shared_secret_file
        raise SecretRefused(f"signed websocket bearer secret {path} must be at least {MIN_SECRET_BYTES} bytes")
    skew_s = auth.max_clock_skew_s
    return SignedTokens(secret, auth.issuer, auth.audience, DEFAULT_SKEW_S if skew_s is None else skew_s)
