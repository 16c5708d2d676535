"""A store that several servers share: each in its turn, and whatever happens to one of them."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from math import inf, nan
from typing import Any

import numpy as np
import psycopg
import pytest

from everkept.core.answers import Hops
from everkept.core.ports import RecordVector
from everkept.core.records import Change, Delete, Record, RecordFilter, Update, Weights
from everkept.engines.postgres.indexes import IndexedVectors, build_vector_index
from everkept.engines.postgres.store import PostgresStore
from everkept.errors import Conflict, InvalidInput, NotFound, ProjectArchived, StoreUnreachable
from everkept.language.words import AllOf, AnyOf, Without, WordPhrase, WordQuery
from postgres_libraries import Shelf
from postgres_server import shared
from records import DAY_ONE, batch, entity, link, memory, note, record_ref
from upstreams import until

SECRET = "hunter2"


async def test_each_of_two_servers_sees_the_others_commits_at_once(shelf: Shelf) -> None:
    one, two = [await shelf.library().open_user_store() for _ in range(2)]
    for number in range(5):
        for writer, reader in ((one, two), (two, one)):
            before = await reader.get_stamp()
            change = await writer.commit(batch(memory(f"{id(writer)} {number}")))
            assert await reader.get_revision() == change.seq
            assert await reader.get_stamp() != before
            assert [r.id for r in await reader.get([f"{id(writer)} {number}"])]
    assert await one.scan(RecordFilter()) == await two.scan(RecordFilter())


async def test_many_who_commit_at_once_get_numbers_without_gaps_and_lose_nothing(shelf: Shelf) -> None:
    writers = [await shelf.library().open_user_store() for _ in range(4)] * 2
    await writers[0].commit(batch(entity("all")))

    async def write(number: int, store: PostgresStore) -> list[Change]:
        return [await store.commit(batch(note("all", f"{number}.{n}"))) for n in range(10)]

    made = await asyncio.gather(*(write(n, store) for n, store in enumerate(writers)))
    numbers = sorted(change.seq for changes in made for change in changes)
    assert numbers == list(range(2, 82))
    for changes in made:
        assert [c.seq for c in changes] == sorted(c.seq for c in changes)
    store = writers[0]
    assert len(await store.scan(RecordFilter(kinds=("observation",)))) == 80
    log = await store.read_changes(limit=1_000)
    assert [change.seq for change in log] == list(range(1, 82))
    assert {c.seq: c for c in log} | {c.seq: c for each in made for c in each} == {c.seq: c for c in log}
    assert await store.find_faults() == []


async def test_of_many_who_take_one_name_at_once_one_gets_it(shelf: Shelf) -> None:
    writers = [await shelf.library().open_user_store() for _ in range(3)] * 2

    async def take(number: int, store: PostgresStore) -> bool:
        try:
            await store.commit(batch(entity("Ada", id=f"ada {number}")))
        except Conflict:
            return False
        return True

    taken = await asyncio.gather(*(take(n, store) for n, store in enumerate(writers)))
    assert taken.count(True) == 1
    assert len(await writers[0].scan(RecordFilter())) == 1


async def test_stores_do_not_wait_for_each_other(shelf: Shelf) -> None:
    library = shelf.library()
    user, history = await library.open_user_store(), await library.open_history_store()
    with taken_turn(shelf, "user"):
        waiting = asyncio.create_task(user.commit(batch(memory("later"))))
        assert (await history.commit(batch(memory("now")))).seq == 1
        assert not waiting.done()
        # Nor does who reads, or counts what was given out.
        assert await user.scan(RecordFilter()) == []
        await user.note_accesses({"nothing": 1}, DAY_ONE)
    assert (await waiting).seq == 1


async def test_a_commit_whose_backend_is_killed_is_away_and_leaves_nothing(shelf: Shelf) -> None:
    store = await shelf.library().open_user_store()
    said = batch(memory("once"), key="once")
    with taken_turn(shelf, "user") as ours:
        lost = asyncio.create_task(store.commit(said))
        waiting = await whoever_waits_for(ours)
        with shared().connect() as other:
            other.execute("SELECT pg_terminate_backend(%s)", (waiting,))
        with pytest.raises(StoreUnreachable):
            await lost
    assert await store.get_revision() == 0
    assert await store.scan(RecordFilter(deleted=None)) == []
    assert (await store.commit(said)).seq == 1
    assert (await store.commit(said)).seq == 1
    assert [record.id for record in await store.scan(RecordFilter())] == ["once"]


async def test_what_was_put_away_or_deleted_meanwhile_is_not_written_to(shelf: Shelf) -> None:
    library, other = shelf.library(), shelf.library()
    await library.create("work", "")
    _, store = await library.open("work")
    await store.commit(batch(memory("first")))
    await other.archive("work")
    for write in (
        store.commit(batch(memory("second"))),
        store.purge([record_ref("first")]),
        store.redact([record_ref("first")], lambda _, values: values),
    ):
        with pytest.raises(ProjectArchived, match="work"):
            await write
    assert [record.id for record in await store.scan(RecordFilter())] == ["first"]
    await other.delete("work")
    for question in (store.commit(batch(memory("third"))), store.get_revision(), store.get_stamp()):
        with pytest.raises(NotFound, match="work"):
            await question


async def test_any_character_comes_back_and_is_found(store: PostgresStore) -> None:
    strange = "a\0b\x01c\x02d\x01\x01e \\ % _ ' \" {} $1 %s"
    record = Record(
        strange,
        strange,
        DAY_ONE,
        DAY_ONE,
        strange,
        strange,
        strange,
        strange,
        strange,
        scope=strange,
        session=strange,
        position=1,
        author=strange,
        tags=(strange, "x,y", "{", '"', ""),
        facets={strange: [strange]},
    )
    child = memory("child", parent=strange)
    joined = link(strange, strange, "child", facets={strange: strange})
    await store.commit(batch(record, child, joined, tool=strange, client=strange, key=strange))
    await store.commit(batch(Delete(record_ref("child"))))
    assert await store.get([strange]) == [record]
    assert await store.list_scopes(strange) == [strange]
    assert await store.list_authors() == [strange]
    where = RecordFilter(
        kinds=(strange,),
        ids=(strange,),
        name_keys=(strange,),
        types=(strange,),
        scopes=(strange,),
        sessions=(strange,),
        places=((strange, 1),),
        tags=(strange,),
    )
    assert await store.scan(where) == [record]
    assert [m.id for m in await store.match_text("b\x01C\x02", RecordFilter(), 9)] == [strange]
    assert (await store.read_changes())[0].tool == strange
    assert [edit.id for _, edit in await store.read_history([record_ref(strange)])] == [strange]
    assert (await store.commit(batch(record, key=strange))).seq == 1
    assert await store.find_faults() == []


@pytest.mark.parametrize("more", [{"author": "\ud800"}, {"id": "\udfff"}, {"tags": ("\ud800",)}])
async def test_half_a_character_is_refused_and_changes_nothing(store: PostgresStore, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="unpaired surrogate"):
        await store.commit(batch(memory("fine"), memory("broken", **more)))
    assert await store.get_revision() == 0
    with pytest.raises(InvalidInput):
        await store.get(["\ud800"])


async def test_an_id_that_no_index_takes_is_refused_and_changes_nothing(store: PostgresStore) -> None:
    long = "".join(chr(0x4E00 + number * 7 % 20_000) for number in range(10_000))
    with pytest.raises(InvalidInput, match="too long"):
        await store.commit(batch(memory("fine"), memory("long", id=long)))
    assert await store.get_revision() == 0
    assert await store.get([long]) == []


async def test_a_number_that_does_not_fit_is_refused_and_changes_nothing(store: PostgresStore) -> None:
    await store.commit(batch(memory("there")))
    for attempt in (
        store.commit(batch(memory("fine"), memory("far", occurred_at=2**70))),
        store.commit(batch(memory("fine"), at=-(2**70))),
        store.commit(batch(memory("fine", session="s", position=2**63))),
        store.count_records(RecordFilter(places=(("s", 2**70),))),
        store.note_accesses({"there": 2**70}, DAY_ONE),
    ):
        with pytest.raises(InvalidInput, match="too large"):
            await attempt
    assert await store.get_revision() == 1
    assert await store.get_accesses(["there"]) == {}


async def test_no_limit_is_too_large(store: PostgresStore) -> None:
    vector = np.ones(2, np.float32)
    await store.commit(batch(entity("Ada", text="there"), note("Ada", "too"), link("Ada", "is", "too")))
    assert len(await store.find_unembedded("m", ["entity"], 2**70)) == 1
    await store.put_vectors("m", [RecordVector("Ada", 1, vector)])
    await store.note_accesses({"Ada": 1}, DAY_ONE)
    for found in (
        await store.scan(RecordFilter(kinds=("entity",)), limit=2**70),
        await store.match(WordPhrase(("there",)), RecordFilter(), Weights(), 2**70),
        await store.match_text("there", RecordFilter(), 2**70),
        await store.find_links(["Ada"], limit=2**70),
        await store.walk(["Ada"], Hops(2**70, width=2**70, limit=2**70)),
        await store.read_changes(limit=2**70),
        await store.find_near("m", vector, RecordFilter(), 2**70),
        await store.find_near("m", vector, RecordFilter(ids=("Ada",)), 2**70),
        await store.list_most_accessed(2**70),
    ):
        assert len(found) == 1


async def test_importance_may_be_no_number_or_without_end(store: PostgresStore) -> None:
    given = {"none": nan, "all": inf, "nothing": -inf}
    await store.commit(batch(*(memory(i, importance=value) for i, value in given.items())))
    await store.commit(batch(Update("nothing", {"importance": inf}, 1)))
    await store.commit(batch(Update("nothing", {"importance": -inf}, 2)))
    found = {record.id: record.importance for record in await store.scan(RecordFilter())}
    assert found == {"none": None, "all": inf, "nothing": -inf}
    assert [r.id for r in await store.scan(RecordFilter(min_importance=0.5))] == ["all"]
    assert await store.find_faults() == []


async def test_a_question_of_thousands_of_words_is_answered_or_refused(store: PostgresStore) -> None:
    words = [f"word{n}" for n in range(5_000)]
    phrases = tuple(WordPhrase((word,)) for word in words)
    common = [memory(f"word7 and other {n}") for n in range(9)]
    await store.commit(batch(memory(" ".join(words), id="all"), memory("word4321"), memory("other"), *common))
    found = await store.match(AnyOf(phrases), RecordFilter(), Weights(), 20)
    assert [m.id for m in found] == ["all"]  # the rarest words lead, and nobody else has them
    unheard = tuple(WordPhrase((f"unheard{n}",)) for n in range(20_000))
    found = await store.match(AnyOf((*unheard, phrases[4321])), RecordFilter(), Weights(), 20)
    assert {m.id for m in found} == {"all", "word4321"}
    found = await store.match(AllOf(phrases), RecordFilter(), Weights(), 20)
    assert [m.id for m in found] == ["all"]
    assert await store.match(AllOf((*phrases, WordPhrase(("no",)))), RecordFilter(), Weights(), 20) == []
    deep: WordQuery = WordPhrase(("other",))
    for _ in range(40):
        deep = Without(deep, AnyOf(phrases[1_000:]))
    with pytest.raises(InvalidInput, match="too long or too complex"):
        await store.match(deep, RecordFilter(), Weights(), 5)


async def test_who_counts_what_a_project_gave_out_while_it_is_deleted_is_told(shelf: Shelf) -> None:
    library = shelf.library()
    await library.create("work", "")
    _, store = await library.open("work")
    await store.commit(batch(memory("one")))
    with shelf.connection() as other:
        with other.transaction():
            other.execute("DELETE FROM stores WHERE title = 'work'")
            counting = asyncio.create_task(store.note_accesses({"one": 1}, DAY_ONE))
            await whoever_waits_for(other.info.backend_pid)
        with pytest.raises(NotFound, match="work"):
            await counting
    await store.note_accesses({"one": 1}, DAY_ONE)


async def test_long_values_that_begin_alike_are_told_apart(store: PostgresStore) -> None:
    same = "日" * 3_000
    records = [
        memory(end, name=long, name_key=long, scope=long, session=long, position=1, author=long)
        for end in "abc"
        for long in [same + end]
    ]
    await store.commit(batch(*records, key=same + "a"))
    assert (await store.commit(batch(entity("other"), key=same + "b"))).seq == 2
    assert await store.list_authors() == [same + end for end in "abc"]
    assert await store.list_scopes("memory") == [same + end for end in "abc"]
    for where in (
        RecordFilter(name_keys=(same + "b",)),
        RecordFilter(kinds=("memory",), scopes=(same + "b",)),
        RecordFilter(sessions=(same + "b",)),
        RecordFilter(places=((same + "b", 1),)),
    ):
        assert await store.scan(where, limit=9) == [records[1]]
    seen = await store.scan(RecordFilter(kinds=("memory",)), order="name", after=(same + "a", ""))
    assert seen == records[1:]


async def test_what_was_purged_or_redacted_is_in_no_table(shelf: Shelf) -> None:
    store = await shelf.library().open_user_store()
    turns = [
        memory(text, id=f"turn {n}", session="s", position=n)
        for n, text in enumerate(("where is it", f"it is {SECRET}", f"thanks for {SECRET}"))
    ]
    await store.commit(batch(entity("Ada", text=SECRET), note("Ada", SECRET), *turns))
    await store.commit(batch(Delete(record_ref("Ada")), client="client"))
    await store.note_accesses({SECRET: 1}, DAY_ONE)
    assert tables_with(shelf, SECRET) == {"records", "edits", "accesses"}
    purged = await store.purge([record_ref("Ada"), record_ref("turn 1")])
    assert (purged.records, purged.links, purged.complete) == (3, 0, True)
    redacted = await store.redact(
        [record_ref("turn 2")], lambda _, values: {**values, "text": values["text"].replace(SECRET, "it")}
    )
    assert (redacted.records, redacted.complete) == (1, True)
    assert tables_with(shelf, SECRET) == set()
    assert await store.find_faults() == []


async def test_a_purge_is_not_complete_while_somebody_sees_what_was_there(shelf: Shelf) -> None:
    store = await shelf.library().open_user_store()
    await store.commit(batch(memory("one"), memory("two")))
    with shared().connect() as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        purged = await store.purge([record_ref("one")])
    assert (purged.records, purged.complete) == (1, False)
    assert (await store.purge([record_ref("two")])).complete


async def test_the_size_is_the_share_of_what_all_stores_take(shelf: Shelf) -> None:
    library = shelf.library()
    user, history = await library.open_user_store(), await library.open_history_store()
    assert await user.measure_size() == 0
    await user.commit(batch(*(memory("word " * 200, id=f"m{n}") for n in range(90))))
    await history.commit(batch(*(memory("word " * 200, id=f"m{n}") for n in range(10))))
    assert 2 * await history.measure_size() < await user.measure_size() < 10_000_000


@pytest.mark.parametrize("looked", ["never", "before", "now"])
async def test_the_size_is_that_of_the_stores_own_vectors(shelf: Shelf, looked: str) -> None:
    library = shelf.library()
    user, history = await library.open_user_store(), await library.open_history_store()
    for store in (user, history):
        await store.commit(batch(*(memory("word", id=f"m{n}") for n in range(200))))
    with shelf.connection() as connection:
        if looked == "before":
            connection.execute("VACUUM ANALYZE vectors")
        before = await user.measure_size(), await history.measure_size()
        vectors = np.random.default_rng(1).normal(size=(200, 1_000)).astype(np.float32)
        items = [RecordVector(f"m{n}", 1, vector) for n, vector in enumerate(vectors)]
        await user.put_vectors("m", items)
        if looked == "now":
            connection.execute("VACUUM ANALYZE vectors")
        added = await user.measure_size() - before[0], await history.measure_size() - before[1]
        assert 400_000 < added[0] < 2_000_000
        assert added[1] < 200_000
        [(number,)] = shelf.ask("SELECT number FROM stores WHERE name = 'user'")
        build_vector_index(connection, IndexedVectors(number, "m", 1_000))
    assert await user.measure_size() > before[0] + added[0] + 400_000
    assert await history.measure_size() - before[1] < 200_000


@contextmanager
def taken_turn(shelf: Shelf, store: str) -> Generator[int, None, None]:
    """Somebody else has the store's row; its backend's number."""
    with shared().connect() as other, other.transaction():
        other.execute(f'SET LOCAL search_path = "{shelf.schema}"'.encode())
        other.execute("SELECT 1 FROM stores WHERE name = %s FOR NO KEY UPDATE", (store,))
        yield other.info.backend_pid


async def whoever_waits_for(backend: int) -> int:
    with shared().connect() as observer:
        await until(lambda: bool(_waiting(observer, backend)))
        return _waiting(observer, backend)[0][0]


def _waiting(observer: "psycopg.Connection[tuple[Any, ...]]", backend: int) -> list[Any]:
    return observer.execute(
        "SELECT pid FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))", (backend,)
    ).fetchall()


def tables_with(shelf: Shelf, text: str) -> set[str]:
    tables = shelf.ask("SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()")
    return {name for (name,) in tables if shelf.ask(f"SELECT 1 FROM {name} t WHERE t::text LIKE '%{text}%' LIMIT 1")}
