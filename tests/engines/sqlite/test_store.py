import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from everkept.core.ports import RecordVector
from everkept.core.records import Delete, RecordFilter, Update
from everkept.engines.sqlite.connection import Connection, connect, create
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.schema import PROJECT
from everkept.engines.sqlite.store import MAX_SHORT_CHARACTERS, MAX_SHORT_ROWS, MAX_SHORT_STEPS, SqliteStore
from everkept.errors import StorageFull, StoreDamaged, StoreTooNew
from processes import acting, said_by
from records import DAY_ONE, batch, entity, link, note, record_ref
from sqlite_watch import watched

NOBODY = 65534  # a user without rights, on every Unix
DAY_ONE_AS_TEXT = "2023-11-14T22:13:20.000Z"
DAY_TWO = DAY_ONE + 86_400_123_456
DAY_TWO_AS_TEXT = "2023-11-15T22:13:20.123Z"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    database = Database(path, PROJECT)
    yield database
    await database.close()


@pytest.fixture
def store(database: Database) -> SqliteStore:
    return SqliteStore(database, "project", 1, lambda: DAY_ONE)


async def ids(store: Any) -> list[str]:
    return [record.id for record in await store.scan(RecordFilter())]


@pytest.mark.parametrize(
    ("view", "rows"),
    [
        (
            "entities",
            [
                {
                    "id": "Ada",
                    "name": "Ada",
                    "entity_type": "thing",
                    "created_at": DAY_ONE_AS_TEXT,
                    "updated_at": DAY_TWO_AS_TEXT,
                    "deleted_at": None,
                },
                {
                    "id": "Grace",
                    "name": "Grace",
                    "entity_type": "thing",
                    "created_at": DAY_ONE_AS_TEXT,
                    "updated_at": DAY_ONE_AS_TEXT,
                    "deleted_at": DAY_TWO_AS_TEXT,
                },
            ],
        ),
        (
            "observations",
            [
                {
                    "id": "compiler",
                    "entity_id": "Grace",
                    "content": "compiler",
                    "created_at": DAY_ONE_AS_TEXT,
                    "deleted_at": DAY_TWO_AS_TEXT,
                },
                {
                    "id": "program",
                    "entity_id": "Ada",
                    "content": "program",
                    "created_at": DAY_ONE_AS_TEXT,
                    "deleted_at": None,
                },
            ],
        ),
        (
            "relations",
            [
                {
                    "id": "Ada is Ada",
                    "from_entity": "Ada",
                    "to_entity": "Ada",
                    "relation_type": "is",
                    "created_at": DAY_ONE_AS_TEXT,
                    "deleted_at": None,
                },
                {
                    "id": "Ada knows Grace",
                    "from_entity": "Ada",
                    "to_entity": "Grace",
                    "relation_type": "knows",
                    "created_at": DAY_ONE_AS_TEXT,
                    "deleted_at": DAY_TWO_AS_TEXT,
                },
            ],
        ),
    ],
)
async def test_another_program_sees_the_graph_in_views(
    store: SqliteStore, database: Database, view: str, rows: list[dict[str, Any]]
) -> None:
    await store.commit(
        batch(
            entity("Ada"),
            entity("Grace"),
            note("Ada", "program"),
            note("Grace", "compiler"),
            entity("no entity", kind="memory"),
            link("Ada", "knows", "Grace"),
            link("Ada", "is", "Ada"),
            link("Ada", "has", "no entity"),
        )
    )
    await store.commit(batch(Update("Ada", {"text": "new"}, 1), Delete(record_ref("Grace")), at=DAY_TWO))
    assert said_by("rows_of_view", database.path, view) == rows


@pytest.mark.parametrize("synchronous", ["normal", "full"])
async def test_every_connection_is_set_up_as_promised(tmp_path: Path, synchronous: Any) -> None:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    database = Database(path, PROJECT, synchronous=synchronous)

    def pragmas(db: Connection) -> dict[str, Any]:
        names = ("journal_mode", "foreign_keys", "synchronous", "cache_size", "secure_delete")
        found = {name: db.pragma(name) for name in names}
        # Whether the plan of a statement stays, whatever values are bound to it.
        return found | {"stable plans": db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1)}

    expected = {
        "journal_mode": "wal",
        "foreign_keys": 1,
        "synchronous": {"normal": 1, "full": 2}[synchronous],
        "cache_size": -64_000,  # kilobytes
        "secure_delete": 1,
        "stable plans": 1,
    }
    assert await database.maintain(pragmas) == expected
    assert await database.read(pragmas) == expected
    await database.close()


async def test_files_are_for_their_owner_alone(library: SqliteLibrary, folder: Path) -> None:
    await library.create("other", "")
    await library.archive("other")
    _, store = await library.open("project")
    await store.commit(batch(entity("in the log")))
    assert modes(folder) == {"folder": {0o700}, "file": {0o600}}
    await library.restore("other")
    assert modes(folder) == {"folder": {0o700}, "file": {0o600}}


def modes(folder: Path) -> dict[str, set[int]]:
    every = [folder, *folder.rglob("*")]
    assert any(path.name.endswith("-wal") for path in every)
    return {
        "folder": {path.stat().st_mode & 0o777 for path in every if path.is_dir()},
        "file": {path.stat().st_mode & 0o777 for path in every if path.is_file()},
    }


async def test_a_database_of_a_newer_program_is_refused_at_opening_and_not_touched(
    library: SqliteLibrary, folder: Path, path: Path
) -> None:
    await library.close()
    with acting("leave_log", path, "PRAGMA user_version=99") as newer:
        newer.process.wait()
    before = said_by("digests", folder / "projects")
    _, store = await library.open("project")
    for attempt in (store.scan(RecordFilter()), store.commit(batch(entity("old")))):
        with pytest.raises(StoreTooNew):
            await attempt
    for move in (library.archive, library.delete):
        with pytest.raises(StoreTooNew):
            await move("project")
    assert said_by("digests", folder / "projects") == before
    assert (await library.get_project("project")).status == "active"


async def test_a_process_older_than_the_database_is_refused_at_its_next_write(
    library: SqliteLibrary, folder: Path, path: Path
) -> None:
    _, store = await library.open("project")
    assert await ids(store) == ["kept"]
    with acting("leave_log", path, "PRAGMA user_version=99") as newer:
        newer.process.wait()
    before = said_by("digests", folder / "projects")
    for attempt in (store.commit(batch(entity("old"))), store.purge([record_ref("kept")])):
        with pytest.raises(StoreTooNew):
            await attempt
    assert said_by("digests", folder / "projects") == before
    assert await ids(store) == ["kept"]


async def test_the_list_of_projects_of_a_newer_program_is_not_written_either(
    library: SqliteLibrary, folder: Path
) -> None:
    with acting("leave_log", folder / "_meta.db", "PRAGMA user_version=99") as newer:
        newer.process.wait()
    before = said_by("digests", folder, "_meta.db*")
    for attempt in (
        library.create("other", ""),
        library.archive("project"),
        library.delete("project"),
        library.set_note("key", "value"),
    ):
        with pytest.raises(StoreTooNew):
            await attempt
    assert said_by("digests", folder, "_meta.db*") == before


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def overwritten_pages(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def another_database(path: Path) -> None:
    with acting("leave_log", path.with_suffix(".new"), "CREATE TABLE t(x)") as other:
        other.process.wait()
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize("damage", [garbage, truncated, emptied, overwritten_pages, another_database])
async def test_a_damaged_file_is_told_and_not_touched_and_others_go_on(
    library: SqliteLibrary, folder: Path, path: Path, damage: Any
) -> None:
    await library.close()
    damage(path)
    before = said_by("digests", folder / "projects")
    await library.create("other", "")
    _, store = await library.open("project")
    for attempt in (
        store.scan(RecordFilter()),
        store.commit(batch(entity("new"))),
        store.purge([record_ref("kept")]),
        store.find_faults(),
        library.archive("project"),
    ):
        with pytest.raises(StoreDamaged):
            await attempt
    _, other = await library.open("other")
    await other.commit(batch(entity("in another project")))
    assert await ids(other) == ["in another project"]
    assert (await library.get_project("project")).status == "active"
    await library.close()
    after = said_by("digests", folder / "projects")
    assert {name: after[name] for name in before} == before


async def test_a_damaged_project_can_be_deleted(library: SqliteLibrary, folder: Path, path: Path) -> None:
    await library.close()
    overwritten_pages(path)
    await library.delete("project")
    assert await library.list_projects() == []
    assert said_by("digests", folder / "projects") == {}


async def test_a_check_tells_of_records_that_the_word_index_does_not_have(
    store: SqliteStore, database: Database
) -> None:
    await store.commit(batch(entity("a"), entity("b"), entity("c")))
    await database.maintain(lambda db: db.execute("DELETE FROM words WHERE rowid = 1"))
    await database.maintain(lambda db: db.execute("DELETE FROM records WHERE id = 'c'"))
    assert len(await store.find_faults()) == 2


async def test_a_full_disk_refuses_the_whole_batch_and_later_writes_work(
    store: SqliteStore, database: Database
) -> None:
    await store.commit(batch(entity("kept")))
    pages = await database.maintain(lambda db: db.pragma("page_count"))
    await database.maintain(lambda db: db.pragma("max_page_count", pages + 4))
    big = [entity(f"big {number}", text="long text " * 1_000) for number in range(20)]
    with pytest.raises(StorageFull) as caught:
        await store.commit(batch(entity("small"), *big))
    assert caught.value.facts["current_size"] == await store.measure_size()
    assert caught.value.facts["free"] > 0
    assert await ids(store) == ["kept"]
    assert len(await store.read_changes()) == 1
    await store.commit(batch(entity("small")))
    await database.maintain(lambda db: db.pragma("max_page_count", 1_000_000))
    await store.commit(batch(*big))
    assert len(await ids(store)) == 22
    assert await store.find_faults() == []


async def test_a_file_that_may_not_grow_keeps_what_was_acknowledged(library: SqliteLibrary, folder: Path) -> None:
    await library.create("limited", "")
    await library.close()
    refused, is_kept, later, problems = said_by("outgrow_file_limit", folder, "limited")
    assert refused == "storage_full"
    assert (is_kept, later, problems) == (True, "ok", [])


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user may walk into; pytest's own are for one user."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o700)
    shutil.rmtree(folder)


async def test_a_folder_that_may_not_be_written_can_be_read(
    library: SqliteLibrary, folder: Path, reachable: Path
) -> None:
    await library.close()
    shutil.copytree(folder, reachable / "data")
    # Permissions do not bind root, who therefore becomes another user once all is loaded.
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    make_read_only(reachable / "data", user)
    said = said_by("use_library", reachable / "data", "project", user)
    assert (said["projects"], said["records"]) == (["project"], ["kept"])
    writes = ("commit", "purge", "create", "archive", "delete", "set_note")
    assert {said[name] for name in writes} == {"read_only"}


def make_read_only(folder: Path, owner: int) -> None:
    for path in [*folder.rglob("*"), folder]:
        os.chown(path, owner, -1)
        path.chmod(0o500 if path.is_dir() else 0o400)


async def test_the_revision_differs_after_a_commit_that_came_while_it_was_closed(
    store: SqliteStore, database: Database
) -> None:
    before = await store.get_revision()
    await database.close()
    with_another = connect(database.path, PROJECT)
    with_another.execute("INSERT INTO changes(at, tool) VALUES (1, 'another process')")
    with_another.close()
    assert await store.get_revision() != before


@pytest.mark.parametrize(
    ("steps", "is_short"),
    [
        ([entity("new", text="x" * MAX_SHORT_CHARACTERS)], True),
        ([entity("new", text="x" * (MAX_SHORT_CHARACTERS + 1))], False),
        ([note("old", f"{number}") for number in range(MAX_SHORT_STEPS)], True),
        ([note("old", f"{number}") for number in range(MAX_SHORT_STEPS + 1)], False),
        ([link("old", "knows", "old")], True),
        ([Update("old", {"text": "new"}, 1)], True),
        ([Update("old", {"name": "new"}, 1)], False),  # its children are indexed again
        ([Delete(record_ref("old"))], False),  # its children go with it
    ],
)
async def test_only_a_small_commit_is_made_in_the_callers_thread(
    tmp_path: Path, steps: list[Any], is_short: bool
) -> None:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    with watched() as watch:
        database = Database(path, PROJECT, inline_writes=True)
        store = SqliteStore(database, "project", 1, lambda: DAY_ONE)
        await store.commit(batch(entity("old")))
        watch.begin()
        await store.commit(batch(*steps))
        assert ("COMMIT" not in watch.elsewhere) is is_short
        await database.close()


@pytest.mark.parametrize(
    ("where", "limit", "is_short"),
    [
        (RecordFilter(), None, False),
        (RecordFilter(kinds=("entity",)), MAX_SHORT_ROWS, True),
        (RecordFilter(kinds=("entity",)), MAX_SHORT_ROWS + 1, False),
        (RecordFilter(kinds=("entity",), pinned=True), 1, False),  # who knows how many are read for it
        (RecordFilter(ids=("kept",)), None, True),
        (RecordFilter(name_keys=("kept",) * (MAX_SHORT_ROWS + 1)), None, False),
        (RecordFilter(kinds=("turn",), places=(("a", 1),) * MAX_SHORT_ROWS), None, True),
        (RecordFilter(kinds=("turn",), places=(("a", 1),) * (MAX_SHORT_ROWS + 1)), None, False),
        (RecordFilter(parents=("kept",)), None, False),
    ],
)
async def test_only_what_an_index_finds_soon_is_read_in_the_callers_thread(
    folder: Path, library: SqliteLibrary, where: RecordFilter, limit: int | None, is_short: bool
) -> None:
    await library.close()
    with watched() as watch:
        _, store = await library.open("project")
        await store.get(["kept"])
        watch.begin()
        await store.scan(where, limit=limit)
        assert (not watch.elsewhere) is is_short


@pytest.mark.parametrize(("limit", "is_short"), [(1, True), (2, False)])
async def test_whether_anything_waits_for_its_vector_is_read_in_the_callers_thread(
    folder: Path, library: SqliteLibrary, limit: int, is_short: bool
) -> None:
    await library.close()
    with watched() as watch:
        _, store = await library.open("project")
        await store.get(["kept"])
        watch.begin()
        await store.find_unembedded("model", ("entity",), limit)
        assert (not watch.elsewhere) is is_short


@pytest.mark.parametrize(("many", "is_short"), [(1, True), (0, False)])
async def test_what_is_near_among_few_is_found_in_the_callers_thread(tmp_path: Path, many: int, is_short: bool) -> None:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    vector = np.full(8, 8**-0.5, np.float32)
    with watched() as watch:
        database = Database(path, PROJECT)
        store = SqliteStore(database, "project", 1, lambda: DAY_ONE, many=many)
        await store.commit(batch(entity("kept")))
        await store.put_vectors("model", [RecordVector("kept", 1, vector)])
        await store.measure_words(["kept"])  # tells how many there are
        assert len(await store.find_near("model", vector, RecordFilter(), 1)) == 1  # reads the vectors
        watch.begin()
        assert len(await store.find_near("model", vector, RecordFilter(), 1)) == 1
        assert (not watch.elsewhere) is is_short
        await database.close()
