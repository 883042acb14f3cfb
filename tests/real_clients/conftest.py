"""A home with three model services, and the program that real clients start or connect to."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real_clients.daemons import WebSocketDaemon
from tests.real_clients.driving import program_in


@dataclass(frozen=True, slots=True)
class Place:
    """Where one client's tests happen.

    Attributes:
        program: Path of an executable `unspool`.
        env: What the client and the server it starts need to find the home.
    """

    home: Path
    work: Path
    program: Path
    env: dict[str, str]


CONFIG = """\
model_provider = "offline"

[model_providers.slow]
name = "slow"
wire_api = "offline"
script = "{slow}"

[model_providers.json]
name = "json"
wire_api = "offline"
script = "{json}"

[model_providers.broken]
name = "broken"
wire_api = "offline"
script = "{broken}"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A fresh home; `slow` says a word and hangs, `broken` fails, `json` answers with an object."""
    folder = tmp_path_factory.mktemp("client")
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    slow, broken, answers = folder / "slow.json", folder / "broken.json", folder / "answers.json"
    slow.write_text(json.dumps({"default": [{"say": "thinking", "partial": True}, {"hang": True}]}))
    broken.write_text(json.dumps({"default": [{"fail": "server_error"}]}))
    answers.write_text(json.dumps({"default": [{"say": '{"name": "unspool"}'}]}))
    (home / "config.toml").write_text(CONFIG.format(slow=slow, broken=broken, json=answers))
    return Place(home, work, program_in(folder), {"UNSPOOL_HOME": str(home), "CODEX_HOME": str(folder / "codex")})


@pytest.fixture(scope="module")
def socket(place: Place) -> Iterator[WebSocketDaemon]:
    """A daemon of its own process on a WebSocket."""
    with WebSocketDaemon(place.program, place.env, place.work) as daemon:
        yield daemon
