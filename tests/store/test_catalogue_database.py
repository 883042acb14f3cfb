"""The catalogue database is a cache: it may vanish, rot or lag, and lists stay right."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from unspool_protocol.log import HistoryMode, Position, ThreadSummary
from unspool_server.store.catalogue import StoreCatalogue
from unspool_server.store.contract import ListQuery, NewRollout
from unspool_server.store.local import LocalStore

from tests.conformance.test_catalogue_listing import summarise
from tests.conformance.threads import new_id, note, notes, thread

FIXTURES = Path(__file__).parents[1] / "fixtures" / "codex"


async def listed(store: LocalStore, catalogue: StoreCatalogue | None = None) -> dict[str, ThreadSummary]:
    """Everything that a catalogue lists, archived or not; without a catalogue, what a scan finds."""
    each = catalogue or StoreCatalogue.local(
        store, summarise, store.home, path=store.home / "session_index.jsonl" / "x"
    )
    found: dict[str, ThreadSummary] = {}
    for archived in (False, True):
        page = await each.list(ListQuery(archived=archived))
        found |= {summary.thread_id: summary for summary in page.items}
    if catalogue is None:
        await each.close()
    return found


async def home_with_threads(home: Path, count: int = 6) -> list[Path]:
    """A home with stored threads; their files."""
    store = LocalStore(home)
    (home / "session_index.jsonl").parent.mkdir(parents=True, exist_ok=True)
    (home / "session_index.jsonl").write_text("")
    paths = []
    for index in range(count):
        log = await thread(store, f"text {index}", "x" * 20_000)
        paths.append(Path(log.info.path or ""))
    await store.close()
    return paths


def database(home: Path) -> Path:
    """Where the catalogue keeps its rows."""
    return home / "unspool" / "catalogue.sqlite"


async def reopened(home: Path) -> tuple[dict[str, ThreadSummary], int]:
    """What a fresh process lists, and how many bytes of logs it read for that."""
    store = LocalStore(home)
    catalogue = StoreCatalogue.local(store, summarise, home)
    found = await listed(store, catalogue)
    await catalogue.close()
    assert found == await listed(LocalStore(home))
    return found, store.stats.bytes_read


async def test_an_up_to_date_database_is_answered_from_alone(tmp_path: Path) -> None:
    await home_with_threads(tmp_path)
    first, cost = await reopened(tmp_path)
    assert len(first) == 6
    assert cost > 120_000
    assert await reopened(tmp_path) == (first, 0)


async def test_only_what_was_appended_is_read_again(tmp_path: Path) -> None:
    paths = await home_with_threads(tmp_path)
    await reopened(tmp_path)
    store = LocalStore(tmp_path)
    [newest] = [info for info in await store.rollouts() if info.path == str(paths[2])]
    log = await store.open(newest.thread_id)
    await log.append(notes("appended"))
    await store.close()
    found, cost = await reopened(tmp_path)
    assert found[newest.thread_id].user_text[-1] == "appended"
    # The header, the line known before and the new one; never the 20 kB in between twice.
    assert cost < 64 * 1024


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + b"\xff" * 5_000])
async def test_a_damaged_database_is_made_anew(tmp_path: Path, content: bytes) -> None:
    await home_with_threads(tmp_path)
    first, _ = await reopened(tmp_path)
    database(tmp_path).write_bytes(content)
    again, cost = await reopened(tmp_path)
    assert again == first
    assert cost > 0
    assert await reopened(tmp_path) == (first, 0)


async def test_a_database_damaged_in_the_middle_is_made_anew(tmp_path: Path) -> None:
    await home_with_threads(tmp_path, 40)
    first, _ = await reopened(tmp_path)
    content = bytearray(database(tmp_path).read_bytes())
    content[4_096 : len(content) - 4_096] = b"\x5a" * (len(content) - 8_192)
    database(tmp_path).write_bytes(content)
    assert (await reopened(tmp_path))[0] == first


async def test_a_deleted_database_comes_back_the_same(tmp_path: Path) -> None:
    await home_with_threads(tmp_path)
    first, _ = await reopened(tmp_path)
    database(tmp_path).unlink()
    assert (await reopened(tmp_path))[0] == first
    assert database(tmp_path).exists()


async def test_a_database_of_another_version_is_made_anew(tmp_path: Path) -> None:
    await home_with_threads(tmp_path)
    first, _ = await reopened(tmp_path)
    connection = sqlite3.connect(database(tmp_path))
    connection.execute("PRAGMA user_version=99")
    connection.close()
    assert (await reopened(tmp_path))[0] == first


async def test_rows_that_no_longer_decode_are_made_anew_while_running(tmp_path: Path) -> None:
    await home_with_threads(tmp_path)
    store = LocalStore(tmp_path)
    catalogue = StoreCatalogue.local(store, summarise, tmp_path)
    first = await listed(store, catalogue)
    connection = sqlite3.connect(database(tmp_path))
    connection.execute("UPDATE threads SET summary = '{}'")
    connection.commit()
    connection.close()
    assert await listed(store, catalogue) == first
    await catalogue.close()


@pytest.mark.parametrize("edit", ["cut", "swap", "grow", "empty", "remove", "other content"])
async def test_a_log_changed_behind_the_database_is_read_again(tmp_path: Path, edit: str) -> None:
    paths = await home_with_threads(tmp_path)
    before, _ = await reopened(tmp_path)
    path, content = paths[1], paths[1].read_bytes()
    if edit == "cut":
        path.write_bytes(content.split(b"\n")[0] + b"\n")
    elif edit == "swap":
        path.write_bytes(content.replace(b"text 1", b"TEXT 9"))
    elif edit == "grow":
        path.write_bytes(content + b'{"type":"event_msg","payload":{"text":"foreign"}}\n{"torn')
    elif edit == "empty":
        path.write_bytes(b"")
    elif edit == "remove":
        path.unlink()
    else:
        path.write_bytes(content.replace(b"text 1", b"a much longer text") + content.split(b"\n")[1] + b"\n")
    after, cost = await reopened(tmp_path)
    assert len(after) == (5 if edit in ("empty", "remove") else 6)
    assert after != before
    assert cost < 100_000
    assert await reopened(tmp_path) == (after, 0)


async def test_many_lists_at_once_read_each_log_once(tmp_path: Path) -> None:
    await home_with_threads(tmp_path)
    _, cost = await reopened(tmp_path)
    database(tmp_path).unlink()
    store = LocalStore(tmp_path)
    catalogue = StoreCatalogue.local(store, summarise, tmp_path)
    pages = await asyncio.gather(*(catalogue.list(ListQuery()) for _ in range(8)))
    assert all(page == pages[0] for page in pages)
    assert store.stats.bytes_read == cost
    await catalogue.close()


async def test_names_given_by_codex_are_read_and_ours_are_given_to_it(tmp_path: Path) -> None:
    await home_with_threads(tmp_path, 2)
    store = LocalStore(tmp_path)
    one, two = [info.thread_id for info in await store.rollouts()]
    index = tmp_path / "session_index.jsonl"
    index.write_text(
        f'{{"id":"{one}","thread_name":"first","updated_at":"2026-01-01T00:00:00Z"}}\n'
        "garbage\n[]\n"
        f'{{"id":"{one}","thread_name":"second","updated_at":"2026-01-02T00:00:00Z"}}\n'
        '{"id":"torn'
    )
    catalogue = StoreCatalogue.local(store, summarise, tmp_path)
    assert {key: value.name for key, value in (await listed(store, catalogue)).items()} == {one: "second", two: None}
    await catalogue.set_name(two, "ours")
    assert {key: value.name for key, value in (await listed(store, catalogue)).items()} == {one: "second", two: "ours"}
    last = index.read_text().splitlines()[-1]
    assert last.startswith(f'{{"id":"{two}","thread_name":"ours","updated_at":"')
    await catalogue.close()


async def test_a_fork_is_summarised_with_what_it_inherits(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    parent = await thread(store, "a", "b")
    parent_id, child_id = parent.info.thread_id, new_id()
    child = NewRollout(child_id, child_id, HistoryMode.PAGINATED, {"id": child_id, "forked_from_id": parent_id})
    await store.branch(child, Position(parent_id, 2), [note("c")])
    await parent.append(notes("late"))
    catalogue = StoreCatalogue.local(store, summarise, tmp_path)
    found = await catalogue.get(child_id)
    assert found is not None and found.user_text == ("a", "c")
    await catalogue.close()
    await store.close()


async def test_the_real_summaries_of_codex_homes_are_alike_with_and_without_database(tmp_path: Path) -> None:
    from unspool_server.history.summary import summarise as real

    for scenario in ("fork_settings", "revert_compact", "name_archive", "legacy_fork", "v098_compact_twice"):
        store = LocalStore(FIXTURES / scenario)
        kept = StoreCatalogue(store, real, path=tmp_path / f"{scenario}.sqlite")
        plain = StoreCatalogue(store, real)
        for archived in (False, True):
            query = ListQuery(archived=archived)
            assert await kept.list(query) == await plain.list(query)
        assert (await listed(store, kept)).keys() == {info.thread_id for info in await store.rollouts()}
        await kept.close()
