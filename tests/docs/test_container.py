"""The image and the service, as far as they can be looked at without an engine: every claim of theirs is checked."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from unspool_server.cli.main import main
from unspool_server.config import Config

from tests.docs.test_documents import ROOT, check_command, text_of

DOCKER = ROOT / "docker"
KNOWN = {"FROM", "WORKDIR", "RUN", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL"}
KNOWN |= {"ENTRYPOINT", "CMD"}


def instructions(name: str = "") -> list[str]:
    """The arguments of one kind of instruction, or all lines."""
    joined = re.sub(r"\\\n\s*", " ", text_of(DOCKER / "Dockerfile"))
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [line.removeprefix(name).strip() for line in lines if line.startswith(name)]


def words_of(argument: str) -> list[str]:
    """The exec form of an instruction."""
    found: list[str] = yaml.safe_load(argument)
    return found


def copied() -> set[str]:
    """What comes into the image from the build context."""
    lines = [line for line in instructions("COPY ") if not line.startswith("--from=")]
    return {word.removeprefix("./") for line in lines for word in line.split()[:-1]}


def service() -> dict[str, Any]:
    """The one service of the compose file."""
    found: dict[str, Any] = yaml.safe_load(text_of(DOCKER / "compose.yaml"))["services"]["unspool"]
    return found


def test_the_dockerfile_consists_of_instructions_and_two_stages() -> None:
    assert {line.split()[0] for line in instructions()} == KNOWN
    first, second = instructions("FROM ")
    assert first == f"{second} AS build", "both on the same base, so that the environment fits"
    minor = int(re.findall(r"python:3\.(\d+)", second)[0])
    assert minor >= 11


def test_the_image_copies_files_that_exist_and_all_that_the_wheel_is_built_from() -> None:
    assert [name for name in copied() if not (ROOT / name).exists()] == []
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {Path(package).parts[0] for package in packages} <= copied()
    assert {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]} <= copied()


def test_the_build_context_holds_what_is_copied_and_nothing_else() -> None:
    ignored = text_of(DOCKER / "Dockerfile.dockerignore").splitlines()
    assert ignored[0] == "*", "tokens, logs and git stay outside"
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == copied()


def test_the_image_runs_as_a_user_without_rights_who_owns_the_home_on_the_volume() -> None:
    (user,) = instructions("USER ")
    (volume,) = instructions("VOLUME ")
    made = next(line for line in instructions("RUN ") if "useradd" in line)
    assert user not in ("root", "0") and f"--uid 10001 {user}" in made
    assert f"install -d -o {user} -g {user} -m 0700 {volume}" in made
    assert f"UNSPOOL_HOME={volume}" in instructions("ENV ")[0]


def test_no_secret_is_part_of_a_layer() -> None:
    text = " ".join(instructions())
    assert re.findall(r"(?i)token|secret|password|api_key", text) == []
    assert "ARG " not in text


def test_variables_of_the_image_are_settings() -> None:
    named = re.findall(r"UNSPOOL_(\w+)=", instructions("ENV ")[0])
    for name in named:
        table, _, key = name.lower().partition("__")
        field = Config.model_fields.get(table)
        assert name == "HOME" or (field is not None and (not key or key in field.annotation.model_fields)), name  # type: ignore[union-attr]


def test_the_image_starts_a_command_that_exists_where_its_health_is_asked() -> None:
    assert words_of(instructions("ENTRYPOINT ")[0]) == ["unspool"]
    words = words_of(instructions("CMD ")[0])
    (port,) = instructions("EXPOSE ")
    assert (check_command(" ".join(words)), words[-1]) == ("", f"ws://127.0.0.1:{port}")
    assert health_command() == ["unspool", "health", f"http://127.0.0.1:{port}"]
    assert instructions("STOPSIGNAL ") == ["SIGTERM"]


def health_command() -> list[str]:
    return words_of(instructions("HEALTHCHECK ")[0].partition(" CMD ")[2])


def test_the_health_check_fails_where_nobody_listens() -> None:
    *command, _ = health_command()[1:]
    result = CliRunner().invoke(main, [*command, "http://127.0.0.1:1"])
    assert (result.exit_code, result.stdout) == (1, "")


def test_the_service_starts_a_command_that_exists_with_the_token_from_a_secret() -> None:
    words = service()["command"]
    assert check_command(shlex.join(words)) == ""
    token = Path(words[words.index("--ws-token-file") + 1])
    (secret,) = service()["secrets"]
    assert token == Path("/run/secrets") / secret
    whole = yaml.safe_load(text_of(DOCKER / "compose.yaml"))
    assert whole["secrets"][secret] == {"file": "./token"}
    assert "docker/token" in text_of(ROOT / ".gitignore").splitlines()


def test_the_service_is_built_kept_alive_asked_and_given_time_to_drain() -> None:
    one = service()
    assert (DOCKER / one["build"]["context"] / one["build"]["dockerfile"]).resolve() == DOCKER / "Dockerfile"
    assert one["restart"] == "unless-stopped"
    assert one["healthcheck"]["test"] == ["CMD", *health_command()]
    assert int(one["stop_grace_period"].removesuffix("s")) > Config().drain_timeout_secs
    (volume,) = instructions("VOLUME ")
    assert one["volumes"] == [f"home:{volume}"]
    assert all(port.startswith("127.0.0.1:") for port in one["ports"])


@pytest.mark.parametrize("script", ["unspool"])
def test_the_entry_point_of_the_wheel_leads_to_a_command(script: str) -> None:
    entry = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["scripts"][script]
    module, _, name = entry.partition(":")
    code = f"import sys; from {module} import {name}; sys.argv = ['{script}', '--version']; {name}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("unspool")
