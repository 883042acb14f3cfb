"""What clients ask before they open a thread: models, account, configuration (`wire` §6)."""

from unspool_protocol.startup import (
    AccountReadParams,
    AccountReadResult,
    AnyParams,
    CheckGovCloudRequirementsResult,
    ConfigReadParams,
    ConfigReadResult,
    ConfigRequirementsReadResult,
    DiscoverResult,
    EmptyListResult,
    GetAuthStatusResult,
    Model,
    ModelListParams,
    ModelListResult,
    PluginInstalledResult,
    PluginListResult,
    RateLimitsReadResult,
    ReasoningEffortOption,
)

from unspool_server import __version__
from unspool_server.config_base import ConfigError
from unspool_server.errors import InvalidParams, RequestError, Unsupported
from unspool_server.handlers.context import NoParams, RequestContext
from unspool_server.handlers.services import services
from unspool_server.model.contract import ModelInfo

_SHOWN = (
    "model",
    "model_provider",
    "model_context_window",
    "model_auto_compact_token_limit",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "approval_policy",
    "approvals_reviewer",
    "sandbox_mode",
    "sandbox_workspace_write",
    "developer_instructions",
    "compact_prompt",
    "personality",
    "service_tier",
    "thread_unload_delay_secs",
)
"""Keys of the configuration that clients may read; providers hold addresses and secrets and are not among them."""


async def model_list(ctx: RequestContext, params: ModelListParams) -> ModelListResult:
    """The models of a provider, the configured one by default."""
    env = services(ctx).env
    try:
        found = await env.providers.get(params.model_provider).models()
    except ConfigError as error:
        raise RequestError(error.message, data={"reason": "unknownProvider", "field": "modelProvider"}) from error
    shown = [model for model in found if params.include_hidden or not model.hidden]
    start = page_start(params.cursor)
    size = len(shown) if params.limit is None else max(1, params.limit)
    page = shown[start : start + size]
    more = start + size < len(shown)
    return ModelListResult(data=tuple(_model(one) for one in page), next_cursor=str(start + size) if more else None)


def page_start(cursor: str | None) -> int:
    """Where a page begins whose cursor is a number as text. Raises InvalidParams."""
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdecimal():
        raise InvalidParams(f"invalid cursor: {cursor}", data={"reason": "cursorInvalid", "field": "cursor"})
    return int(cursor)


def _model(info: ModelInfo) -> Model:
    return Model(
        id=info.id,
        model=info.id,
        display_name=info.display_name,
        description=info.description,
        hidden=info.hidden,
        is_default=info.is_default,
        default_reasoning_effort=info.default_effort,
        supported_reasoning_efforts=tuple(ReasoningEffortOption(reasoning_effort=one) for one in info.efforts),
    )


async def account_read(_ctx: RequestContext, _params: AccountReadParams) -> AccountReadResult:
    """No account is needed."""
    return AccountReadResult()


async def config_read(ctx: RequestContext, params: ConfigReadParams) -> ConfigReadResult:
    """The settings in force that are no secrets."""
    config = services(ctx).env.config.model_dump(mode="json", include=set(_SHOWN))
    return ConfigReadResult(config=config, layers=() if params.include_layers else None)


async def config_requirements_read(_ctx: RequestContext, _params: NoParams) -> ConfigRequirementsReadResult:
    """Nobody administers this server's settings."""
    return ConfigRequirementsReadResult()


async def auth_status(_ctx: RequestContext, _params: AnyParams) -> GetAuthStatusResult:
    """Nobody needs to log in."""
    return GetAuthStatusResult()


async def gov_cloud(_ctx: RequestContext, _params: AnyParams) -> CheckGovCloudRequirementsResult:
    """Nothing to warn of."""
    return CheckGovCloudRequirementsResult()


async def empty_list(_ctx: RequestContext, _params: AnyParams) -> EmptyListResult:
    """The answer to lists of things this server does not have."""
    return EmptyListResult()


async def discover(_ctx: RequestContext, _params: NoParams) -> DiscoverResult:
    """All methods as an OpenRPC document."""
    from unspool_protocol.openrpc import openrpc_document

    return DiscoverResult.model_validate(openrpc_document(__version__))


async def no_plugins(_ctx: RequestContext, _params: AnyParams) -> PluginListResult:
    """No plugins here."""
    return PluginListResult()


async def no_plugins_installed(_ctx: RequestContext, _params: AnyParams) -> PluginInstalledResult:
    """No plugins here."""
    return PluginInstalledResult()


async def rate_limits_read(_ctx: RequestContext, _params: AnyParams) -> RateLimitsReadResult:
    """Refused with the reference's words for a server without an account."""
    raise Unsupported("codex account authentication required to read rate limits")
