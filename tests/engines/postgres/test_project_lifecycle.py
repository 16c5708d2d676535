"""What becomes of the rows of projects that come and go."""

import asyncio

import pytest

from everkept.core.answers import CatalogData
from everkept.core.records import RecordFilter
from everkept.engines.postgres.indexes import IndexedVectors, build_vector_index
from everkept.errors import NotFound, ProjectArchived, StoreBusy
from postgres_libraries import Shelf
from records import batch, entity, link

MANY = 5_000
PATIENCE = 30  # seconds; nothing takes that long unless it hangs


def tables(shelf: Shelf) -> list[str]:
    """Those that have a store's rows."""
    rows = shelf.ask(
        "SELECT table_name FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND column_name = 'store' ORDER BY table_name"
    )
    return [name for (name,) in rows]


def stores_in(shelf: Shelf, table: str) -> set[int]:
    return {store for (store,) in shelf.ask(f"SELECT DISTINCT store FROM {table}")}


async def test_a_deleted_project_leaves_no_row_in_any_table(shelf: Shelf) -> None:
    library = shelf.library()
    for name in ("gone", "kept"):
        await library.link_workspace(f"/work/{name}", await library.create(name, ""))
        _, store = await library.open(name)
        await store.commit(batch(entity("Ada", text="one"), entity("Bob", text="two")))
        await store.commit(batch(link("Ada", "knows", "Bob")))
        await store.note_accesses({"Ada": 2}, 1)
    before = {table: stores_in(shelf, table) for table in tables(shelf)}
    assert {"records", "links", "changes", "edits", "accesses", "projects"} <= before.keys()
    [(kept,)] = shelf.ask("SELECT store FROM projects WHERE name = 'kept'")
    await library.delete("gone")
    after = {table: stores_in(shelf, table) for table in tables(shelf)}
    assert after == {table: stores & {kept} for table, stores in before.items()}
    assert shelf.ask("SELECT count(*) FROM stores") == [(3,)]
    assert shelf.ask("SELECT path FROM workspaces") == [("/work/kept",)]


async def test_every_table_of_records_goes_with_its_store_by_an_index(shelf: Shelf) -> None:
    await shelf.library().list_projects()
    rows = shelf.ask(
        "SELECT conrelid::regclass::text, confdeltype, EXISTS (SELECT FROM pg_index "
        "WHERE indrelid = conrelid AND indkey[0] = conkey[1] AND indpred IS NULL) "
        "FROM pg_constraint WHERE confrelid = 'stores'::regclass"
    )
    assert {name for name, *_ in rows} == set(tables(shelf))
    assert {tuple(rest) for _, *rest in rows} == {("c", True)}


async def test_a_project_of_many_records_goes_as_a_whole(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    await ours.create("shop", "")
    _, store = await ours.open("shop")
    await store.commit(batch(*(entity(f"entity {number}") for number in range(MANY))))
    assert await store.count_live() == {"entity": MANY, "link": 0}
    await theirs.delete("shop")
    assert shelf.ask("SELECT count(*) FROM records") == [(0,)]
    assert shelf.ask("SELECT count(*) FROM edits") == [(0,)]
    with pytest.raises(NotFound):
        await store.commit(batch(entity("Ada")))


async def test_the_index_over_its_vectors_goes_with_a_project(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    for name in ("kept", "gone", "taken"):
        await ours.create(name, "")
    rows = shelf.ask("SELECT name, store FROM projects ORDER BY name")
    indexes = {name: IndexedVectors(store, "a model", 3) for name, store in rows}
    with shelf.connection() as connection:
        for vectors in indexes.values():
            assert build_vector_index(connection, vectors)
    await theirs.delete("gone")
    async with asyncio.timeout(PATIENCE):
        while len(await asyncio.to_thread(vector_indexes, shelf)) > 2:
            pass
    assert vector_indexes(shelf) == {indexes["kept"].name, indexes["taken"].name}
    await theirs.replace_catalog_data(CatalogData(projects=[await ours.get_project("kept")]))
    async with asyncio.timeout(PATIENCE):
        while len(await asyncio.to_thread(vector_indexes, shelf)) > 1:
            pass
    assert vector_indexes(shelf) == {indexes["kept"].name}


def vector_indexes(shelf: Shelf) -> set[str]:
    rows = shelf.ask(
        "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "JOIN pg_am a ON a.oid = c.relam WHERE i.indrelid = 'vectors'::regclass "
        "AND a.amname = 'hnsw'"
    )
    return {name for (name,) in rows}


async def test_an_id_that_was_deleted_begins_anew(shelf: Shelf) -> None:
    library = shelf.library()
    for _ in range(2):
        await library.create("shop", "", project_id="an id")
        _, store = await library.open("shop")
        assert await store.scan(RecordFilter(deleted=None)) == []
        await store.commit(batch(entity("Ada")))
        await library.delete("shop")


async def test_who_copies_an_archived_project_cannot_write_to_it(shelf: Shelf) -> None:
    library = shelf.library()
    made = await library.create("shop", "")
    await library.archive("shop")
    store = await library.get_store(made)
    with pytest.raises(ProjectArchived):
        await store.commit(batch(entity("Ada")))
    await library.restore("shop")
    await store.commit(batch(entity("Ada")))


async def test_an_archived_project_accepts_a_write_that_was_acknowledged_before(shelf: Shelf) -> None:
    library = shelf.library()
    made = await library.create("shop", "")
    await library.archive("shop")
    await (await library.get_store(made)).commit(batch(entity("Ada"), late=True))
    await library.restore("shop")
    _, store = await library.open("shop")
    assert [record.id for record in await store.scan(RecordFilter())] == ["Ada"]


async def test_a_folder_whose_project_goes_meanwhile_is_given_to_who_asks(shelf: Shelf) -> None:
    library = shelf.library()
    old, new = [await library.create(name, "") for name in ("old", "new")]
    await library.link_workspace("/shop", old)
    with shelf.connection() as connection:
        # As if the other project were deleted between our two statements.
        connection.execute(
            f"""
            CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN DELETE FROM workspaces WHERE project = '{old.id}'; RETURN NULL; END $$;
            CREATE TRIGGER gone AFTER INSERT ON workspaces EXECUTE FUNCTION gone();
            """.encode()
        )
    assert await library.link_workspace("/shop", new) == new
    assert await library.find_workspace_project("/shop") == new
    with shelf.connection() as connection:
        connection.execute(
            b"CREATE OR REPLACE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS "
            b"$$ BEGIN DELETE FROM workspaces; RETURN NULL; END $$"
        )
    with pytest.raises(StoreBusy, match="folder"):
        await library.link_workspace("/other", new)


async def test_a_path_may_be_long(shelf: Shelf) -> None:
    library = shelf.library()
    shop = await library.create("shop", "")
    path = "/läden/" + "x" * 9_000
    assert await library.link_workspace(path, shop) == shop
    assert await library.find_workspace_project(path) == shop
    assert await library.find_workspace_project(path + "x") is None
    await library.set_off("shop", off=True)
    await library.delete("shop")
    [silence] = await library.list_off_periods()
    assert silence.folder == path
