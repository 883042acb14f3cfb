"""Where settings come from, which one wins, and what is said about keys that mean nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from unspool_server.config import BUILT_IN_PROVIDERS, Config, ProviderConfig
from unspool_server.config_base import ConfigError
from unspool_server.config_file import load_config, override_config, parse_flags, parse_override, resolve_home

REFERENCE_CONFIG = """model = "mock-model"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
compact_prompt = "COMPACT-NOW"
include_permissions_instructions = false
include_apps_instructions = false
include_collaboration_mode_instructions = false
web_search = "disabled"
model_auto_compact_token_limit = 5000
[skills]
include_instructions = false
[skills.bundled]
enabled = false
[features]
apps = false
shell_snapshot = false
[model_providers.mock]
name = "mock"
base_url = "http://127.0.0.1:1234/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
"""


def write(home: Path, text: str) -> Path:
    path = home / "config.toml"
    path.write_text(text)
    return path


def test_a_fresh_machine_gets_the_offline_provider_and_no_warnings(tmp_path: Path) -> None:
    config, warnings = load_config(tmp_path / "missing", environ={})

    assert (config, warnings) == (Config(), [])
    assert (config.model_provider, config.model) == ("offline", "offline-echo")
    assert config.provider().wire_api == "offline"


def test_a_config_of_the_reference_is_read_without_a_warning(tmp_path: Path) -> None:
    write(tmp_path, REFERENCE_CONFIG)

    config, warnings = load_config(tmp_path, environ={}, strict=True)

    assert warnings == []
    assert (config.model, config.approval_policy, config.sandbox_mode) == ("mock-model", "never", "danger-full-access")
    assert config.compact_prompt == "COMPACT-NOW"
    assert not config.include_permissions_instructions
    assert config.features == {"apps": False, "shell_snapshot": False}
    provider = config.provider()
    assert (provider.base_url, provider.request_max_retries) == ("http://127.0.0.1:1234/v1", 0)


def test_environment_beats_file_and_flags_beat_both(tmp_path: Path) -> None:
    write(tmp_path, 'model = "file"\nsandbox_mode = "read-only"\napproval_policy = "never"\n')
    environ = {"UNSPOOL_MODEL": "env", "UNSPOOL_SANDBOX_MODE": "workspace-write", "UNSPOOL_HISTORY__MODE": "legacy"}

    config, warnings = load_config(tmp_path, environ=environ, overrides={"model": '"flag"'})

    assert warnings == []
    assert (config.model, config.sandbox_mode, config.approval_policy) == ("flag", "workspace-write", "never")
    assert config.history.mode == "legacy"


def test_flags_reach_into_tables_and_leave_their_other_keys(tmp_path: Path) -> None:
    write(tmp_path, REFERENCE_CONFIG)
    flags = parse_flags(["model_providers.mock.base_url=http://127.0.0.1:9/v1", "model_context_window=10000"])

    config, _ = load_config(tmp_path, environ={}, overrides=flags)

    assert config.provider().base_url == "http://127.0.0.1:9/v1"
    assert config.provider().name == "mock"
    assert (config.context_window, config.auto_compact_limit) == (10_000, 5_000)


def test_variables_that_name_no_key_are_passed_over(tmp_path: Path) -> None:
    environ = {"UNSPOOL_HOME": str(tmp_path), "UNSPOOL_PORT": "tcp://10.0.0.1:80", "MODEL": "no"}

    assert load_config(tmp_path, environ=environ) == (Config(), [])


def test_unknown_keys_warn_by_their_dotted_name(tmp_path: Path) -> None:
    write(tmp_path, "modle = 'x'\n[history]\nspeed = 1\n[model_providers.a]\nname = 'A'\nbase_uri = 'y'\n")

    config, warnings = load_config(tmp_path, environ={})

    assert warnings == [
        "unknown configuration key `modle` is ignored",
        "unknown configuration key `history.speed` is ignored",
        "unknown configuration key `model_providers.a.base_uri` is ignored",
    ]
    assert config.provider("a").name == "A"


def test_strict_refuses_an_unknown_key_by_name(tmp_path: Path) -> None:
    write(tmp_path, "[history]\nspeed = 1\n")

    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path, environ={}, strict=True)

    assert caught.value.key == "history.speed"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('approval_policy = "sometimes"', "approval_policy"),
        ("model_context_window = 0", "model_context_window"),
        ('[history]\nmode = "other"', "history.mode"),
        ("[model_providers.a]\nrequest_max_retries = -1", "model_providers.a.request_max_retries"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_key(tmp_path: Path, text: str, key: str) -> None:
    write(tmp_path, text)

    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path, environ={})

    assert caught.value.key == key


def test_a_broken_file_and_a_missing_named_file_are_refused(tmp_path: Path) -> None:
    broken = write(tmp_path, "model = ")

    with pytest.raises(ConfigError, match=r"config\.toml"):
        load_config(tmp_path, environ={})
    with pytest.raises(ConfigError, match="no configuration file"):
        load_config(tmp_path, file=broken.with_name("other.toml"), environ={})


def test_a_named_file_replaces_the_homes_own(tmp_path: Path) -> None:
    write(tmp_path, 'model = "home"')
    other = tmp_path / "other.toml"
    other.write_text('model = "other"')

    assert load_config(tmp_path, file=other, environ={})[0].model == "other"


def test_a_real_service_without_a_model_is_worth_a_warning(tmp_path: Path) -> None:
    write(tmp_path, "model_provider = 'a'\n[model_providers.a]\nbase_url = 'http://127.0.0.1:1/v1'\n")

    config, warnings = load_config(tmp_path, environ={})

    assert config.model == "gpt-5.2"
    assert warnings == ["no `model` is configured for `a`; asking for `gpt-5.2`"]


def test_an_unknown_provider_is_named_in_the_references_words() -> None:
    with pytest.raises(ConfigError) as caught:
        Config(model_provider="x").provider()

    assert caught.value.message == "Model provider `x` not found"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("true", True),
        ('"a b"', "a b"),
        ("[1, 2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        ("plain text", "plain text"),
        ("'odd", "odd"),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_a_flags_value_is_toml_or_itself(text: str, value: object) -> None:
    assert parse_override(text) == value


@pytest.mark.parametrize("flag", ["model", "=x"])
def test_a_flag_without_key_or_sign_is_refused(flag: str) -> None:
    with pytest.raises(ConfigError):
        parse_flags([flag])


def test_decoded_overrides_make_a_new_configuration() -> None:
    before = Config(model="a")

    after = override_config(before, {"model": "b", "sandbox_workspace_write.network_access": True, "no_such": 1})

    assert (before.model, after.model) == ("a", "b")
    assert after.sandbox_workspace_write.network_access
    with pytest.raises(ConfigError) as caught:
        override_config(before, {"sandbox_mode": 3})
    assert caught.value.key == "sandbox_mode"


def test_secrets_are_kept_by_overrides_and_never_dumped(tmp_path: Path) -> None:
    write(tmp_path, "[model_providers.a]\nexperimental_bearer_token = 's3cret'\nhttp_headers = {x = 's3cret'}\n")
    config, warnings = load_config(tmp_path, environ={})

    changed = override_config(config, {"model_providers.a.base_url": "http://127.0.0.1:1/v1"})

    assert warnings == []
    assert "s3cret" not in repr(changed) + changed.model_dump_json()
    assert changed.provider("a").experimental_bearer_token == "s3cret"
    assert changed.provider("a").http_headers == {"x": "s3cret"}
    assert changed.provider("a").base_url == "http://127.0.0.1:1/v1"


def test_home_is_the_flag_then_the_variable_then_the_platforms(tmp_path: Path) -> None:
    environ = {"UNSPOOL_HOME": str(tmp_path / "env"), "CODEX_HOME": str(tmp_path / "codex")}

    assert resolve_home(tmp_path / "flag", environ) == tmp_path / "flag"
    assert resolve_home(None, environ) == tmp_path / "env"
    assert resolve_home("here", environ) == Path.cwd() / "here"
    fallback = resolve_home(None, {"CODEX_HOME": str(tmp_path / "codex")})
    assert fallback.is_absolute()
    assert fallback != tmp_path / "codex"


def test_reading_a_configuration_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pathlib import Path; from unspool_server.config_file import load_config;"
        "load_config(Path('/nonexistent'), environ={});"
        "print([n for n in ('openai', 'rich', 'starlette', 'pydantic_settings', 'asyncio') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("key", ["pace_s", "request_max_retries"])
def test_one_key_of_a_built_in_provider_leaves_it_what_it_is(tmp_path: Path, key: str) -> None:
    config, warnings = load_config(tmp_path, overrides={f"model_providers.offline.{key}": "3"}, environ={})

    assert warnings == []
    assert config.provider() == BUILT_IN_PROVIDERS["offline"].model_copy(update={key: 3})
    thread = override_config(Config(), {"model_providers.openai.request_max_retries": 0})
    assert thread.provider("openai") == BUILT_IN_PROVIDERS["openai"].model_copy(update={"request_max_retries": 0})


def test_a_table_that_says_where_the_service_is_replaces_a_built_in_one(tmp_path: Path) -> None:
    write(tmp_path, '[model_providers.openai]\nbase_url = "http://127.0.0.1:1/v1"\n')

    config, _ = load_config(tmp_path, environ={})

    assert config.provider("openai") == ProviderConfig(base_url="http://127.0.0.1:1/v1")
