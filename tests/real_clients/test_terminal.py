"""The terminal program of the reference (`codex --remote ws://…`), driven on a screen as a person would."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.real_clients.conftest import Place
from tests.real_clients.daemons import WebSocketDaemon
from tests.real_clients.packages import Unavailable, codex, program
from tests.real_clients.screen import Screen

Open = Callable[..., AbstractContextManager[Screen]]
READY = "Ask Codex to do anything"


@pytest.fixture(scope="module")
def terminal(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Open:
    """Opens the program with further arguments; its own settings trust the folder, so it asks nothing at start."""
    try:
        tmux, binary = program("tmux"), codex()
    except Unavailable as reason:
        pytest.skip(str(reason))
    settings = Path(place.env["CODEX_HOME"])
    settings.mkdir(exist_ok=True)
    trusted = f'[projects."{place.work}"]\ntrust_level = "trusted"\n\n[analytics]\nenabled = false\n'
    (settings / "config.toml").write_text(trusted)

    def opened(*arguments: str) -> Screen:
        socket = tmp_path_factory.mktemp("tmux") / "socket"
        return Screen(tmux, [str(binary), *arguments], place.env, place.work, socket)

    return opened


@pytest.fixture(scope="module")
def slow_socket(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSocketDaemon]:
    """A daemon whose first answer never ends."""
    home = tmp_path_factory.mktemp("slow") / "home"
    home.mkdir()
    script = home / "script.json"
    script.write_text(json.dumps([[{"hang": True}]]))
    (home / "config.toml").write_text(f'[model_providers.offline]\nscript = "{script}"\n')
    with WebSocketDaemon(place.program, {**place.env, "UNSPOOL_HOME": str(home)}, place.work) as daemon:
        yield daemon


def test_a_new_thread_answers_on_the_screen(terminal: Open, socket: WebSocketDaemon) -> None:
    with terminal("--remote", socket.url) as screen:
        screen.shows(READY)
        screen.type("hello there", "Enter")
        screen.shows("› hello there", "• hello there", "Worked for")


def test_a_thread_is_compacted_and_goes_on(terminal: Open, socket: WebSocketDaemon) -> None:
    with terminal("--remote", socket.url) as screen:
        screen.shows(READY)
        screen.type("before it", "Enter")
        screen.shows("• before it")
        screen.type("/compact", "Enter")
        screen.shows("Context compacted")
        screen.type("after it", "Enter")
        screen.shows("• after it")


def test_a_thread_is_forked_with_its_history_on_the_screen(terminal: Open, socket: WebSocketDaemon) -> None:
    with terminal("--remote", socket.url) as screen:
        screen.shows(READY)
        screen.type("in the parent", "Enter")
        screen.shows("• in the parent")
        screen.type("/fork", "Enter")
        screen.shows("Thread forked from", "• in the parent")
        screen.type("in the child", "Enter")
        screen.shows("• in the child")
        screen.type("/status", "Enter")
        screen.shows("Forked from:", "Model provider:      offline")


def test_the_picker_offers_threads_and_resumes_one_with_its_history(terminal: Open, socket: WebSocketDaemon) -> None:
    with terminal("--remote", socket.url) as screen:
        screen.shows(READY)
        screen.type("words to find again", "Enter")
        screen.shows("• words to find again")
    with terminal("resume", "--remote", socket.url) as screen:
        screen.shows("words to find again")
        screen.type("", "Enter")
        screen.shows(READY, "› words to find again", "• words to find again")
        screen.type("and go on", "Enter")
        screen.shows("• and go on")


def test_a_thread_is_resumed_by_its_id_after_a_restart(place: Place, terminal: Open) -> None:
    with WebSocketDaemon(place.program, place.env, place.work) as daemon, terminal("--remote", daemon.url) as screen:
        screen.shows(READY)
        screen.type("before the restart", "Enter")
        screen.shows("• before the restart")
        screen.type("/status", "Enter")
        shown = screen.shows("Session:")
        thread = next(line.split()[-1] for line in shown.splitlines() if "Session:" in line)
    again = WebSocketDaemon(place.program, place.env, place.work)
    with again as daemon, terminal("resume", thread, "--remote", daemon.url) as screen:
        screen.shows(READY, "• before the restart")


def test_escape_interrupts_a_turn_and_the_thread_stays_usable(terminal: Open, slow_socket: WebSocketDaemon) -> None:
    with terminal("--remote", slow_socket.url) as screen:
        screen.shows(READY)
        screen.type("never ends", "Enter")
        screen.shows("esc to interrupt")
        screen.type("", "Escape")
        screen.until(lambda shown: "esc to interrupt" not in shown, "an ended turn")
        screen.type("once more", "Enter")
        screen.shows("• once more")
