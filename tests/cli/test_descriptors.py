"""The daemon allows itself as many open files and sockets as it may have."""

import resource
import subprocess
import sys

import pytest
from unspool_server.cli import descriptors

SHOW = (
    "import resource; from unspool_server.cli.descriptors import allow_many_descriptors as allow; allow(); "
    "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
)


@pytest.mark.parametrize(("soft", "hard", "after"), [(64, 512, 512), (512, 512, 512)])
def test_the_soft_limit_of_descriptors_is_raised_to_the_hard_one(soft: int, hard: int, after: int) -> None:
    shown = subprocess.run(
        ["/bin/sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$0" -c "$1"', sys.executable, SHOW],
        capture_output=True,
        check=True,
    ).stdout
    assert shown.split() == [str(after).encode(), str(hard).encode()]


def test_a_limit_without_bounds_is_not_taken_up_and_none_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: asked.append(limits))
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 1_000_000_000))
    descriptors.allow_many_descriptors()
    monkeypatch.setattr(resource, "getrlimit", lambda what: (100_000, 1_000_000_000))
    descriptors.allow_many_descriptors()
    assert asked == [(descriptors.MOST, 1_000_000_000)]
