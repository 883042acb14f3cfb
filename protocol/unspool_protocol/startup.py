"""Handshake, and what clients ask before they open a thread (`wire` §3, §6)."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from unspool_protocol.base import Flag, Limit, OpenWireModel, WireModel


class ClientInfo(WireModel):
    """Who the client is; its name goes into the user agent."""

    name: str
    version: str
    title: str | None = None


class ClientCapabilities(OpenWireModel):
    """What the client understands.

    Attributes:
        experimental_api: Experimental methods and fields are refused without it.
        opt_out_notification_methods: Exact names of notifications this connection does not want.
        slow_client: Addition: what happens when the client reads too slowly. `coalesce`: consecutive deltas of one text
            come as one, with the cursor of the last. `drop`: deltas are left out until it has caught up; the end of
            their item brings the whole text, and cursors have a gap there. `disconnect`: once it is further behind than
            `history.slow_client_bytes` the connection ends after `connection/closing`. Nobody else waits in any case.
        turn_completed_first: Addition: at the end of a turn `turn/completed` comes before the thread's new status
            instead of after it, so that a client that waits for the status has seen the whole turn.
    """

    experimental_api: Flag = False
    opt_out_notification_methods: tuple[str, ...] | None = None
    slow_client: Literal["coalesce", "drop", "disconnect"] | None = None
    turn_completed_first: Flag = False


class InitializeParams(WireModel):
    """`initialize`, the first request of every connection."""

    client_info: ClientInfo
    capabilities: ClientCapabilities | None = None


class InitializeResult(WireModel):
    """Who the server is; clients parse a version out of `user_agent` (`wire` §3)."""

    user_agent: str
    codex_home: str
    platform_family: str = "unix"
    platform_os: str = "linux"


class ModelListParams(WireModel):
    """`model/list`; cursors are numbers as text."""

    include_hidden: Flag = False
    limit: Limit | None = None
    cursor: str | None = None
    model_provider: str | None = None


class ReasoningEffortOption(WireModel):
    """A reasoning effort that a model offers."""

    reasoning_effort: str
    description: str = ""


class Model(OpenWireModel):
    """A model that turns can run on; exactly one of the list is the default."""

    id: str
    model: str
    display_name: str
    description: str = ""
    hidden: bool = False
    supported_reasoning_efforts: tuple[ReasoningEffortOption, ...] = ()
    default_reasoning_effort: str = "medium"
    input_modalities: tuple[str, ...] = ("text",)
    supports_personality: bool = False
    is_default: bool = False


class ModelListResult(WireModel):
    """A page of models."""

    data: tuple[Model, ...] = ()
    next_cursor: str | None = None


class AccountReadParams(WireModel):
    """`account/read`."""

    refresh_token: Flag = False


class AccountReadResult(WireModel):
    """No account is needed here; `requires_openai_auth` would send clients to a login screen."""

    account: Mapping[str, Any] | None = None
    user_id: str | None = None
    requires_openai_auth: bool = False
    workspace_routing: Any = None


class ConfigReadParams(WireModel):
    """`config/read`."""

    include_layers: Flag = False
    cwd: str | None = None


class ConfigReadResult(WireModel):
    """Settings in force, snake_case inside; `{"config": {}, "origins": {}}` is enough for every client."""

    config: Mapping[str, Any] = Field(default_factory=dict)
    origins: Mapping[str, Any] = Field(default_factory=dict)
    layers: tuple[Mapping[str, Any], ...] | None = None


class ConfigRequirementsReadResult(WireModel):
    """`configRequirements/read` takes no parameters; nobody administers this server's settings."""

    supports_independent_speed_modes: bool = False
    requirements: Mapping[str, Any] | None = None


class GetAuthStatusResult(WireModel):
    """`getAuthStatus`: nobody needs to log in."""

    auth_method: str | None = None
    auth_token: str | None = None
    requires_openai_auth: bool = False


class RateLimitsReadResult(WireModel):
    """`account/rateLimits/read`: never given, since there is no account."""


class CheckGovCloudRequirementsResult(WireModel):
    """`account/bedrock/checkGovCloudRequirements`: nothing to warn of."""

    is_gov_cloud: bool = False
    should_warn: bool = False


class AnyParams(OpenWireModel):
    """Parameters of a method whose answer does not depend on them."""


class DiscoverResult(WireModel):
    """Addition: an OpenRPC document; its specification says what the members hold."""

    openrpc: str
    info: Mapping[str, Any]
    methods: tuple[Mapping[str, Any], ...]
    components: Mapping[str, Any]


class EmptyListResult(WireModel):
    """An empty page, the answer to lists of things this server does not have (`wire` §6, "out")."""

    data: tuple[Any, ...] = ()
    next_cursor: str | None = None


class PluginInstalledResult(WireModel):
    """No plugins are installed."""

    marketplaces: tuple[Any, ...] = ()
    marketplace_load_errors: tuple[Any, ...] = ()


class PluginListResult(PluginInstalledResult):
    """No plugins are offered."""

    featured_plugin_ids: tuple[str, ...] = ()
