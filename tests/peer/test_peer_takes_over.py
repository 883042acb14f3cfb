"""A log written by one server is resumed by the other, and the model is sent the very same input."""

from collections.abc import Callable

import pytest

from tests.peer.codex_peer import Json, PeerHome, Who, next_input, texts
from tests.peer.operations import BY_BOTH, BY_CODEX, BY_OURS, READ_DIFFERENTLY, Operation

Homes = Callable[[str], PeerHome]


def name(operation: object) -> str:
    return str(getattr(operation, "__name__", operation))


def written(home: PeerHome, who: Who, operation: Operation) -> str:
    server = home.open(who)
    try:
        return operation(home, server, who)
    finally:
        if server.process.poll() is None:
            server.close()


def resumed_by_both(home: PeerHome, thread_id: str) -> None:
    """Both read the same bytes; neither changes what was there; the input is equal."""
    by_ours, by_codex = home.copy("read-by-ours"), home.copy("read-by-codex")
    try:
        ours, theirs = next_input(by_ours, "ours", thread_id), next_input(by_codex, "codex", thread_id)
        assert texts(ours) == texts(theirs)
        assert ours == theirs
        assert by_codex.complaints() == []
        for reader in (by_ours, by_codex):
            after = reader.logs()
            for path, content in home.logs().items():
                assert after[path].startswith(content)
    finally:
        by_ours.done()
        by_codex.done()


@pytest.mark.parametrize("operation", [*BY_BOTH, *BY_OURS], ids=name)
def test_codex_resumes_what_we_wrote_with_the_input_that_we_would_send(homes: Homes, operation: Operation) -> None:
    home = homes("written-by-ours")

    resumed_by_both(home, written(home, "ours", operation))


@pytest.mark.parametrize("operation", [*BY_BOTH, *BY_CODEX], ids=name)
def test_we_resume_what_codex_wrote_with_the_input_that_it_would_send(homes: Homes, operation: Operation) -> None:
    home = homes("written-by-codex")

    resumed_by_both(home, written(home, "codex", operation))


def test_a_legacy_rollback_behind_a_compaction_brings_the_history_back_here_and_not_in_codex(homes: Homes) -> None:
    """The marker of a legacy log names turns only. Codex stops reading at a complete compaction and drops messages of
    its replacement; here the compaction is undone with the turns around it, which is what was asked for (03 §9.2).
    """
    home = homes("written-by-ours")
    thread_id = written(home, "ours", READ_DIFFERENTLY)
    by_ours, by_codex = home.copy("read-by-ours"), home.copy("read-by-codex")
    try:
        ours, theirs = next_input(by_ours, "ours", thread_id), next_input(by_codex, "codex", thread_id)
    finally:
        by_ours.done()
        by_codex.done()

    assert said(ours) == ["user: one", "assistant: ok 1", "user: two", "assistant: ok 2", "user: what next"]
    assert said(theirs) == ["user: one", "user: two", "user: three", "user: what next"]
    assert by_codex.complaints() == []


def said(items: list[Json]) -> list[str]:
    return [text for text in texts(items) if not text.startswith(("developer:", "user: <"))]
