"""Clients from npm work unchanged: the official TypeScript SDK, and the AI SDK's provider in app-server mode.

Drivers are copied beside the packages, since Node looks for those where a module lies.
"""

import shutil
from pathlib import Path

import pytest

from tests.real_clients.conftest import Place
from tests.real_clients.driving import DRIVERS, Report, drive
from tests.real_clients.packages import AI_SDK, TYPESCRIPT_SDK, Unavailable, node_with, program

TYPESCRIPT_CHECKS = (
    "run",
    "run again on the same thread",
    "streamed events",
    "resume by id",
    "structured output",
    "a picture",
    "every option of a thread",
    "configuration of the client",
    "a failed turn is thrown",
    "an aborted turn",
    "an unknown thread is refused",
)
AI_CHECKS = (
    "one text",
    "streamed text",
    "system instructions and earlier messages",
    "a persistent thread",
    "a thread is continued",
    "an object",
    "a picture",
    "an aborted stream",
    "texts side by side",
    "models",
    "a thread is resumed by another process",
)


def run_node(place: Place, script: str, *packages: str) -> Report:
    """What a driver found; skips where Node or the packages cannot be had."""
    try:
        node, folder = program("node"), node_with(*packages)
    except Unavailable as reason:
        pytest.skip(str(reason))
    for name in ("checks.mjs", script):
        shutil.copy(DRIVERS / name, folder / name)
    command = [node, str(folder / script), str(place.program), str(place.work)]
    return drive(command, place.env, Path(place.work))


@pytest.fixture(scope="module")
def typescript(place: Place) -> Report:
    """What the TypeScript SDK's driver found."""
    return run_node(place, "typescript_sdk.mjs", TYPESCRIPT_SDK)


@pytest.fixture(scope="module")
def ai(place: Place) -> Report:
    """What the AI SDK's driver found."""
    return run_node(place, "ai_sdk.mjs", *AI_SDK)


@pytest.mark.parametrize("name", TYPESCRIPT_CHECKS)
def test_the_typescript_sdk_works_unchanged(typescript: Report, name: str) -> None:
    typescript.held(name)


@pytest.mark.parametrize("name", AI_CHECKS)
def test_the_ai_sdk_provider_works_unchanged(ai: Report, name: str) -> None:
    ai.held(name)


def test_every_check_of_the_drivers_is_known(typescript: Report, ai: Report) -> None:
    assert (tuple(typescript.checks), tuple(ai.checks)) == (TYPESCRIPT_CHECKS, AI_CHECKS)
