import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from everkept.core.ports import RecordVector
from everkept.core.records import Delete, Record, RecordFilter, Update, Weights
from everkept.engines import vectors
from everkept.engines.sqlite import nearness, search
from everkept.engines.sqlite.connection import connect
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.schema import PROJECT
from everkept.engines.sqlite.store import SqliteStore
from everkept.language.words import parse_query
from records import DAY_ONE, batch, entity, record_ref

MODEL = "model"
DIMENSIONS = 64


def directions(count: int, seed: int = 1) -> NDArray[np.float32]:
    points = np.random.default_rng(seed).normal(size=(count, DIMENSIONS))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def memories(count: int) -> list[Record]:
    return [
        Record(
            f"m{number}",
            "memory",
            DAY_ONE,
            DAY_ONE,
            text=f"text {number}",
            importance=number / count,
            session=f"s{number % 10}",
        )
        for number in range(count)
    ]


async def embed(store: SqliteStore, floats: NDArray[np.float32], first: int = 0) -> None:
    items = [RecordVector(f"m{first + n}", 1, vector) for n, vector in enumerate(floats)]
    await store.put_vectors(MODEL, items)


async def near(
    store: SqliteStore, vector: NDArray[np.float32], where: RecordFilter | None = None, limit: int = 5
) -> list[str]:
    return [match.id for match in await store.find_near(MODEL, vector, where or RecordFilter(), limit)]


def expected(floats: NDArray[np.float32], vector: NDArray[np.float32], limit: int) -> list[str]:
    return [f"m{row}" for row in np.argsort(-(floats @ vector))[:limit]]


@pytest.fixture
async def store(library: SqliteLibrary) -> SqliteStore:
    _, store = await library.open("project")
    return store


@pytest.fixture
async def other(library: SqliteLibrary, folder: Path) -> AsyncIterator[SqliteStore]:
    """The same project in another window."""
    second = SqliteLibrary(folder)
    _, store = await second.open("project")
    yield store
    await second.close()


@pytest.fixture(params=[10_000, 50], ids=["exact", "codes"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index in each of its two forms."""
    monkeypatch.setattr(vectors, "MAX_EXACT_VECTORS", request.param)


async def test_what_another_window_stores_replaces_and_removes_is_seen_at_the_next_question(
    store: SqliteStore, other: SqliteStore, form: None
) -> None:
    floats = directions(120)
    await store.commit(batch(*memories(120)))
    await embed(store, floats[:100])
    query = floats[7]
    assert await near(store, query) == await near(other, query) == expected(floats[:100], query, 5)
    await embed(other, floats[100:], first=100)
    for number in (3, 105):
        assert await near(store, floats[number], limit=1) == [f"m{number}"]
    await other.commit(batch(Update("m7", {"text": "another"}, 1), Delete(record_ref("m8"))))
    await other.purge([record_ref("m9")])
    for number in (7, 8, 9):
        found = await near(store, floats[number], limit=60)
        assert not {"m7", "m8", "m9"} & set(found)
        assert len(found) == 60
    await other.put_vectors(MODEL, [RecordVector("m7", 2, floats[9])])
    assert await near(store, floats[9], limit=1) == ["m7"]
    await other.put_vectors("another", [RecordVector("m7", 2, floats[9])])
    assert "m7" not in await near(store, floats[9], limit=60)


async def test_reading_vectors_takes_little_more_memory_than_keeping_them(store: SqliteStore, folder: Path) -> None:
    """What is needed only for a moment would stay with the process."""
    count = 4 * 1_024
    await store.commit(batch(*memories(count)))
    await embed(store, directions(count))
    connection = connect(next((folder / "projects").glob("*.db")), PROJECT)
    index = nearness.VectorIndexes(search.FilterCache())
    tracemalloc.start()
    index.catch_up(connection, MODEL)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    connection.close()
    assert count * DIMENSIONS * 4 < kept
    assert most < 3 * kept


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many whole vectors were put into an index at a time."""
    counts: list[int] = []
    putting = vectors.VectorIndex.put

    def noted(index: vectors.VectorIndex, keys: vectors.Keys, found: vectors.Floats) -> None:
        counts.append(len(keys))
        putting(index, keys, found)

    monkeypatch.setattr(vectors.VectorIndex, "put", noted)
    return counts


@pytest.mark.parametrize("at_once", [7, 100])
async def test_an_index_of_many_begins_with_the_signs_of_their_vectors(
    store: SqliteStore, other: SqliteStore, taken: list[int], monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(vectors, "MAX_EXACT_VECTORS", 50)
    monkeypatch.setattr(nearness, "CHUNK_SIGNS", at_once)
    floats = directions(120)
    await store.commit(batch(*memories(120)))
    await embed(store, floats[:100])
    await store.put_vectors("another", [RecordVector("m4", 1, floats[4])])
    await store.commit(batch(Update("m5", {"text": "another"}, 1)))
    for number in (3, 99):
        assert await near(other, floats[number], limit=1) == [f"m{number}"]
    assert not {"m4", "m5"} & set(await near(other, floats[4], limit=100))
    assert taken == []
    await embed(store, floats[100:], first=100)
    assert await near(other, floats[119], limit=1) == ["m119"]
    assert taken == [20]


async def test_vectors_without_signs_are_found_as_well(
    store: SqliteStore, other: SqliteStore, form: None, taken: list[int]
) -> None:
    floats = directions(100)
    await store.commit(batch(*memories(100)))
    await embed(store, floats)
    await store.database.write(lambda db: db.execute("UPDATE vectors SET code = NULL"))
    for number in (3, 99):
        assert await near(other, floats[number], limit=1) == [f"m{number}"]
    assert sum(taken) == 100


async def test_what_a_filter_lets_through_is_read_again_after_a_change(
    store: SqliteStore, form: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SPARE_KEYS", 0)
    monkeypatch.setattr(search, "MAX_TRIED_KEYS", 0)
    floats = directions(100)
    await store.commit(batch(*memories(100)))
    await embed(store, floats)
    where = RecordFilter(min_importance=0.95)
    for _ in range(2):
        assert set(await near(store, floats[0], where)) == {f"m{n}" for n in range(95, 100)}
    await store.commit(batch(Update("m3", {"importance": 1.0}, 1), Update("m99", {"importance": 0.1}, 1)))
    assert set(await near(store, floats[0], where)) == {"m3", *(f"m{n}" for n in range(95, 99))}
    for least in np.arange(0.5, 0.99, 0.05).tolist():
        found = await near(store, floats[0], RecordFilter(min_importance=least), limit=3)
        assert len(found) == 3


async def test_a_filter_costs_a_handful_of_statements_at_most(
    store: SqliteStore, form: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    floats = directions(600)
    await store.commit(batch(*memories(600)))
    await embed(store, floats)
    await near(store, floats[0])
    statements: list[str] = []
    reading = store.database.read

    async def counted(question, **how):  # type: ignore[no-untyped-def]
        def ask(db):  # type: ignore[no-untyped-def]
            db.exec_trace = lambda _, statement, __: statements.append(statement) or True
            try:
                return question(db)
            finally:
                db.exec_trace = None

        return await reading(ask, **how)

    monkeypatch.setattr(store.database, "read", counted)
    for where in (
        RecordFilter(),
        RecordFilter(min_importance=0.99),
        RecordFilter(sessions=("s3",)),
        RecordFilter(ids=("m1", "m2")),
        RecordFilter(kinds=("memory",), visible_to="s1"),
        RecordFilter(kinds=("entity",)),
    ):
        statements.clear()
        found = await near(store, floats[0], where, limit=20)
        assert len(statements) <= 8
        fitting = {record.id for record in await store.scan(where)}
        ranked = [name for name in expected(floats, floats[0], 600) if name in fitting]
        if vectors.MAX_EXACT_VECTORS > 600:
            assert found == ranked[:20]
        else:
            assert set(found) <= fitting
            assert len(found) == min(20, len(ranked))


async def test_more_that_fit_than_are_looked_up_first_are_ranked_first(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    floats = directions(300)
    await store.commit(batch(*memories(300)))
    await embed(store, floats)
    for few in (5, 1_000):
        monkeypatch.setattr(search, "MAX_LOOKUP_KEYS", few)
        found = await near(store, floats[3], RecordFilter(sessions=("s3", "s4")), limit=12)
        every = expected(floats, floats[3], 300)
        assert found == [name for name in every if name[-1] in "34"][:12]


async def test_words_are_found_while_many_vectors_are_being_read(
    store: SqliteStore, form: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearness, "MAX_NEW_VECTORS", 10)
    floats = directions(100)
    await store.commit(batch(*memories(100)))
    await embed(store, floats[:60])
    words = parse_query("text").build_any_query()
    assert words is not None
    with store._get_vector_indexes()._lock:  # as whoever reads them holds it
        asking = asyncio.create_task(near(store, floats[7], limit=1))
        for _ in range(3):
            matches = await store.match(words, RecordFilter(kinds=("memory",)), Weights(), 200)
            assert len(matches) == 100
        assert not asking.done()
    assert await asking == ["m7"]
    await embed(store, floats[60:], first=60)
    assert await near(store, floats[77], limit=1) == ["m77"]


async def test_an_index_survives_that_its_file_was_closed(library: SqliteLibrary, store: SqliteStore) -> None:
    floats = directions(30)
    await store.commit(batch(*memories(30)))
    await embed(store, floats[:20])
    assert await near(store, floats[3], limit=1) == ["m3"]
    await library.close()
    await embed(store, floats[20:], first=20)
    assert await near(store, floats[3], limit=1) == ["m3"]
    assert await near(store, floats[25], limit=1) == ["m25"]


async def test_a_project_that_was_archived_and_restored_has_its_vectors(
    library: SqliteLibrary, store: SqliteStore
) -> None:
    floats = directions(5)
    await store.commit(batch(*memories(5)))
    await embed(store, floats)
    await library.archive("project")
    await library.restore("project")
    _, again = await library.open("project")
    assert await near(again, floats[2], limit=1) == ["m2"]


LARGE = 200_000


def word(number: int) -> str:
    """A word of its own for each number; it is its own stem."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number)) + "zzz"


@pytest.mark.thorough
async def test_two_hundred_thousand_records_are_found_by_words_by_meaning_and_by_filters(store: SqliteStore) -> None:
    floats = np.sign(np.random.default_rng(1).normal(size=(LARGE, DIMENSIONS))).astype(np.float32)
    floats /= np.sqrt(DIMENSIONS, dtype=np.float32)
    for start in range(0, LARGE, 5_000):
        span = range(start, start + 5_000)
        await store.commit(
            batch(
                *(
                    Record(
                        f"m{number}",
                        "memory",
                        DAY_ONE + number,
                        DAY_ONE + number,
                        text=f"common {word(number % 1_000)} {word(LARGE + number)}",
                        scope="project" if number % 100 else "session",
                        session=f"s{number % 1_000}",
                    )
                    for number in span
                )
            )
        )
        await embed(store, floats[start : start + 5_000], first=start)
    for number in (0, 77_777, LARGE - 1):
        assert await near(store, floats[number], limit=1) == [f"m{number}"]
        where = RecordFilter(kinds=("memory",), sessions=(f"s{number % 1_000}",))
        found = await near(store, floats[number], where, limit=300)
        assert found[0] == f"m{number}"
        assert set(found) == {f"m{n}" for n in range(number % 1_000, LARGE, 1_000)}
        query = parse_query(f"common {word(number % 1_000)} {word(LARGE + number)}").build_any_query()
        assert query is not None
        matches = await store.match(query, RecordFilter(visible_to=f"s{number % 1_000}"), Weights(), 10)
        assert matches[0].id == f"m{number}"
        assert {int(match.id[1:]) % 1_000 for match in matches} == {number % 1_000}
    late = RecordFilter(after=DAY_ONE + LARGE - 50, scopes=("project",))
    assert len(await near(store, floats[5], late, limit=100)) == 50
    newest = await store.scan(RecordFilter(kinds=("memory",)), order="newest", limit=3)
    assert [record.id for record in newest] == [f"m{LARGE - n}" for n in (1, 2, 3)]
    assert await store.find_unembedded(MODEL, ["memory"], 16) == []
    [follower] = store._get_vector_indexes()._followers.values()
    assert follower._index is not None
    codes = DIMENSIONS // 8
    assert follower._index.nbytes <= LARGE * (codes + 12)
    rare = [word(LARGE + number) for number in (77_777, 5)]
    await store.commit(batch(entity("late", id="m200000", text=f"one {rare[0]} more")))
    query = parse_query(" ".join(rare)).build_any_query()
    assert query is not None
    found = await store.match(query, RecordFilter(), Weights(), 10)
    assert {match.id for match in found} == {"m77777", "m5", "m200000"}
