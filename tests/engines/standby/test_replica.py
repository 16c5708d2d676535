"""The local copy of a store, brought up to what the database has."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everkept.core.ports import RecordStore, RecordVector
from everkept.core.records import Delete, Insert, Restore, Step, Update
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.standby.failover import ReplicaBusy
from everkept.engines.standby.replica import (
    LostChanges,
    ReplicaBookmark,
    ReplicaMark,
    StoreReplication,
    copy_vectors,
    decode_mark,
)
from everkept.errors import Conflict
from everkept.values import replace
from examples import examples
from records import DAY_ONE, batch, entity, link, link_ref, note, record_ref
from store_copies import axis, everything

PAGE = 3


class Copied:
    """A store, its copy, and what may come in between."""

    def __init__(self, there: RecordStore, here: RecordStore) -> None:
        self.there = there
        self.here = here
        self.text: str | None = None
        self.replaced = 0
        self.left: int | None = None  # how often it may be written before somebody disturbs
        self.puts = 0

    async def catch_up(self) -> None:
        bookmark = ReplicaBookmark(self._load, self._save, self._replaced)
        await StoreReplication(self.there, self.here, bookmark, self.undisturbed, page=PAGE).catch_up()

    async def _load(self) -> str | None:
        return self.text

    async def _save(self, text: str) -> None:
        self.text = text

    async def _replaced(self) -> None:
        self.replaced += 1

    @asynccontextmanager
    async def undisturbed(self) -> AsyncGenerator[None, None]:
        self.puts += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise ReplicaBusy
        yield

    async def is_same(self) -> bool:
        return await contents(self.there) == await contents(self.here)


async def contents(store: RecordStore) -> dict[str, Any]:
    """All but the order of age: what was stored here first may have come later there."""
    found = await everything(store)
    by_age = {"records", "newest", "live", "links", "in", "out", "names", "children", "tagged"}
    for name in by_age | {"pinned"}:
        found[name] = sorted(found[name], key=repr)
    return found


@pytest.fixture
async def copied(tmp_path: Path) -> Any:
    library = SqliteLibrary(tmp_path)
    yield Copied(MemoryStore(lambda: DAY_ONE), await library.open_user_store())
    await library.close()


async def test_an_empty_copy_becomes_all_that_there_is(copied: Copied) -> None:
    for number in range(8):
        await copied.there.commit(batch(entity(f"e{number}"), note(f"e{number}", f"n{number}")))
    await copied.there.commit(batch(link("e1", "knows", "e2"), Delete(record_ref("e3"))))
    await copied.catch_up()
    assert await copied.is_same()


async def test_what_changed_since_is_all_that_is_read(copied: Copied) -> None:
    for number in range(8):
        await copied.there.commit(batch(entity(f"e{number}")))
    await copied.catch_up()
    before = copied.puts
    await copied.there.commit(batch(note("e1", "new"), at=DAY_ONE + 1))
    await copied.catch_up()
    assert await copied.is_same()
    assert copied.puts - before == 2  # a look at what is here, and one thing written


async def test_nothing_is_written_where_nothing_changed(copied: Copied) -> None:
    await copied.there.commit(batch(entity("Ada")))
    await copied.catch_up()
    before = copied.puts
    await copied.catch_up()
    assert copied.puts == before


async def test_what_only_the_copy_has_goes(copied: Copied) -> None:
    await copied.there.commit(batch(entity("Ada")))
    await copied.catch_up()
    await copied.here.commit(batch(entity("Bob"), note("Ada", "never arrived"), at=DAY_ONE + 5))
    await copied.here.commit(batch(Update("Ada", {"text": "other"}, 1)))
    await copied.catch_up()
    assert await copied.is_same()
    assert copied.replaced


async def test_what_was_removed_for_good_goes_here_too(copied: Copied) -> None:
    for name in ("Ada", "Bob", "Cy", "Di"):
        await copied.there.commit(batch(entity(name)))
    await copied.catch_up()
    await copied.there.purge([record_ref("Bob")])
    await copied.catch_up()
    assert await copied.is_same()


async def test_what_was_rewritten_for_good_is_so_here_too(copied: Copied) -> None:
    for name in ("Ada", "Bob", "Cy", "Di"):
        await copied.there.commit(batch(entity(name, text="a secret")))
    await copied.there.commit(batch(Update("Ada", {"text": "b"}, 1)))
    await copied.catch_up()
    await copied.there.redact([record_ref("Ada")], lambda _, values: {**values, "text": "redacted"})
    await copied.catch_up()
    assert await copied.is_same()


async def test_names_may_have_been_traded(copied: Copied) -> None:
    for name in ("a", "b", "c", "d", "e", "f", "g", "h"):
        await copied.there.commit(batch(entity(name)))
    await copied.catch_up()
    store = copied.there
    await store.commit(batch(Update("a", {"name_key": "x"}, 1)))
    for name, taken in zip("bcdefgh", "abcdefg", strict=True):
        await store.commit(batch(Update(name, {"name_key": taken}, 1)))
    await store.commit(batch(Update("a", {"name_key": "h"}, 2)))
    await copied.catch_up()
    assert await copied.is_same()


async def test_another_database_in_its_place_is_not_followed(copied: Copied) -> None:
    for name in ("Ada", "Bob", "Cy"):
        await copied.there.commit(batch(entity(name)))
    await copied.catch_up()
    mark, seen = copied.text, await copied.here.read_changes()
    for count in (0, 1, 4):
        copied.there = MemoryStore()
        for name in ("Di", "Ada", "Ed", "Flo")[:count]:
            await copied.there.commit(batch(entity(name), at=DAY_ONE + 7))
        with pytest.raises(LostChanges) as caught:
            await copied.catch_up()
        assert caught.value.mark == decode_mark(mark)
        assert (copied.text, await copied.here.read_changes()) == (mark, seen)
    copied.text = None  # whoever has kept the copy elsewhere begins anew
    await copied.catch_up()
    assert await copied.is_same()


async def test_who_reads_the_newest_change_before_another_comes_further_finds_nothing_lost(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Ada", "Bob"):
        await copied.there.commit(batch(entity(name)))
    await copied.catch_up()
    revisions = iter([1])
    ask = copied.there.get_revision

    async def revision() -> int:
        return next(revisions, None) or await ask()

    monkeypatch.setattr(copied.there, "get_revision", revision)
    await copied.catch_up()
    assert await copied.is_same()


async def test_a_mark_that_cannot_be_read_begins_anew(copied: Copied) -> None:
    await copied.there.commit(batch(entity("Ada")))
    await copied.catch_up()
    for text in ("nonsense", "[]", '{"seq": 1, "stage": "dancing"}', '{"other": 1}'):
        copied.text = text
        await copied.catch_up()
        assert decode_mark(copied.text) == ReplicaMark(1)
        assert await copied.is_same()


async def test_vectors_follow_their_records(copied: Copied) -> None:
    await copied.there.commit(batch(entity("Ada", text="red"), entity("Bob", text="blue")))
    await copied.catch_up()
    await copied.there.put_vectors("one", [RecordVector("Ada", 1, axis(1))])
    await copy_vectors(copied.there, copied.here, "one", ("entity",), copied.undisturbed)
    assert list(await copied.here.get_vectors("one", ["Ada", "Bob"])) == ["Ada"]
    await copied.there.commit(batch(Update("Ada", {"text": "green"}, 1)))
    await copied.there.put_vectors("one", [RecordVector("Ada", 2, axis(2))])
    await copied.catch_up()
    await copy_vectors(copied.there, copied.here, "one", ("entity",), copied.undisturbed)
    assert list((await copied.here.get_vectors("one", ["Ada"]))["Ada"]) == list(axis(2))


IDS = [f"r{number}" for number in range(7)]
ITEMS = st.sampled_from(IDS)


@st.composite
def a_step(draw: st.DrawFn) -> tuple[str, str, str, str]:
    kinds = ["insert", "insert", "child", "update", "rename", "delete", "restore", "link"]
    return draw(st.sampled_from(kinds)), draw(ITEMS), draw(ITEMS), draw(st.sampled_from("abc"))


ACTIONS = st.one_of(
    st.tuples(st.just("there"), st.lists(a_step(), min_size=1, max_size=3)),
    st.tuples(st.just("here"), st.lists(a_step(), min_size=1, max_size=2)),
    st.tuples(st.just("purge"), ITEMS),
    st.tuples(st.just("catch up"), st.none() | st.integers(0, 6)),
)


async def as_step(store: RecordStore, drawn: tuple[str, str, str, str]) -> Step:
    kind, item, other, name = drawn
    known = {record.id: record for record in await store.get([item], include_deleted=True)}
    version = known[item].version if item in known else 1
    match kind:
        case "insert":
            return Insert(entity(item, name_key=name))
        case "child":
            return Insert(note(other, item, name_key=None))
        case "update":
            return Update(item, {"text": name}, version)
        case "rename":
            return Update(item, {"name": name, "name_key": name}, version)
        case "link":
            return Insert(link(item, name, other))
        case "delete":
            return Delete(link_ref(f"{item} {name} {other}") if name == "c" else record_ref(item))
        case _:
            return Restore(record_ref(item))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=st.lists(ACTIONS, min_size=4, max_size=25))
def test_whatever_happens_the_copy_becomes_what_there_is(actions: list[tuple[str, Any]]) -> None:
    async def play(folder: Path) -> None:
        library = SqliteLibrary(folder)
        copied = Copied(MemoryStore(lambda: DAY_ONE), await library.open_user_store())
        at = DAY_ONE
        for name, drawn in actions:
            at += 1
            if name == "purge":
                await copied.there.purge([record_ref(drawn)])
            elif name == "catch up":
                copied.left = drawn
                try:
                    await copied.catch_up()
                except ReplicaBusy:
                    continue
                assert await copied.is_same()
            else:
                store = copied.there if name == "there" else copied.here
                steps = [await as_step(store, each) for each in drawn]
                try:
                    await store.commit(replace(batch(*steps), at=at))
                except Conflict:
                    continue
        copied.left = None
        await copied.catch_up()
        assert await copied.is_same()
        await library.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))
