from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everkept.core.answers import SearchRecord, StorePage
from everkept.core.mcp import ToolUsage
from everkept.core.ports import RecordVector, Token
from everkept.core.records import Edit, RecordFilter, Restore, Update, Weights
from everkept.core.store import CountVectors, GetRecords, ListAuthors, ScanRecords, TallyRecords
from everkept.engines.sqlite import queries, search, vectors
from everkept.engines.sqlite.connection import Connection, Rows, connect, create
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
from everkept.engines.sqlite.store import SqliteStore
from everkept.errors import ReadOnly
from everkept.language.words import parse_query
from everkept.values import replace
from processes import said_by
from records import DAY_ONE, batch, entity, record_ref

VERSION_1 = replace(PROJECT, migrations=PROJECT.migrations[:1], temporary="")
VERSION_2 = replace(PROJECT, migrations=PROJECT.migrations[:2], temporary="")
VERSION_3 = replace(PROJECT, migrations=PROJECT.migrations[:3], temporary="")
CONTENT = f"""
INSERT INTO records(id, kind, type, name, name_key, text, facets, created_at, updated_at)
    VALUES ('Ada', 'entity', 'person', 'Ada', 'ada', 'wrote a program', '{{"n": 1}}',
    {DAY_ONE}, {DAY_ONE});
INSERT INTO records(id, kind, parent, text, created_at, updated_at, deleted_at)
    VALUES ('note', 'observation', 1, 'lived in London', {DAY_ONE}, {DAY_ONE}, {DAY_ONE});
INSERT INTO words(rowid, name, text, context) VALUES (1, 'Ada', 'person wrote a program', '');
INSERT INTO changes(at, tool) VALUES ({DAY_ONE}, 'create'), ({DAY_ONE}, 'update');
INSERT INTO edits VALUES (1, 0, 'insert', 'record', 1, NULL),
    (2, 0, 'update', 'record', 1, '{{"text": "old", "facets": {{}}}}');
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A project's file as the first version of the program has left it."""
    path = tmp_path / "project.db"
    create(path, VERSION_1)
    connection = connect(path, VERSION_1)
    connection.execute(CONTENT)
    connection.close()
    return path


async def test_a_file_of_the_first_version_is_brought_up_to_date_with_all_it_holds(old: Path) -> None:
    database = Database(old, PROJECT)
    store = SqliteStore(database, "project", 1, lambda: DAY_ONE)
    ada = entity("Ada", type="person", text="wrote a program", facets={"n": 1})
    assert await store.scan(RecordFilter()) == [ada]
    query = parse_query("program").build_all_query()
    assert query is not None
    assert [m.id for m in await store.match(query, RecordFilter(), Weights(), 9)] == ["Ada"]
    told = [edit for _, edit in await store.read_history([ada.ref])]
    assert told == [Edit("insert", "record", "Ada"), Edit("update", "record", "Ada", {"text": "old", "facets": {}})]
    await store.commit(batch(Update("Ada", {"tags": ("x",), "author": "me"}, 1)))
    await store.commit(batch(Restore(record_ref("note"))))
    assert [r.id for r in await store.scan(RecordFilter(tags=("x",)))] == ["Ada"]
    assert await store.list_authors() == ["me"]
    waiting = await store.find_unembedded("model", ["entity", "observation"], 5)
    assert [record.id for record in waiting] == ["note", "Ada"]
    await store.put_vectors("model", [RecordVector("Ada", 2, np.ones(8, np.float32))])
    assert [m.id for m in await store.find_near("model", np.ones(8, np.float32), RecordFilter(), 5)] == ["Ada"]
    await store.note_accesses({"Ada": 1}, DAY_ONE)
    assert await store.find_faults() == []
    await database.close()
    assert said_by("rows_of_view", old, "entities")[0]["name"] == "Ada"


async def test_vectors_of_the_second_version_stay_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    create(path, VERSION_2)
    connection = connect(path, VERSION_2)
    connection.execute(CONTENT)
    vector = np.ones(8, "<f2").tobytes()
    connection.execute("INSERT INTO vectors VALUES (1, 'model', 1, ?)", (vector,))
    connection.execute("UPDATE meta SET value = 1 WHERE key = 'vectors'; UPDATE records SET embedded = 'model'")
    connection.close()
    database = Database(path, PROJECT)
    store = SqliteStore(database, "project", 1, lambda: DAY_ONE)
    assert [m.id for m in await store.find_near("model", np.ones(8, np.float32), RecordFilter(), 5)] == ["Ada"]
    assert [record.id for record in await store.scan(RecordFilter(after=DAY_ONE))] == ["Ada"]
    assert await store.find_faults() == []
    await database.close()


async def test_the_log_of_the_third_version_goes_on_with_changes_that_are_made_once(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    create(path, VERSION_3)
    connection = connect(path, VERSION_3)
    connection.execute(CONTENT)
    connection.close()
    database = Database(path, PROJECT)
    store = SqliteStore(database, "project", 1, lambda: DAY_ONE)
    before = await store.read_changes()
    assert [change.tool for change in before] == ["create", "update"]
    for _ in range(2):
        assert (await store.commit(batch(entity("Bob"), key="once"))).seq == 3
    await store.replicate(StorePage(records=[entity("Eve")], changes=before))
    assert [record.id for record in await store.scan(RecordFilter())] == ["Ada", "Bob", "Eve"]
    assert await store.find_faults() == []
    await database.close()


async def test_several_connections_bring_a_file_up_to_date_once(old: Path) -> None:
    databases = [Database(old, PROJECT) for _ in range(4)]
    for database in databases:
        store = SqliteStore(database, "project", 1, lambda: DAY_ONE)
        assert [record.id for record in await store.scan(RecordFilter())] == ["Ada"]
    for database in databases:
        await database.close()


async def test_an_old_file_that_cannot_be_written_says_so(old: Path) -> None:
    database = Database(old, PROJECT, read_only=True)
    with pytest.raises(ReadOnly):
        await SqliteStore(database, "project", 1, lambda: DAY_ONE).scan(RecordFilter())
    await database.close()


@pytest.fixture(params=[1, 2])
def old_library(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A data folder whose `_meta.db` is of an earlier version."""
    earlier = replace(LIBRARY, migrations=LIBRARY.migrations[: request.param])
    folder = tmp_path / "data"
    (folder / "projects").mkdir(parents=True)
    path = folder / "_meta.db"
    create(path, earlier)
    connection = connect(path, earlier)
    connection.execute(
        f"INSERT INTO notes VALUES ('default', 'shop');INSERT INTO tokens VALUES ('1', 'laptop', 'hash', {DAY_ONE})"
    )
    connection.close()
    return folder


async def test_a_library_of_an_earlier_version_is_brought_up_to_date_with_all_it_holds(old_library: Path) -> None:
    library = SqliteLibrary(old_library)
    assert await library.list_searches() == []
    await library.add_searches([SearchRecord(DAY_ONE, "search", "words", 1, 0.5)])
    await library.add_usage([ToolUsage("search", 1, 0, 0.5, 0.5, DAY_ONE)])
    assert await library.get_note("default") == "shop"
    assert await library.list_tokens() == [Token("1", "laptop", DAY_ONE)]
    await library.create("shop", "")
    await (await library.open_history_store()).commit(batch(entity("a turn")))
    await library.close()
    again = SqliteLibrary(old_library)
    assert [search.query for search in await again.list_searches()] == ["words"]
    assert await again.list_usage() == [ToolUsage("search", 1, 0, 0.5, 0.5, DAY_ONE)]
    assert [project.name for project in await again.list_projects()] == ["shop"]
    await again.close()


async def test_two_programs_bring_a_library_up_to_date_once(old_library: Path) -> None:
    libraries = [SqliteLibrary(old_library) for _ in range(4)]
    for library in libraries:
        await library.add_searches([SearchRecord(DAY_ONE, "search", "words", 1, 0.5)])
    assert len(await libraries[0].list_searches()) == 4
    for library in libraries:
        await library.close()


def test_another_program_finds_no_table_that_it_cannot_open(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    connection = connect(path, PROJECT)
    virtual = connection.execute("SELECT name FROM main.sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL%'").fetchall()
    connection.close()
    assert virtual == [("words",)]


class Explained:
    """A connection that remembers how each statement is carried out."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.plan = ""

    def execute(self, statement: str, bindings: Any = None) -> Rows:
        steps = self._connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)
        self.plan += "\n".join(str(step[3]) for step in steps)
        return self._connection.execute(statement, bindings)


@pytest.fixture
def explained(tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "project.db"
    create(path, PROJECT)
    connection = connect(path, PROJECT)
    yield Explained(connection)
    connection.close()


MEMORY = ("memory",)


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (RecordFilter(kinds=MEMORY), "records_kind"),
        (RecordFilter(kinds=MEMORY, visible_to="s", min_importance=0.5), "records_kind"),
        (RecordFilter(kinds=MEMORY, scopes=("project", "session")), "records_kind"),
        (RecordFilter(kinds=MEMORY, scopes=("project",)), "records_scope"),
        (RecordFilter(kinds=("turn", "code")), "records_kind"),
        (RecordFilter(kinds=("turn", "code"), scopes=("/src",)), "records_scope"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("order", ["age", "newest"])
def test_the_first_or_the_last_are_found_without_sorting_all(
    explained: Any, where: RecordFilter, index: str, order: Any
) -> None:
    queries.scan(explained, ScanRecords(where, order, limit=20))
    assert f" INDEX {index} " in explained.plan
    assert "ORDER BY" not in explained.plan


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (RecordFilter(kinds=MEMORY, sessions=("s",)), "INDEX records_session"),
        (RecordFilter(kinds=MEMORY, ids=("a", "b")), "INDEX sqlite_autoindex_records_1"),
        (RecordFilter(kinds=MEMORY, parents=("a",)), "INDEX records_parent"),
        (RecordFilter(kinds=MEMORY, name_keys=("a",)), "INDEX records_name"),
        (RecordFilter(kinds=MEMORY, tags=("a",)), "SEARCH tags"),
    ],
    ids=repr,
)
def test_few_are_found_by_what_makes_them_few(explained: Any, where: RecordFilter, index: str) -> None:
    queries.scan(explained, ScanRecords(where, limit=20))
    assert index in explained.plan
    assert "records_kind" not in explained.plan


@pytest.mark.parametrize("include_deleted", [False, True])
def test_records_are_found_by_their_ids_without_sorting_them(explained: Any, include_deleted: bool) -> None:
    queries.get_records(explained, GetRecords(["a", "b"], include_deleted))
    assert "INDEX sqlite_autoindex_records_1" in explained.plan
    assert "ORDER BY" not in explained.plan


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (RecordFilter(kinds=MEMORY, after=DAY_ONE), "records_at"),
        (RecordFilter(kinds=("turn", "code"), after=DAY_ONE, before=DAY_ONE), "records_at"),
        (RecordFilter(kinds=("turn", "code"), scopes=("/src",)), "records_scope"),
        (RecordFilter(kinds=("turn", "code"), scopes=("/src",), types=("decision",)), "records_live"),
    ],
    ids=repr,
)
def test_the_keys_of_all_that_fit_are_read_from_an_index(explained: Any, where: RecordFilter, index: str) -> None:
    search._read_keys(explained, where)
    assert f"USING COVERING INDEX {index} " in explained.plan


@pytest.mark.parametrize(
    "ask",
    [
        lambda db: queries.tally(db, TallyRecords(MEMORY)),
        lambda db: queries.list_authors(db, ListAuthors()),
        lambda db: vectors.count_vectors(db, CountVectors("model", MEMORY)),
    ],
    ids=["tally", "authors", "vectors"],
)
def test_counts_read_an_index_and_no_record(explained: Any, ask: Any) -> None:
    ask(explained)
    steps = [line for line in explained.plan.splitlines() if "records" in line]
    assert steps
    assert all("COVERING INDEX" in step for step in steps)
