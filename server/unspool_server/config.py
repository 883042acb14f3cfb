"""The configuration as values: what can be set, its defaults and its types. Reading it is `config_file`'s task.

Names are those of Codex' `config.toml`, so that one file serves both (DESIGN §5). Importing this stays cheap: no
settings library, no model library.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from unspool_server.config_base import ConfigError, ConfigModel
from unspool_server.config_daemon import AccessOptions, Limits, LoggingOptions, TracingOptions, WebSocketOptions

OFFLINE = "offline"
OFFLINE_MODEL = "offline-echo"
FALLBACK_MODEL = "gpt-5.2"
"""Asked for when a real service is configured without a model; the loader warns."""

UNKNOWN_MODEL_WINDOW = 272_000
"""Tokens; the window of a model nobody described (07 §6.3)."""

WireApi = Literal["responses", "chat", "offline"]
ApprovalPolicy = Literal["untrusted", "on-failure", "on-request", "never"]
SandboxMode = Literal["read-only", "workspace-write", "danger-full-access"]


class ProviderConfig(ConfigModel):
    """One `[model_providers.NAME]` table. Tokens and headers are left out of dumps, so that no client reads them.

    Attributes:
        name: Display name; `OpenAI` exactly means a service that compacts by itself (07 §6.1).
        env_key: Environment variable with the API key; None for services that want none.
        request_max_retries: How often a refused connection, an answer 429 or one of 5xx is asked again.
        stream_max_retries: How often a turn asks again when a stream breaks; what was finished before stays.
        stream_idle_timeout_ms: Longest silence of a stream, in milliseconds.
        script: `offline` only: JSON file with replies.
        pace_s: `offline` only: seconds between two text deltas.
    """

    name: str = ""
    base_url: str | None = None
    wire_api: WireApi = "responses"
    env_key: str | None = None
    env_key_instructions: str | None = None
    experimental_bearer_token: str | None = Field(default=None, repr=False, exclude=True)
    query_params: Mapping[str, str] = Field(default_factory=dict)
    http_headers: Mapping[str, str] = Field(default_factory=dict, repr=False, exclude=True)
    env_http_headers: Mapping[str, str] = Field(default_factory=dict)
    request_max_retries: int = Field(default=4, ge=0, le=100)
    stream_max_retries: int = Field(default=5, ge=0, le=100)
    stream_idle_timeout_ms: int = Field(default=300_000, gt=0)
    script: str | None = None
    pace_s: float = Field(default=0.0, ge=0.0)


class WorkspaceWrite(ConfigModel):
    """`[sandbox_workspace_write]`."""

    writable_roots: tuple[str, ...] = ()
    network_access: bool = False
    exclude_tmpdir_env_var: bool = False
    exclude_slash_tmp: bool = False


class ShellEnvironmentPolicy(ConfigModel):
    """`[shell_environment_policy]`: the variables of commands. Keys of model services are left out in any case.

    Attributes:
        inherit: All of the server's variables, a core of them, or none.
        ignore_default_excludes: Keep variables whose names look like secrets: `*KEY*`, `*TOKEN*`, `*SECRET*`,
            `*PASSWORD*`, `*CREDENTIAL*`.
        exclude: Patterns of further names to leave out; `*` and `?` as in file names, upper and lower case alike.
        set: Set for every command.
        include_only: Patterns; where there are any, only such names stay, `set` included.
        experimental_use_profile: Kept for files shared with Codex.
    """

    inherit: Literal["all", "core", "none"] = "all"
    ignore_default_excludes: bool = False
    exclude: tuple[str, ...] = ()
    set: Mapping[str, str] = Field(default_factory=dict)
    include_only: tuple[str, ...] = ()
    experimental_use_profile: bool = False


class HistoryOptions(ConfigModel):
    """`[history]`; Codex' two keys, then ours.

    Attributes:
        mode: How new threads are logged (`historyMode` of thread/start when the client does not say).
        durability: What an answer to a lifecycle method promises: `written` survives the process, `synced` the machine.
        retained_events: How many encoded events of a live thread stay in memory; older ones come from the log.
        slow_client_bytes: How many bytes of events a client may be behind that asked to be disconnected then.
    """

    persistence: Literal["save-all", "none"] = "save-all"
    max_bytes: int | None = Field(default=None, ge=0)
    mode: Literal["paginated", "legacy"] = "paginated"
    durability: Literal["written", "synced"] = "written"
    retained_events: int = Field(default=4096, ge=16)
    slow_client_bytes: int = Field(default=4 * 1024 * 1024, ge=0)


class AgentOptions(ConfigModel):
    """`[agents]`: sub-agents that the model may start.

    Attributes:
        enabled: Offer the model tools to start agents, to talk with them and to wait for them.
        max_threads: Agents of one tree that may work at once.
        max_depth: How deep agents may start agents: 1 for those of a thread itself only.
    """

    enabled: bool = False
    max_threads: int = Field(default=6, ge=1)
    max_depth: int = Field(default=1, ge=1)


McpApproval = Literal["auto", "prompt", "approve"]


class McpToolConfig(ConfigModel):
    """`[mcp_servers.NAME.tools.TOOL]`: `approval_mode` for one tool."""

    approval_mode: McpApproval | None = None


class McpServerConfig(ConfigModel):
    """One `[mcp_servers.NAME]` table: `command` starts a server here, `url` names one on the network.

    Environments and headers are left out of dumps, so that no client reads them.

    Attributes:
        args: Arguments of `command`.
        env: Variables set for `command`; beside them it gets `HOME`, `PATH` and their like and no others.
        env_vars: Names of further variables that are passed on to `command`.
        cwd: Folder of `command`; by default the daemon's own.
        url: Address of a streamable HTTP endpoint, in place of `command`.
        bearer_token_env_var: Variable that holds the token for `url`.
        enabled: `false` keeps the table and starts nothing.
        required: A turn fails when this server cannot be started; otherwise it goes on without the server's tools.
        startup_timeout_sec: Longest wait for the server to start and list its tools; 30 where nothing is set.
        startup_timeout_ms: The same in milliseconds.
        tool_timeout_sec: Longest wait for one call.
        enabled_tools: Only these tools are offered; by default all.
        disabled_tools: These tools are not offered.
        default_tools_approval_mode: `auto` asks before tools that may change something, `prompt` before every tool,
            `approve` never.
        tools: `tools.TOOL.approval_mode` says it for one tool.
    """

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict, repr=False, exclude=True)
    env_vars: tuple[str, ...] = ()
    cwd: str | None = None
    url: str | None = None
    bearer_token_env_var: str | None = None
    http_headers: Mapping[str, str] = Field(default_factory=dict, repr=False, exclude=True)
    env_http_headers: Mapping[str, str] = Field(default_factory=dict)
    enabled: bool = True
    required: bool = False
    startup_timeout_sec: float | None = Field(default=None, gt=0)
    startup_timeout_ms: float | None = Field(default=None, gt=0)
    tool_timeout_sec: float = Field(default=300.0, gt=0)
    enabled_tools: tuple[str, ...] | None = None
    disabled_tools: tuple[str, ...] = ()
    default_tools_approval_mode: McpApproval = "auto"
    tools: Mapping[str, McpToolConfig] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> "McpServerConfig":
        if (self.command is None) == (self.url is None):
            raise ValueError("exactly one of `command` and `url` must be set")
        return self

    @property
    def startup_timeout_s(self) -> float:
        """Seconds; 30 where nothing is set, as in the reference."""
        if self.startup_timeout_sec is not None:
            return self.startup_timeout_sec
        return 30.0 if self.startup_timeout_ms is None else self.startup_timeout_ms / 1000

    def offers(self, tool: str) -> bool:
        """Whether a tool of the server may be used."""
        return (self.enabled_tools is None or tool in self.enabled_tools) and tool not in self.disabled_tools

    def approval_of(self, tool: str) -> McpApproval:
        """When a call of this tool needs the user's word."""
        own = self.tools.get(tool)
        return own.approval_mode if own is not None and own.approval_mode else self.default_tools_approval_mode


BUILT_IN_PROVIDERS: Mapping[str, ProviderConfig] = {
    OFFLINE: ProviderConfig(name="Offline", wire_api="offline"),
    "openai": ProviderConfig(name="OpenAI", base_url="https://api.openai.com/v1", env_key="OPENAI_API_KEY"),
}
"""Usable without a table of their own. A table of the same name that has `base_url` or `wire_api` replaces them; one
that has neither changes single keys."""


NOT_FOR_CLIENTS = frozenset({"access", "limits", "websocket"})
"""Tables that what a client asks for its thread cannot change."""

REACHES_OUT = frozenset({"mcp_servers", "model_providers", "model_instructions_file", "shell_environment_policy"})
"""Keys that start programs, read files or send secrets of the environment to an address of one's choice. A thread may
bring its own where its tenant may run commands, which can do as much."""


class Config(ConfigModel):
    """Everything that can be set for the daemon and its threads; thread/start may override parts of it.

    Attributes:
        model_context_window: Tokens; None means 272 000 (07 §6.3).
        model_auto_compact_token_limit: Tokens; the limit in force is the smaller of this and 90 % of the window.
            0 turns compaction by itself off.
        model_post_turn_compact_threshold_percent: Compact after a turn that used this share of the window.
        thread_unload_delay_secs: Seconds from a thread's last subscriber to its unloading.
        drain_timeout_secs: Seconds that running turns get to end by themselves when the daemon is asked to stop.
        features: `shell_tool = false` takes the shell tool away, `true` gives it to named tenants as well; the rest is
            kept for `config/read`, without effect.
        allow_login_shell: Whether commands run in a login shell unless the model asks for another.
        command_timeout_secs: Longest life of a command, also of one left running; 0 means no limit.
        approval_timeout_secs: How long to wait for an answer before a command counts as declined; none by default.
    """

    model: str = OFFLINE_MODEL
    model_provider: str = OFFLINE
    model_providers: Mapping[str, ProviderConfig] = Field(default_factory=dict)
    model_context_window: int | None = Field(default=None, gt=0)
    model_auto_compact_token_limit: int | None = Field(default=None, ge=0)
    model_post_turn_compact_threshold_percent: int | None = Field(default=None, ge=1, le=100)
    model_reasoning_effort: str | None = None
    model_reasoning_summary: str | None = None
    approval_policy: ApprovalPolicy | Mapping[str, Any] = "on-request"
    approvals_reviewer: Literal["user", "auto_review"] = "user"
    sandbox_mode: SandboxMode = "read-only"
    sandbox_workspace_write: WorkspaceWrite = WorkspaceWrite()
    instructions: str | None = None
    model_instructions_file: str | None = None
    developer_instructions: str | None = None
    compact_prompt: str | None = None
    personality: str | None = None
    service_tier: str | None = None
    include_permissions_instructions: bool = True
    include_collaboration_mode_instructions: bool = True
    include_environment_context: bool = True
    include_environment_context_time: bool = True
    include_apps_instructions: bool = True
    project_doc_max_bytes: int = Field(default=32_768, ge=0)
    project_doc_fallback_filenames: tuple[str, ...] = ()
    project_root_markers: tuple[str, ...] = (".git",)
    tool_output_token_limit: int | None = Field(default=None, gt=0)
    thread_unload_delay_secs: float = Field(default=60.0, ge=0.0)
    drain_timeout_secs: float = Field(default=10.0, ge=0.0)
    allow_login_shell: bool = True
    command_timeout_secs: float = Field(default=3600.0, ge=0.0)
    approval_timeout_secs: float | None = Field(default=None, gt=0.0)
    shell_environment_policy: ShellEnvironmentPolicy = ShellEnvironmentPolicy()
    history: HistoryOptions = HistoryOptions()
    logging: LoggingOptions = LoggingOptions()
    tracing: TracingOptions = TracingOptions()
    agents: AgentOptions = AgentOptions()
    mcp_servers: Mapping[str, McpServerConfig] = Field(default_factory=dict)
    features: Mapping[str, Any] = Field(default_factory=dict)
    access: AccessOptions = Field(default=AccessOptions(), exclude=True)
    limits: Limits = Limits()
    websocket: WebSocketOptions = Field(default=WebSocketOptions(), exclude=True)

    def provider(self, name: str | None = None) -> ProviderConfig:
        """The table of a provider, by default of the configured one.

        Raises:
            ConfigError: No such provider; the message is the reference's (`wire` §6, thread/start).
        """
        wanted = self.model_provider if name is None else name
        found = self.model_providers.get(wanted) or BUILT_IN_PROVIDERS.get(wanted)
        if found is None:
            raise ConfigError(f"Model provider `{wanted}` not found", key="model_provider")
        return found

    def runs_commands_for(self, tenant: str) -> bool:
        """Whether a tenant's threads run commands, which have the server's own rights, other tenants' logs included.

        The machine's owner has them unless `features.shell_tool` is off, a named tenant only where it is on.
        """
        word = self.features.get("shell_tool")
        return word is True if tenant else word is not False

    def for_thread(self, own: "Config") -> "Config":
        """A thread's own configuration, made from this one: it may do without commands, but not grant them."""
        if own.features.get("shell_tool") is False:
            return own
        kept = {name: value for name, value in own.features.items() if name != "shell_tool"}
        word = {"shell_tool": self.features["shell_tool"]} if "shell_tool" in self.features else {}
        return own.model_copy(update={"features": {**kept, **word}})

    @property
    def context_window(self) -> int:
        """Tokens of the model's window, the common one where nothing is configured (07 §6.3)."""
        return self.model_context_window or UNKNOWN_MODEL_WINDOW

    @property
    def auto_compact_limit(self) -> int | None:
        """Tokens from which on a thread is compacted by itself (07 §6.3); None where that is turned off."""
        share = self.context_window * 9 // 10
        limit = self.model_auto_compact_token_limit
        if limit == 0:
            return None
        return share if limit is None else min(limit, share)
