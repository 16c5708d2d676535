"""The library's own database, where another one is in its place."""

import pytest

from everkept.core.records import RecordFilter
from everkept.engines.surreal import connection as trying
from everkept.engines.surreal.connection import WriteContention, retry
from everkept.errors import Conflict, NotFound, StoreBusy, StoreUnreachable
from records import batch, entity
from surreal_libraries import library_over
from surreal_server import CORES, served


@pytest.mark.parametrize("core", CORES)
async def test_a_server_that_has_forgotten_everything_is_a_new_one(core: int) -> None:
    async with served(core) as server:
        library = library_over(server.connection("memory"))
        await library.create("shop", "")
        await library.set_note("key", "value")
        await server.restart()
        again = library_over(server.connection("memory"))
        assert await again.list_projects() == []
        await again.create("other", "")
        _, store = await again.open("other")
        await store.commit(batch(entity("Ada")))
        assert len(await store.scan(RecordFilter())) == 1


@pytest.mark.parametrize("core", CORES)
async def test_what_was_asked_of_it_before_is_asked_of_the_new_one(core: int) -> None:
    async with served(core) as server:
        connection = server.connection("memory")
        library = library_over(connection)
        await library.create("shop", "")
        for database in ("default", "default_user"):
            await connection.run("default", f"REMOVE DATABASE IF EXISTS {database}")
        assert await library.list_projects() == []
        await library.create("shop", "")
        await library.set_note("key", "value")
        assert await library.get_note("key") == "value"


@pytest.mark.parametrize("core", CORES)
async def test_a_server_that_was_started_anew_gets_its_tables_from_who_knew_it_before(core: int) -> None:
    async with served(core) as server:
        connection = server.connection("memory")
        library = library_over(connection)
        await library.create("shop", "")
        _, shop = await library.open("shop")
        user = await library.open_user_store()
        await user.commit(batch(entity("Ada")))
        await server.restart()
        for attempt in range(2):  # the first may find that the connection was lost
            try:
                await library.create("shop", "")
                break
            except StoreUnreachable:
                assert attempt == 0
        with pytest.raises(Conflict):
            await library.create("shop", "")
        for database, table in (("default", "project"), ("default_user", "record")):
            await user.commit(batch(entity(f"{table} keeper")))
            [told] = await connection.run(database, f"INFO FOR TABLE {table}")
            assert told["indexes"]
            assert told["fields"]
        with pytest.raises(NotFound):  # nobody brings back a project that is no more
            await shop.commit(batch(entity("Bob")))


async def test_what_others_keep_disturbing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "MAX_PAUSE_SECONDS", 0)
    attempts = 0

    async def disturbed() -> None:
        nonlocal attempts
        attempts += 1
        raise WriteContention

    with pytest.raises(StoreBusy):
        await retry(disturbed)
    assert attempts == trying.MAX_ATTEMPTS
