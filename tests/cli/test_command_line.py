"""What the command line accepts and refuses, and what it hands to the daemon; nothing is served here."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result
from unspool_server.cli.main import COMMANDS, main
from unspool_server.cli.options import Listen, ServerOptions, WebSocketAuth


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="unspool")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ServerOptions]:
    """What daemons would have been started with."""
    options: list[ServerOptions] = []
    daemon = ModuleType("unspool_server.cli.daemon")
    daemon.run = lambda given: options.append(given) or 0  # type: ignore[attr-defined, func-returns-value]
    monkeypatch.setitem(sys.modules, "unspool_server.cli.daemon", daemon)
    monkeypatch.setattr("unspool_server.cli.daemon", daemon, raising=False)
    return options


def test_help_lists_every_command() -> None:
    result = run("--help")

    assert result.exit_code == 0
    assert all(f"\n  {name} " in result.output for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = run(name, "--help")

    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: unspool {name} ")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["app-server", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from unspool_server.cli.main import main;"
        f"sys.argv[1:] = {arguments!r};"
        "main(standalone_mode=False);"
        "heavy = ('pydantic', 'asyncio', 'openai', 'rich', 'starlette', 'uvicorn', 'unspool_client');"
        "print('\\nHEAVY', [name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout.splitlines()[-1] == "HEAVY []"


@pytest.mark.parametrize(
    ("url", "listen"),
    [
        ("stdio://", Listen("stdio")),
        ("off", Listen("off")),
        ("unix://", Listen("unix")),
        ("unix:///run/u.sock", Listen("unix", path=Path("/run/u.sock"))),
        ("ws://127.0.0.1:0", Listen("ws", "127.0.0.1", 0)),
        ("ws://[::1]:4500", Listen("ws", "::1", 4500)),
    ],
)
def test_addresses_to_listen_on(started: list[ServerOptions], url: str, listen: Listen) -> None:
    assert run("app-server", "--listen", url).exit_code == 0
    assert [options.listen for options in started] == [listen]


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("ws://localhost:4500", "invalid websocket --listen URL `ws://localhost:4500`; expected `ws://IP:PORT`"),
        ("ws://127.0.0.1", "invalid websocket --listen URL `ws://127.0.0.1`; expected `ws://IP:PORT`"),
        ("ws://127.0.0.1:99999", "invalid websocket --listen URL `ws://127.0.0.1:99999`; expected `ws://IP:PORT`"),
        (
            "tcp://127.0.0.1:1",
            "unsupported --listen URL `tcp://127.0.0.1:1`; expected "
            "`stdio://`, `unix://`, `unix://PATH`, `ws://IP:PORT`, or `off`",
        ),
    ],
)
def test_names_and_other_schemes_are_no_addresses(started: list[ServerOptions], url: str, complaint: str) -> None:
    result = run("app-server", "--listen", url)

    assert (result.exit_code, started) == (2, [])
    assert complaint in result.stderr


def test_the_daemon_serves_stdio_unless_told_otherwise(started: list[ServerOptions]) -> None:
    assert run("app-server").exit_code == 0
    assert run("app-server", "--stdio", "--listen", "off").exit_code == 0
    assert started == [ServerOptions(), ServerOptions()]


def test_settings_are_taken_before_and_after_the_command(started: list[ServerOptions], tmp_path: Path) -> None:
    result = run(
        "--config", "model=first", "-c", "a.b=1",
        "app-server", "-c", "model=last", "--config", "c=[1]", "--config", str(tmp_path / "x=y.toml"),
        "--home", str(tmp_path), "--strict-config",
    )  # fmt: skip

    assert result.exit_code == 0
    [options] = started
    assert options == ServerOptions(
        home=tmp_path,
        config_file=tmp_path / "x=y.toml",
        overrides={"model": "last", "a.b": "1", "c": "[1]"},
        strict_config=True,
    )


def test_a_setting_without_a_value_is_refused(started: list[ServerOptions]) -> None:
    result = run("app-server", "-c", "model")

    assert (result.exit_code, started) == (1, [])
    assert result.stderr == "Error parsing -c overrides: Invalid override (missing '='): model\n"


def test_authentication_flags_are_handed_over(started: list[ServerOptions]) -> None:
    run("app-server", "--ws-auth", "capability-token", "--ws-token-file", "/secret")
    run("app-server", "--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", "/s", "--ws-issuer", "me")

    assert [options.auth for options in started] == [
        WebSocketAuth("capability-token", token_file=Path("/secret")),
        WebSocketAuth("signed-bearer-token", shared_secret_file=Path("/s"), issuer="me"),
    ]


@pytest.mark.parametrize(
    "flags",
    [
        ["--ws-token-file", "/secret"],
        ["--ws-auth", "capability-token"],
        ["--ws-auth", "capability-token", "--ws-token-sha256", "ab"],
        ["--ws-auth", "capability-token", "--ws-token-file", "/a", "--ws-issuer", "me"],
        ["--ws-auth", "capability-token", "--ws-token-file", "/a", "--ws-token-sha256", "ab"],
        ["--ws-auth", "signed-bearer-token"],
        ["--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", "/s", "--ws-token-sha256", "ab"],
    ],
)
def test_authentication_flags_that_do_not_fit_start_nothing(started: list[ServerOptions], flags: list[str]) -> None:
    assert (run("app-server", *flags).exit_code, started) == (1, [])


def test_serve_listens_on_this_machine_and_says_so(started: list[ServerOptions]) -> None:
    assert run("serve", "--port", "0").exit_code == 0
    assert run("serve", "--port", "0", "--no-auth").exit_code == 0
    here = ServerOptions(listen=Listen("ws", "127.0.0.1", 0), banner=True)
    assert started == [replace(here, home_token=True), here]


@pytest.mark.parametrize(
    "arguments", [["nope"], ["exec", "--nope"], ["exec", "-s", "zz", "x"], ["serve", "--port", "-1"]]
)
def test_unknown_commands_flags_and_values_end_with_status_2(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_schemas_are_written(tmp_path: Path) -> None:
    result = run("schema", "--out", str(tmp_path / "new"))

    assert result.exit_code == 0
    assert (tmp_path / "new" / "methods.json").is_file()


@pytest.mark.parametrize(
    "arguments",
    [("schema", "--out", "FILE/below"), ("import", "FILE", "--home", "FILE"), ("threads", "list", "--home", "FILE")],
)
def test_what_the_system_refuses_is_told_in_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    result = run(*(word.replace("FILE", str(file)) for word in arguments))
    assert result.exit_code in (1, 2)
    assert result.output.splitlines()[-1].startswith("Error: ")
    assert result.exception is None or isinstance(result.exception, SystemExit)
