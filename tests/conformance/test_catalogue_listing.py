"""Catalogues answer alike on every backend, with a database or without one (DESIGN §7)."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from unspool_protocol.log import HistoryMode, NewRecord, Position, Record, ThreadSummary
from unspool_server.errors import InvalidParams
from unspool_server.store.catalogue import StoreCatalogue
from unspool_server.store.contract import ListQuery, Log, NewRollout, RolloutInfo
from unspool_server.store.local import LocalStore
from unspool_server.store.memory import MemoryStore
from unspool_server.store.rollouts import RolloutStore

from tests.conformance.threads import header, new_id, note, notes


def summarise(summary: ThreadSummary | None, info: RolloutInfo, records: Iterable[Record]) -> ThreadSummary:
    """A plain summary: the first note is the preview, all are searched, a `clock` record sets the time."""
    if summary is None:
        assert info.header is not None
        payload = info.header.payload
        summary = ThreadSummary(
            info.thread_id,
            info.rollout_id,
            info.mode,
            cwd=str(payload.get("cwd", "")),
            model_provider=str(payload.get("model_provider", "")),
            source=payload.get("source", "unknown"),
            created_at=float(payload.get("created", 0)),
        )
    for record in records:
        if text := record.payload.get("text"):
            summary = replace(summary, preview=summary.preview or text, user_text=(*summary.user_text, text))
        summary = replace(summary, updated_at=float(record.payload.get("clock", summary.updated_at)))
    return replace(summary, rollout_id=info.rollout_id)


class Setting:
    """A store and catalogues over it."""

    def __init__(self, kind: str, home: Path, stack: AsyncExitStack) -> None:
        self.kind, self.home, self.stack = kind, home, stack
        self.store: RolloutStore = MemoryStore() if kind == "memory" else LocalStore(home)
        self.logs: dict[str, Log] = {}
        stack.push_async_callback(self.store.close)

    def open(self) -> StoreCatalogue:
        """A catalogue: rows in memory, in a database, or scanned afresh where no database can be."""
        if self.kind == "memory":
            catalogue = StoreCatalogue(self.store, summarise)
        elif self.kind == "database":
            catalogue = StoreCatalogue.local(self.store, summarise, self.home)
        else:
            blocked = self.home / "blocked"
            self.home.mkdir(exist_ok=True)
            blocked.touch()
            catalogue = StoreCatalogue.local(self.store, summarise, self.home, path=blocked / "catalogue.sqlite")
        self.stack.push_async_callback(catalogue.close)
        return catalogue

    async def thread(self, created: int, *texts: str, **payload: object) -> str:
        """A stored thread created at this second."""
        thread_id = new_id()
        given = {"id": thread_id, "created": created, "cwd": "/ws", "model_provider": "p", "source": "cli", **payload}
        log = await self.store.create(NewRollout(thread_id, thread_id, HistoryMode.PAGINATED, given))
        await log.add([*notes(*texts), NewRecord("event_msg", {"clock": created})])
        await log.persist()
        self.logs[thread_id] = log
        return thread_id


@pytest_asyncio.fixture(params=["memory", "database", "scan"])
async def setting(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Setting]:
    """Every kind of catalogue."""
    async with AsyncExitStack() as stack:
        yield Setting(request.param, tmp_path / "home", stack)


async def ids(catalogue: StoreCatalogue, query: ListQuery | None = None) -> list[str]:
    """The ids of one page."""
    return [summary.thread_id for summary in (await catalogue.list(query or ListQuery())).items]


async def test_threads_are_listed_newest_first_and_once_each(setting: Setting) -> None:
    catalogue = setting.open()
    assert await ids(catalogue) == []
    made = [await setting.thread(second, f"t{second}") for second in (3, 1, 2)]
    assert await ids(catalogue) == [made[0], made[2], made[1]]
    assert await ids(catalogue, ListQuery(descending=False)) == [made[1], made[2], made[0]]
    log = setting.logs[made[1]]
    rollout = new_id()
    branch = NewRollout(made[1], rollout, HistoryMode.PAGINATED, {"id": made[1], "created": 1})
    newer = await setting.store.branch(branch, Position(made[1], 2), [note("again")], replaces=log)
    await newer.append([NewRecord("event_msg", {"clock": 9})])
    assert sorted(await ids(catalogue)) == sorted(made)
    found = await catalogue.get(made[1])
    assert found is not None
    assert (found.rollout_id, found.user_text, found.updated_at) == (rollout, ("t1", "again"), 9.0)
    assert (await ids(catalogue, ListQuery(sort_key="updated_at")))[0] == made[1]


async def test_deferred_threads_are_not_listed(setting: Setting) -> None:
    catalogue = setting.open()
    log = await setting.store.create(header(new_id()))
    assert await ids(catalogue) == []
    assert await catalogue.get(log.info.thread_id) is None


async def test_archiving_and_deleting_show_at_once(setting: Setting) -> None:
    catalogue = setting.open()
    one, two = await setting.thread(1, "a"), await setting.thread(2, "b")
    await setting.store.close()
    assert await ids(catalogue) == [two, one]
    await setting.store.archive(one)
    assert await ids(catalogue) == [two]
    assert await ids(catalogue, ListQuery(archived=True)) == [one]
    found = await catalogue.get(one)
    assert found is not None and found.archived
    await setting.store.unarchive(one)
    await setting.store.delete(two)
    assert await ids(catalogue) == [one]
    assert await catalogue.get(two) is None


async def test_pages_follow_each_other_while_threads_are_added(setting: Setting) -> None:
    catalogue = setting.open()
    made = [await setting.thread(100 + index // 2, str(index)) for index in range(10)]
    whole = await ids(catalogue)
    assert sorted(whole) == sorted(made)
    seen: list[str] = []
    cursor = None
    while True:
        page = await catalogue.list(ListQuery(limit=3, cursor=cursor))
        seen += [summary.thread_id for summary in page.items]
        await setting.thread(500 + len(seen), "newer")
        await setting.thread(1, "older") if not seen else None
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == whole


async def test_a_backwards_cursor_starts_the_other_way_from_the_first_item(setting: Setting) -> None:
    catalogue = setting.open()
    made = [await setting.thread(index, str(index)) for index in range(6)]
    first = await catalogue.list(ListQuery(limit=2))
    second = await catalogue.list(ListQuery(limit=2, cursor=first.next_cursor))
    assert [summary.thread_id for summary in second.items] == [made[3], made[2]]
    assert await ids(catalogue, ListQuery(cursor=second.backwards_cursor, descending=False)) == made[3:]
    assert (await catalogue.list(ListQuery(limit=0))).items == []


@pytest.mark.parametrize("cursor", ["", "x", "!!!", "AAAA", "bnVsbA", "WzEsMl0", "ünï", "W10"])
async def test_a_cursor_of_another_making_is_refused(setting: Setting, cursor: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        await setting.open().list(ListQuery(cursor=cursor))
    assert str(caught.value) == f"invalid cursor: {cursor}"


async def test_a_cursor_belongs_to_its_sort_key(setting: Setting) -> None:
    catalogue = setting.open()
    for second in (1, 2):
        await setting.thread(second, "x")
    page = await catalogue.list(ListQuery(limit=1))
    with pytest.raises(InvalidParams):
        await catalogue.list(ListQuery(cursor=page.next_cursor, sort_key="updated_at"))


async def test_filters_narrow_and_nothing_is_filtered_unasked(setting: Setting) -> None:
    catalogue = setting.open()
    plain = await setting.thread(1, "a")
    other = await setting.thread(2, "b", model_provider="q", cwd="/else", source={"subAgent": "review"})
    odd = await setting.thread(3)
    assert await ids(catalogue) == [odd, other, plain]
    assert await ids(catalogue, ListQuery(model_providers=["q"])) == [other]
    assert await ids(catalogue, ListQuery(model_providers=[])) == []
    assert await ids(catalogue, ListQuery(cwd=["/ws"])) == [odd, plain]
    assert await ids(catalogue, ListQuery(source_kinds=["subAgent"])) == [other]
    assert await ids(catalogue, ListQuery(source_kinds=["cli"], cwd=["/ws"], limit=1)) == [odd]


@pytest.mark.parametrize(
    ("search", "hits"),
    [
        ("needle", [1]),
        ("NEEDLE in", [1]),
        ("ee", [2, 1]),
        ("ß", [2]),
        ("STRASSE", [2]),
        ('a"b', [3]),
        ("OR", [2]),
        ("*", []),
        ("100%", [3]),
        ("漢字", [3]),
        ("漢字😀", [3]),
        ("nothing", []),
        ("", [3, 2, 1]),
    ],
)
async def test_search_finds_text_anywhere_in_a_thread(setting: Setting, search: str, hits: list[int]) -> None:
    catalogue = setting.open()
    made = {
        1: await setting.thread(1, "first", "a needle in the hay"),
        2: await setting.thread(2, "Große Straße for trees"),
        3: await setting.thread(3, 'a"b 100% 漢字😀'),
    }
    assert await ids(catalogue, ListQuery(search=search)) == [made[hit] for hit in hits]


async def test_names_are_kept_listed_and_searched(setting: Setting) -> None:
    catalogue = setting.open()
    thread_id = await setting.thread(1, "a")
    await setting.thread(2, "b")
    await catalogue.set_name(thread_id, "old name")
    await catalogue.set_name(thread_id, "My Naïve Name")
    [found] = (await catalogue.list(ListQuery(search="naïve name"))).items
    assert (found.thread_id, found.name) == (thread_id, "My Naïve Name")
    assert await ids(catalogue, ListQuery(search="old name")) == []


async def test_a_summary_grows_with_its_log_and_equals_one_made_afresh(setting: Setting) -> None:
    catalogue = setting.open()
    thread_id = await setting.thread(1, "a")
    log = setting.logs[thread_id]
    for index in range(5):
        await log.append([note(f"n{index}"), NewRecord("event_msg", {"clock": index})])
        grown = await catalogue.get(thread_id)
        assert grown is not None
        assert grown.user_text == ("a", *(f"n{each}" for each in range(index + 1)))
        assert grown.updated_at == index
        assert await StoreCatalogue(setting.store, summarise).get(thread_id) == grown
