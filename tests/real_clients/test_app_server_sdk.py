"""The community SDK `codex-app-server-sdk` (PyPI) works unchanged over stdio and WebSocket."""

import pytest

from tests.real_clients.conftest import Place
from tests.real_clients.daemons import WebSocketDaemon
from tests.real_clients.driving import DRIVERS, Report, drive
from tests.real_clients.packages import APP_SERVER_SDK, Unavailable, python_with

STEPS = (
    "one message",
    "steps of a turn",
    "overrides of a turn",
    "read",
    "name and list",
    "fork",
    "rollback",
    "compact",
    "resume",
    "archive and unarchive",
    "cancel a turn",
    "failed turn",
    "models and configuration",
)
CHECKS = tuple(f"{kind}: {step}" for kind in ("stdio", "websocket") for step in STEPS)


@pytest.fixture(scope="module")
def report(place: Place, socket: WebSocketDaemon) -> Report:
    """What the driver found."""
    try:
        python = python_with(APP_SERVER_SDK, at_least=(3, 12))
    except Unavailable as reason:
        pytest.skip(str(reason))
    driver = str(DRIVERS / "app_server_sdk.py")
    command = [str(python), driver, str(place.program), str(place.work), socket.url]
    return drive(command, place.env, place.work)


@pytest.mark.parametrize("name", CHECKS)
def test_the_community_sdk_works_unchanged(report: Report, name: str) -> None:
    report.held(name)


def test_every_check_of_the_driver_is_known(report: Report) -> None:
    assert tuple(report.checks) == CHECKS
