from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from data_folders import MODEL, filled, off_folders, put_all, statement, vector_of
from everkept.core.records import RecordFilter, Weights
from everkept.core.times import read_clock
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.restore import (
    LockedFiles,
    StoreNumbers,
    lock_files,
    mark_deleted,
    prepare_store,
    put_store,
    read_numbers,
    remove_files,
)
from everkept.engines.sqlite.schema import PROJECT
from everkept.engines.sqlite.snapshot import HISTORY, META, USER, copy_to, open_in_use, open_snapshot
from everkept.engines.sqlite.store import SqliteStore
from everkept.errors import Conflict, NotFound, StoreBusy
from everkept.language.words import AnyOf, WordPhrase
from everkept.values import replace
from records import batch, entity

ANY = AnyOf((WordPhrase(("remembered",)), WordPhrase(("still",))))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(tmp_path / "data", "shop")
    return tmp_path / "data"


@pytest.fixture
def copy(data: Path, tmp_path: Path) -> Path:
    """Of the user's file, as it is now."""
    path = tmp_path / "copy.db"
    with open_snapshot(data) as moment:
        copy_to(moment.databases[USER], path, off_folders)
    return path


@pytest.fixture
def live(data: Path) -> Iterator[LockedFiles]:
    with lock_files(data) as live:
        yield live


def test_nobody_writes_while_the_files_are_locked(
    data: Path, live: LockedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everkept.engines.sqlite.connection.BUSY_SECONDS", 0.05)
    assert {META, USER, HISTORY} < {*live.databases}
    with pytest.raises(Exception, match="locked"):
        statement(data / USER, "DELETE FROM accesses")
    with pytest.raises(StoreBusy), lock_files(data):
        pass


def test_a_folder_without_records_and_projects_is_empty(data: Path, tmp_path: Path) -> None:
    with lock_files(data) as live:
        assert not live.is_empty
    with lock_files(tmp_path) as nothing:
        assert nothing.is_empty


def test_the_numbers_of_a_copy_go_on_behind_the_highest_ever_given(data: Path, copy: Path) -> None:
    assert prepare_store(copy, StoreNumbers(generation=7, change=50, vector=60)) == 8
    with closing(open_in_use(copy)) as db:
        assert read_numbers(db) == StoreNumbers(8, 50, 60)
    assert prepare_store(copy, StoreNumbers(), archived=True) == 9
    assert statement(copy, "SELECT value FROM meta WHERE key = 'generation'") == [(-9,)]


async def test_a_store_that_is_open_sees_the_restored_content_and_writes_after_it(data: Path, copy: Path) -> None:
    database = Database(data / USER, PROJECT)
    store = SqliteStore(database, "user", None, read_clock, many=0)
    await put_all(store, "later")
    assert await matched(store) == {"later is remembered", "user shop is remembered"}
    assert len(await store.find_near(MODEL, vector_of("x", 1).vector, RecordFilter(), 9)) == 2
    with lock_files(data) as live:
        prepare_store(copy, live.get_numbers(USER))
        put_store(live, USER, copy, off_folders)
    assert await matched(store) == {"user shop is remembered"}
    assert len(await store.find_near(MODEL, vector_of("x", 1).vector, RecordFilter(), 9)) == 1
    with pytest.raises(Conflict):
        await store.commit(batch(entity("planned before")))
    change = await store.commit(batch(entity("later still", text="later still")))
    assert change.seq == 3
    assert await matched(store) == {"user shop is remembered", "later still"}
    assert await store.find_faults() == []
    await database.close()


async def test_a_vector_that_came_after_the_backup_is_forgotten_by_who_knew_it(data: Path, copy: Path) -> None:
    database = Database(data / USER, PROJECT)
    store = SqliteStore(database, "user", None, read_clock)
    record_id = "user shop is remembered"
    other = replace(vector_of("another", 1), id=record_id)
    await store.put_vectors(MODEL, [other])
    [near] = await store.find_near(MODEL, other.vector, RecordFilter(), 9)
    assert near.score > 0.99
    with lock_files(data) as live:
        prepare_store(copy, live.get_numbers(USER))
        put_store(live, USER, copy, off_folders)
    [near] = await store.find_near(MODEL, other.vector, RecordFilter(), 9)
    assert near.score < 0.99
    await database.close()


async def matched(store: SqliteStore) -> set[str]:
    found = await store.match(ANY, RecordFilter(), Weights(), 10)
    return {match.id for match in found}


async def test_a_file_that_is_frozen_is_not_written_by_who_opens_it_anew(data: Path, live: LockedFiles) -> None:
    live.release(USER, -3)
    database = Database(data / USER, PROJECT)
    store = SqliteStore(database, "user", None, read_clock)
    for _ in range(2):
        with pytest.raises(Conflict):
            await store.commit(batch(entity("too early")))
    await database.close()


async def test_who_has_a_project_open_that_is_buried_is_told(data: Path) -> None:
    library = SqliteLibrary(data)
    _, store = await library.open("shop")
    await store.commit(batch(entity("before")))
    [name] = [path.relative_to(data).as_posix() for path in (data / "projects").glob("*.db")]
    with lock_files(data) as live:
        mark_deleted(live, [name])
        with pytest.raises(NotFound):
            await store.commit(batch(entity("after")))
        assert remove_files(data, [name]) == []
    assert not (data / name).exists()
    await library.close()
