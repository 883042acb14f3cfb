"""The official Python SDK works unchanged, sync and async (`openai-codex` from PyPI)."""

import pytest

from tests.real_clients.conftest import Place
from tests.real_clients.driving import DRIVERS, Report, drive
from tests.real_clients.packages import PYTHON_SDK, Unavailable, python_with

CHECKS = (
    "sync: initialize metadata",
    "sync: run",
    "sync: stream a turn",
    "sync: every kind of input",
    "sync: external message",
    "sync: overrides of a turn",
    "sync: failed turn",
    "sync: interrupt",
    "sync: steer",
    "sync: name and list",
    "sync: list in pages",
    "sync: read",
    "sync: fork",
    "sync: compact",
    "sync: resume",
    "sync: archive and unarchive",
    "sync: models",
    "sync: account",
    "sync: unknown thread",
    "sync: resume after a restart",
    "sync: retry on overload",
    "async: run",
    "async: stream a turn",
    "async: threads side by side",
    "async: interrupt",
    "async: steer",
    "async: name, list, read",
    "async: fork",
    "async: compact",
    "async: resume",
    "async: archive and unarchive",
    "async: models and account",
)


@pytest.fixture(scope="module")
def report(place: Place) -> Report:
    """What the driver found."""
    try:
        python = python_with(PYTHON_SDK)
    except Unavailable as reason:
        pytest.skip(str(reason))
    driver = str(DRIVERS / "python_sdk.py")
    return drive([str(python), driver, str(place.program), str(place.work)], place.env, place.work)


@pytest.mark.parametrize("name", CHECKS)
def test_the_python_sdk_works_unchanged(report: Report, name: str) -> None:
    report.held(name)


def test_every_check_of_the_driver_is_known(report: Report) -> None:
    assert tuple(report.checks) == CHECKS
