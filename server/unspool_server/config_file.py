"""Where the configuration comes from: file, environment, flags; later ones win.

Owns finding the home folder, reading TOML, `UNSPOOL_*` variables and `-c key=value` flags, and reporting keys that
mean nothing. `CODEX_HOME` is not read (DESIGN §4).
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from unspool_server.config import (
    BUILT_IN_PROVIDERS,
    FALLBACK_MODEL,
    NOT_FOR_CLIENTS,
    OFFLINE,
    OFFLINE_MODEL,
    Config,
    McpServerConfig,
    ProviderConfig,
)
from unspool_server.config_base import ConfigError
from unspool_server.config_daemon import AccessToken

ENV_PREFIX = "UNSPOOL_"
CONFIG_FILE = "config.toml"

# fmt: off
FOREIGN_KEYS = frozenset((
    "allow_symlinked_codex_home", "analytics", "apps", "apps_mcp_product_sku",
    "audio", "auto_review", "background_terminal_max_timeout", "browser_use", "chatgpt_base_url",
    "check_for_update_on_startup", "cli_auth_credentials_store", "client_search_provider", "cloud", "code_mode",
    "computer_use", "daybreak", "default_permissions", "desktop", "disable_paste_burst",
    "experimental_compact_prompt_file", "experimental_instructions_file",
    "experimental_realtime_start_instructions", "experimental_realtime_webrtc_call_base_url",
    "experimental_realtime_ws_backend_prompt", "experimental_realtime_ws_base_url",
    "experimental_realtime_ws_model", "experimental_realtime_ws_startup_context", "experimental_thread_store",
    "experimental_thread_store_endpoint", "experimental_use_unified_exec_tool", "feedback", "file_opener",
    "forced_chatgpt_workspace_id", "forced_login_method", "ghost_snapshot", "goals", "hide_agent_reasoning",
    "hooks", "js_repl_node_module_dirs", "js_repl_node_path", "log_dir", "marketplaces",
    "mcp_enterprise_managed_auth", "mcp_oauth_callback_port", "mcp_oauth_callback_url",
    "mcp_oauth_credentials_store", "mcp_optional_startup_grace_ms", "memories",
    "model_auto_compact_token_limit_scope", "model_catalog_json", "model_supports_reasoning_summaries",
    "model_verbosity", "notice", "notify", "openai_base_url", "orchestrator", "oss_provider", "otel", "permissions",
    "plan_mode_reasoning_effort", "plugins", "profile", "profiles", "project_doc_fallback_filenames", "projects",
    "realtime", "responses", "responses_api_metadata", "review_model", "rollout_trace",
    "show_raw_agent_reasoning", "skills", "sqlite_home", "suppress_unstable_features_warning", "tool_suggest",
    "tools", "tui", "web_search", "windows", "zsh_path",
))
# fmt: on
"""Top-level keys that Codex has and we do not share: accepted without a word, so that one file can serve both."""

# fmt: off
FOREIGN_PROVIDER_KEYS = frozenset((
    "auth", "aws", "capabilities", "credential_file", "gateway_oauth", "location", "model_catalog_url",
    "project_id", "requires_openai_auth", "supports_standalone_web_search", "supports_websockets",
    "websocket_connect_timeout_ms",
))
# fmt: on


# fmt: off
FOREIGN_MCP_KEYS = frozenset((
    "auth", "environment_id", "experimental_environment", "http_headers_helper", "name", "oauth", "oauth_resource",
    "scopes", "supports_parallel_tool_calls", "tool_search",
))
# fmt: on
_NAMED_TABLES: Mapping[type[BaseModel], frozenset[str]] = {
    ProviderConfig: FOREIGN_PROVIDER_KEYS,
    McpServerConfig: FOREIGN_MCP_KEYS,
}


def resolve_home(flag: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """The absolute home folder: flag, else `UNSPOOL_HOME`, else the platform's data folder; it may not exist yet."""
    env = os.environ if environ is None else environ
    chosen = os.fspath(flag) if flag else env.get("UNSPOOL_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    # Imported here: most starts name a home.
    import platformdirs

    return platformdirs.user_data_path("unspool", appauthor=False)


def load_config(
    home: Path,
    *,
    file: Path | None = None,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    strict: bool = False,
) -> tuple[Config, list[str]]:
    """Read the configuration of a home.

    Args:
        file: Instead of the home's `config.toml`; must exist, while the home's own may be missing.
        overrides: Dotted key -> text of a TOML value; text that is no TOML value stands for itself.
        strict: Refuse unknown keys instead of warning about them.

    Returns:
        The configuration and one warning per unknown key or doubtful setting.

    Raises:
        ConfigError: No such file, no TOML, a value of the wrong type (always), an unknown key (strict); names the key.
    """
    raw = _read_toml(file or home / CONFIG_FILE, required=file is not None)
    _merge(raw, _from_environment(os.environ if environ is None else environ))
    for key, text in (overrides or {}).items():
        _set_dotted(raw, key, parse_override(text))
    unknown = list(unknown_keys(raw))
    if strict and unknown:
        raise ConfigError(f"unknown configuration key `{unknown[0]}`", key=unknown[0])
    warnings = [f"unknown configuration key `{key}` is ignored" for key in unknown]
    config = _validated(raw)
    if "model" not in raw and config.model_provider != OFFLINE:
        config = config.model_copy(update={"model": _default_model(config)})
        if config.model == FALLBACK_MODEL:
            warnings.append(f"no `model` is configured for `{config.model_provider}`; asking for `{FALLBACK_MODEL}`")
    return config, warnings


def override_config(config: Config, values: Mapping[str, Any]) -> Config:
    """A configuration with some dotted keys replaced by decoded values (`config` of thread/start).

    Unknown keys are ignored, as everywhere on the wire, and so are those that no client may change.

    Raises:
        ConfigError: A value of the wrong type; names the key.
    """
    raw = config.model_dump(mode="python")
    # Dumps leave secrets out; the new configuration keeps them.
    raw["model_providers"] = {name: dict(table) for name, table in config.model_providers.items()}
    raw["mcp_servers"] = {name: dict(table) for name, table in config.mcp_servers.items()}
    for key, value in values.items():
        if key.partition(".")[0] not in NOT_FOR_CLIENTS:
            _set_dotted(raw, key, value)
    return _validated(raw).model_copy(update={name: getattr(config, name) for name in NOT_FOR_CLIENTS})


def parse_override(text: str) -> Any:
    """The value of a `-c key=value` flag: TOML where it is TOML, else the text itself without surrounding quotes."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text.strip().strip("\"'")
    return parsed["value"] if parsed.keys() == {"value"} else text


def parse_flags(flags: tuple[str, ...] | list[str]) -> dict[str, str]:
    """Split `key=value` flags; the last one of a key wins. Raises ConfigError for a flag without `=` or key."""
    found: dict[str, str] = {}
    for flag in flags:
        key, equals, value = flag.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"Invalid override (missing '='): {flag}", key=key.strip())
        found[key.strip()] = value.strip()
    return found


def unknown_keys(raw: Mapping[str, Any]) -> Iterator[str]:
    """Dotted keys that neither we nor Codex know."""
    yield from _unknown(raw, Config, "", FOREIGN_KEYS)


def _unknown(raw: Mapping[str, Any], model: type[BaseModel], prefix: str, foreign: frozenset[str]) -> Iterator[str]:
    for key, value in raw.items():
        field = model.model_fields.get(key)
        if field is not None:
            for name, table, inner, known in _tables_of(key, value, field.annotation):
                yield from _unknown(table, inner, f"{prefix}{name}.", known)
        elif key not in foreign:
            yield prefix + key


_Table = tuple[str, Mapping[str, Any], type[BaseModel], frozenset[str]]


def _tables_of(key: str, value: Any, annotation: Any) -> Iterator[_Table]:
    """The tables inside a value: name, content, model, and keys of theirs that only Codex has."""
    if isinstance(value, list) and AccessToken in get_args(annotation):
        for index, table in enumerate(value):
            if isinstance(table, Mapping):
                yield f"{key}[{index}]", table, AccessToken, frozenset()
    elif isinstance(value, Mapping) and (named := _NAMED_TABLES.keys() & get_args(annotation)):
        model = named.pop()
        for name, table in value.items():
            if isinstance(table, Mapping):
                yield f"{key}.{name}", table, model, _NAMED_TABLES[model]
    elif isinstance(value, Mapping) and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield key, value, annotation, frozenset()


def _read_toml(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        if not required:
            return {}
        raise ConfigError(f"no configuration file at {path}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name}: {error}") from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """`UNSPOOL_MODEL=…`, `UNSPOOL_HISTORY__MODE=…`; tables also as JSON.

    Variables that name no key are passed over: a container platform sets `UNSPOOL_PORT` and the like by itself.
    """
    names = {f"{ENV_PREFIX}{name}".upper() for name in Config.model_fields}
    given = {key: value for key, value in environ.items() if key.upper().partition("__")[0] in names}
    if not given:
        return {}
    # Imported here: a tenth of a second that most starts need not pay.
    from pydantic import create_model
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError
    from pydantic_settings.sources.utils import parse_env_vars

    class Given(EnvSettingsSource):
        def _load_env_vars(self) -> Mapping[str, str | None]:
            return parse_env_vars(given, False, False, None)

    fields: dict[str, Any] = {name: (field.annotation, None) for name, field in Config.model_fields.items()}
    shape = create_model("Settings", __base__=BaseSettings, **fields)
    try:
        return Given(shape, case_sensitive=False, env_prefix=ENV_PREFIX, env_nested_delimiter="__")()
    except SettingsError as error:
        raise ConfigError(f"environment: {error}") from error


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        present = into.get(key)
        if isinstance(present, dict) and isinstance(value, Mapping):
            _merge(present, value)
        else:
            into[key] = value


def _set_dotted(raw: dict[str, Any], key: str, value: Any) -> None:
    *tables, last = key.split(".")
    here = raw
    for table in tables:
        inner = here.get(table)
        here[table] = inner = dict(inner) if isinstance(inner, Mapping) else {}
        here = inner
    here[last] = value


def _validated(raw: Mapping[str, Any]) -> Config:
    try:
        return Config.model_validate(_on_built_ins(raw))
    except ValidationError as error:
        first = error.errors()[0]
        # A union adds the name of its branch, which is no part of the key.
        key = ".".join(str(part) for part in first["loc"] if isinstance(part, str) and "[" not in part)
        raise ConfigError(f"configuration key `{key}`: {first['msg']}", key=key) from error


def _on_built_ins(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """A table of a built-in provider's name that does not say where the service is changes the built-in one.

    `-c model_providers.offline.pace_s=0.1` must not send anything to a service.
    """
    tables = raw.get("model_providers")
    if not isinstance(tables, Mapping):
        return raw
    whole = dict(tables)
    for name, built_in in BUILT_IN_PROVIDERS.items():
        table = tables.get(name)
        if isinstance(table, Mapping) and not {"base_url", "wire_api"} & table.keys():
            whole[name] = {**dict(built_in), **table}
    return {**raw, "model_providers": whole}


def _default_model(config: Config) -> str:
    table = config.model_providers.get(config.model_provider)
    return OFFLINE_MODEL if table is not None and table.wire_api == "offline" else FALLBACK_MODEL
