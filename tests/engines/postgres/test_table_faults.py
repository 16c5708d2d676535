"""Tables that somebody else has changed."""

import pytest

from everkept.engines.postgres.library import PostgresLibrary
from everkept.errors import StoreDamaged
from postgres_libraries import Shelf, library_over
from postgres_server import Server
from records import batch, entity

TRIGGER = """
CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NEW; END$$;
CREATE TRIGGER spying BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION spy()
"""


async def told(library: PostgresLibrary) -> list[str]:
    return [fault.description for fault in await library.find_table_faults()]


async def test_what_everkept_makes_is_no_fault_and_looking_leaves_nothing(shelf: Shelf) -> None:
    library = shelf.library()
    await (await library.open_user_store()).commit(batch(entity("Ada")))
    for _ in range(2):
        assert await told(library) == []
    assert shelf.ask("SELECT FROM pg_class WHERE relname = 'records' AND relpersistence = 't'") == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (TRIGGER, {'trigger "spying" was not created by Everkept', 'function "spy" was not created by Everkept'}),
        ("CREATE RULE r AS ON INSERT TO edits DO INSTEAD NOTHING", {'rule "r" was not created by Everkept'}),
        ("CREATE VIEW spy AS SELECT * FROM tokens", {'view "spy" was not created by Everkept'}),
        ("CREATE TABLE spoils (a integer)", {'table "spoils" was not created by Everkept'}),
        ("ALTER TABLE records ALTER importance TYPE text", {'column "records.importance" was changed'}),
        ("ALTER TABLE records DROP COLUMN variant", {'column "records.variant" is missing'}),
        ("ALTER TABLE records SET UNLOGGED", {'table "records" was changed'}),
        ("ALTER TABLE records ENABLE ROW LEVEL SECURITY", {'table "records" was changed'}),
        ("DROP INDEX records_words", {'index "records_words" is missing'}),
        (
            "ALTER TABLE links ADD CONSTRAINT never CHECK (false) NOT VALID",
            {'constraint "never" was not created by Everkept'},
        ),
    ],
)
async def test_each_change_is_named(shelf: Shelf, change: str, found: set[str]) -> None:
    library = shelf.library()
    await library.open_user_store()
    with shelf.connection() as connection:
        connection.execute(change.encode())
    assert set(await told(library)) == found


async def test_functions_that_our_queries_would_take_for_built_in_ones_are_named(server: Server) -> None:
    library = library_over(server.database())
    await library.list_projects()
    with server.connect() as connection:
        connection.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        assert await told(library) == ['schema "public" is open to functions of every user']
        connection.execute(
            "CREATE FUNCTION public.ts_filter(tsvector, text) RETURNS tsvector LANGUAGE sql AS 'SELECT $1'"
        )
    assert 'function "public.ts_filter" was not created by Everkept' in await told(library)


async def test_a_change_that_breaks_a_call_is_the_error_of_that_call(shelf: Shelf) -> None:
    store = await shelf.library().open_user_store()
    with shelf.connection() as connection:
        connection.execute(b"ALTER TABLE records RENAME COLUMN variant TO other")
    with pytest.raises(StoreDamaged, match=r'"records\.variant" is missing'):
        await store.commit(batch(entity("Ada")))
