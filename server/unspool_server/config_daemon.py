"""Tables of the configuration that are about the daemon, not about its threads."""

from typing import Literal

from pydantic import Field

from unspool_server.config_base import ConfigModel


class AccessToken(ConfigModel):
    """One `[[access.tokens]]` table: a capability token, of which the server knows nothing but the digest.

    Attributes:
        name: For limits and logs; tokens of one name and tenant share their limits.
        sha256: SHA-256 of the token, 64 hexadecimal digits.
        scopes: `read`, `write` or `admin`; each includes those before it.
        tenant: Whose threads it sees; empty for those of the machine's owner.
    """

    name: str = Field(min_length=1)
    sha256: str = Field(pattern=r"^[0-9a-fA-F]{64}$", repr=False, exclude=True)
    scopes: tuple[Literal["read", "write", "admin"], ...] = ("write",)
    tenant: str = ""


class AccessOptions(ConfigModel):
    """`[access]`: who may reach a listening daemon, and what for. Clients can neither read nor override it.

    Attributes:
        tokens: Tokens beside those that flags name; with one of them every WebSocket client needs a token.
        allowed_origins: Values of `Origin` that are let in, in full; `vscode-webview://*` allows every origin of a
            scheme that no web page has.
        allowed_hosts: Names that requests may be addressed to, beside `localhost` and IP addresses.
        allowed_paths: Folders whose files clients may name by path, beside the home.
    """

    tokens: tuple[AccessToken, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allowed_paths: tuple[str, ...] = ()


class Limits(ConfigModel):
    """`[limits]`: the most that the server takes on, of everything that a client could ask too much of.

    Clients can neither read nor override it.

    Attributes:
        message_bytes: The longest message; a longer line is passed over and answered with `tooLong`, a longer frame
            ends its WebSocket (1009).
        requests_in_flight: Requests of one connection that run at once; one more is refused with `overloaded`.
        unsent_bytes: Answers and events that may wait for one client before its requests are no longer read.
        requests_per_second: Of one connection, in the long run; `rateLimited` beyond. 0: no limit.
        request_burst: Requests of one connection that may come at once.
        token_requests_per_second: Of all connections with one token together. 0: no limit.
        token_request_burst: Requests of one token that may come at once.
        connections: WebSocket connections at once; one more is refused with status 503.
        connections_per_token: Connections at once with one token; one more is refused with status 429.
        subscriptions_per_connection: Threads that one connection may follow; `limitReached` beyond.
        threads_loaded: Threads in memory at once; `limitReached` for one more.
        turns_open: Turns that run at once, in all threads; `limitReached` for one more.
        queued_inputs: Messages that may wait for a running turn to take them in; `limitReached` for one more. As many
            inputs may wait in a thread for turns of their own; `queueFull` for one more.
        input_characters: Text of one input of a turn.
        image_bytes: One image of an input that is given by its path.
    """

    message_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    requests_in_flight: int = Field(default=128, ge=1)
    unsent_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
    requests_per_second: float = Field(default=1000.0, ge=0.0)
    request_burst: int = Field(default=20_000, ge=1)
    token_requests_per_second: float = Field(default=2000.0, ge=0.0)
    token_request_burst: int = Field(default=40_000, ge=1)
    connections: int = Field(default=1024, ge=1)
    connections_per_token: int = Field(default=512, ge=1)
    subscriptions_per_connection: int = Field(default=1000, ge=1)
    threads_loaded: int = Field(default=2000, ge=1)
    turns_open: int = Field(default=500, ge=1)
    queued_inputs: int = Field(default=100, ge=1)
    input_characters: int = Field(default=1 << 20, ge=1)
    image_bytes: int = Field(default=32 * 1024 * 1024, ge=1)


class WebSocketOptions(ConfigModel):
    """`[websocket]`: how connections are kept and spoken to; sizes and counts are under `limits`.

    Clients can neither read nor override it.

    Attributes:
        compression: Agree to `permessage-deflate` where a client offers it; up to 75 KB of memory for each such client.
        ping_interval_secs: A quiet connection is pinged so often, so that proxies do not drop it. 0: never.
        peer_timeout_secs: How long neither bytes nor TCP acknowledgements may come before a peer counts as vanished;
            clients that merely do not read or answer still acknowledge. 0: left to the system.
        pong_timeout_secs: How long a client may neither take nor send a byte, pongs included. 0: for ever, since
            clients that answer pings only while they wait for a message are many.
    """

    compression: bool = False
    ping_interval_secs: float = Field(default=30.0, ge=0.0)
    peer_timeout_secs: float = Field(default=180.0, ge=0.0)
    pong_timeout_secs: float = Field(default=0.0, ge=0.0)


class LoggingOptions(ConfigModel):
    """`[logging]`: what the daemon writes to stderr.

    Attributes:
        format: `json` or `console`; where neither is said, `console` on a terminal and over stdio, else `json`.
        level: The least that is told; where nothing is said, `warning` over stdio, else `info`.
    """

    format: Literal["console", "json"] | None = None
    level: Literal["debug", "info", "warning", "error"] | None = None


class TracingOptions(ConfigModel):
    """`[tracing]`: spans for OpenTelemetry; needs the extra `otel`.

    Attributes:
        exporter: `otlp` sends spans over OTLP/HTTP.
        endpoint: Where to, `/v1/traces` included; without it the variables `OTEL_EXPORTER_OTLP_…` count, which also
            hold headers and other details.
    """

    exporter: Literal["none", "otlp"] = "none"
    endpoint: str | None = None
