import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from everkept.core.records import Delete, Match, RecordFilter, Restore, Update
from everkept.core.store import MatchText
from everkept.engines.sqlite import queries
from everkept.engines.sqlite.connection import Connection, create
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.schema import PROJECT
from everkept.engines.sqlite.store import MIN_CACHED_TEXTS, SqliteStore
from records import DAY_ONE, batch, entity, link, note, record_ref

ALL = 1_000_000
GRAPH = RecordFilter(kinds=("entity", "observation"))
# What lower case does to these is not the same everywhere: SQLite's own knows ASCII alone.
ODD = ["\u212aelvin", "\u0130stanbul", "stra\u00dfe", "\u03a3\u0391\u03a3", "nul\0nul", "\x1e\x1f"]
WANTED = [*ODD, "k", "K", "i", "i\u0307", "ss", "\u03c3\u03b1\u03c3", "thing 7", "THING", "", "\x1e"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    return path


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = Database(path, PROJECT)
    yield database
    await database.close()


@pytest.fixture
async def store(database: Database) -> SqliteStore:
    """One with enough records for their texts to be kept in memory, and where they are."""
    store = SqliteStore(database, "project", 1, lambda: DAY_ONE)
    things = [entity(f"Thing {number}") for number in range(MIN_CACHED_TEXTS)]
    notes = [note("Thing 7", f"{text} here") for text in ODD]
    await store.commit(batch(*things, *notes, entity("a", kind="memory", text="thing 7, remembered")))
    await store.match_text("thing", GRAPH, 1)
    await read(database)
    return store


async def read(database: Database) -> None:
    """Waits until the texts are read: what is read aside is read in turn."""
    await database.read(lambda _: None, aside=True)


async def steps(database: Database, store: SqliteStore, text: str) -> int:
    """How many instructions of SQLite a search takes: they grow with the rows that are read."""
    counted: list[int] = []

    def note_steps(event: dict[str, Any]) -> None:
        counted.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    def trace(db: Any) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, note_steps)

    await database.read(trace)
    await store.match_text(text, GRAPH, ALL)
    await database.read(lambda db: trace_nothing(db))
    return sum(counted)


def trace_nothing(db: Any) -> None:
    db.trace_v2(0)


async def scanned(database: Database, text: str, where: RecordFilter, limit: int) -> list[Match]:
    """What SQLite says that reads every record."""

    def ask(db: Connection) -> list[Match]:
        return queries.match_text(db, MatchText(text, where, limit))

    return await database.read(ask)


async def agree(database: Database, store: SqliteStore) -> None:
    for text in WANTED:
        for where, limit in ((GRAPH, ALL), (GRAPH, 3), (RecordFilter(), ALL), (RecordFilter(ids=("Thing 7",)), 9)):
            found = await store.match_text(text, where, limit)
            assert found == await scanned(database, text, where, limit), text


async def test_a_search_in_memory_finds_what_reading_every_record_finds(database: Database, store: SqliteStore) -> None:
    await agree(database, store)


async def test_a_search_in_memory_reads_only_what_it_finds(database: Database, store: SqliteStore) -> None:
    assert await steps(database, store, "thing 77") < MIN_CACHED_TEXTS
    fresh = SqliteStore(database, "project", 1, lambda: DAY_ONE)
    assert await steps(database, fresh, "thing 77") > 10 * MIN_CACHED_TEXTS


async def test_few_records_are_not_kept_in_memory(path: Path, database: Database) -> None:
    store = SqliteStore(database, "project", 1, lambda: DAY_ONE)
    await store.commit(batch(*(entity(f"Thing {number}") for number in range(MIN_CACHED_TEXTS - 1))))
    await store.match_text("thing", GRAPH, 1)
    await read(database)
    assert await steps(database, store, "thing 77") > MIN_CACHED_TEXTS


async def test_what_anyone_changes_is_followed(path: Path, database: Database, store: SqliteStore) -> None:
    elsewhere = Database(path, PROJECT)
    other = SqliteStore(elsewhere, "project", 1, lambda: DAY_ONE)
    for change in (
        batch(entity("New thing 7", text="kept")),
        batch(Update("Thing 9", {"name": "Another KELVIN", "text": "thing 7 too"}, 1)),
        batch(Delete(record_ref("Thing 7")), Delete(record_ref("Thing 77"))),
        batch(Restore(record_ref("Thing 7"))),
        batch(link("Thing 1", "knows", "Thing 2")),
    ):
        await other.commit(change)
        await agree(database, store)
        assert await steps(database, store, "new thing 7") < MIN_CACHED_TEXTS
    await other.redact([record_ref("Thing 9")], lambda _, values: {**values, "text": "k"})
    await agree(database, store)
    await read(database)
    await other.purge([record_ref("New thing 7")])
    await other.commit(batch(entity("thing 7 in its place")))
    await agree(database, store)
    await read(database)
    assert await steps(database, store, "new thing 7") < MIN_CACHED_TEXTS
    await elsewhere.close()


async def test_whatever_happens_the_answers_are_the_same(database: Database, store: SqliteStore) -> None:
    chance = random.Random(4)
    for number in range(60):
        steps = [entity(f"{chance.choice(WANTED[:10])} {number} {chance.random()}")]
        purge_set = (await store.scan(GRAPH))[chance.randrange(MIN_CACHED_TEXTS // 2)]
        await store.commit(batch(*steps, Delete(record_ref(purge_set.id))))
        text = chance.choice(WANTED)
        assert await store.match_text(text, GRAPH, ALL) == await scanned(database, text, GRAPH, ALL)


async def test_too_many_changes_are_read_again(database: Database, store: SqliteStore) -> None:
    await store.commit(batch(*(entity(f"More {number}") for number in range(2_500))))
    await agree(database, store)
    await read(database)
    assert await steps(database, store, "more 77") < MIN_CACHED_TEXTS
    await agree(database, store)


async def test_another_file_in_its_place_is_read_again(database: Database, store: SqliteStore) -> None:
    def restore(db: Connection) -> None:
        db.execute("UPDATE meta SET value = 2 WHERE key = 'generation'")
        db.execute("UPDATE records SET name = 'restored' WHERE id = 'Thing 7'")

    await database.write(restore)
    assert [match.id for match in await store.match_text("restored", GRAPH, ALL)] == ["Thing 7"]
