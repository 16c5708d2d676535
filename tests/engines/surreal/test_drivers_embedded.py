"""SurrealDB inside this process: in memory, and in a folder."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from everkept.engines.surreal.connection import AlreadyExists, TransactionThrown
from everkept.engines.surreal.drivers import EmbeddedConnection
from everkept.errors import InvalidInput, QueryTimeout, StoreBusy, StoreDamaged, StoreTooNew, StoreUnreachable
from processes import acting, said_by
from surreal_server import PATIENCE, served

NS, DB = "memory", "default"


@pytest.fixture(params=["memory", "folder"])
async def connection(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[EmbeddedConnection, None]:
    place = tmp_path / "of a person" if request.param == "folder" else None
    connection = EmbeddedConnection(place, NS)
    yield connection
    await connection.close()


async def test_every_statement_gives_its_result(connection: EmbeddedConnection) -> None:
    assert await connection.run(DB, "RETURN 1; RETURN $two", {"two": 2}) == [1, 2]
    assert not connection.is_modern
    assert connection.version.startswith("2.")
    assert connection.version.count(".") == 2


async def test_a_failure_of_any_statement_is_raised(connection: EmbeddedConnection) -> None:
    with pytest.raises(TransactionThrown, match=r"^no$"):
        await connection.run(DB, "RETURN 1; RETURN 2; THROW 'no'")
    with pytest.raises(RuntimeError, match="statement 2"):
        await connection.run(DB, "RETURN 1; RETURN 1 + $text; RETURN 3", {"text": "hush"})
    with pytest.raises(AlreadyExists):
        await connection.run(DB, "CREATE a:1; CREATE a:1")
    with pytest.raises(InvalidInput):
        await connection.run(DB, "RETURN $text", {"text": "a\0b"})


async def test_texts_at_once_go_to_their_own_databases(connection: EmbeddedConnection) -> None:
    text = "SLEEP 5ms; RETURN session::db()"
    asked = [connection.run(f"db_{n % 5}", text) for n in range(50)]
    assert await asyncio.gather(*asked) == [[None, f"db_{n % 5}"] for n in range(50)]


async def test_of_what_is_written_at_once_nothing_is_lost(connection: EmbeddedConnection) -> None:
    await connection.run(DB, "UPSERT c:1 SET n = 0")
    adding = "BEGIN; LET $n = c:1.n; SLEEP 5ms; UPDATE c:1 SET n = $n + 1; COMMIT"
    await asyncio.gather(*(connection.run(DB, adding) for _ in range(20)))
    assert await connection.run(DB, "RETURN c:1.n") == [20]


async def test_who_writes_keeps_its_turn_when_its_asker_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = EmbeddedConnection(tmp_path / "db", NS, time_limit=PATIENCE)
    await connection.run(DB, "UPSERT c:1 SET n = 0")
    adding = "BEGIN; LET $n = c:1.n; SLEEP 5s; UPDATE c:1 SET n = $n + 1; COMMIT"
    with monkeypatch.context() as hurried:
        hurried.setattr(connection, "_time_limit", 0.1)
        with pytest.raises(StoreUnreachable, match="outcome is unknown"):
            await connection.run(DB, adding)
        with pytest.raises(QueryTimeout, match="Nothing was stored"):
            await connection.run(DB, "UPDATE c:1 SET n += 10")
    await connection.run(DB, "UPDATE c:1 SET n += 1")
    assert await connection.run(DB, "RETURN c:1.n") == [2]
    await connection.close()


async def test_a_slow_query_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = EmbeddedConnection(None, NS, time_limit=PATIENCE)
    await connection.open()
    with monkeypatch.context() as hurried:
        hurried.setattr(connection, "_time_limit", 0.2)
        with pytest.raises(QueryTimeout):
            await connection.run(DB, "SLEEP 5s")
    assert await connection.run(DB, "RETURN 1") == [1]
    await connection.close()


async def test_what_a_cancelled_caller_began_is_finished(connection: EmbeddedConnection) -> None:
    await connection.open()
    call = asyncio.ensure_future(connection.run(DB, "SLEEP 100ms; CREATE a:1 SET n = 1"))
    await asyncio.sleep(0)
    call.cancel()
    async with asyncio.timeout(PATIENCE):
        while await connection.run(DB, "SELECT VALUE n FROM a") != [[1]]:  # noqa: ASYNC110 - it sends no event
            await asyncio.sleep(0.01)
    assert call.cancelled()


async def test_closing_ends_what_is_under_way(connection: EmbeddedConnection) -> None:
    await connection.open()
    call = asyncio.ensure_future(connection.run(DB, "SLEEP 1m"))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(StoreUnreachable):
        await call
    with pytest.raises(StoreUnreachable):
        await connection.run(DB, "RETURN 1")


async def test_a_folder_has_its_data_again_when_it_is_opened_again(tmp_path: Path) -> None:
    for number in range(3):
        connection = EmbeddedConnection(tmp_path, NS)
        await connection.run(DB, "CREATE a SET n = 1")
        assert await connection.run(DB, "SELECT VALUE n FROM a") == [[1] * (number + 1)]
        await connection.close()


async def test_a_folder_belongs_to_one_opening_at_a_time(tmp_path: Path) -> None:
    first, second = EmbeddedConnection(tmp_path, NS), EmbeddedConnection(tmp_path, NS)
    await first.run(DB, "CREATE a SET n = 1")
    with pytest.raises(StoreBusy) as raised:
        await second.run(DB, "RETURN 1")
    assert raised.value.retry_possible
    assert str(tmp_path) in str(raised.value)
    assert "local-server" in str(raised.value)
    told = await asyncio.to_thread(said_by, "surreal_holders:visit", tmp_path)
    assert told["error"] == "store_busy"
    await first.close()
    assert await second.run(DB, "SELECT VALUE n FROM a") == [[1]]
    await second.close()


async def test_a_killed_holder_gives_the_folder_back_with_all_it_had_said(tmp_path: Path) -> None:
    def filled() -> int:
        with acting("surreal_holders:fill", tmp_path) as holder:
            assert holder.hear() == 0
            assert said_by("surreal_holders:visit", tmp_path)["error"] == "store_busy"
            return max([0, *holder.kill()])

    last = await asyncio.to_thread(filled)
    connection = EmbeddedConnection(tmp_path, NS)
    [found] = await connection.run(DB, "SELECT VALUE n FROM a")
    await connection.close()
    assert set(found) >= set(range(last + 1))


async def test_a_folder_of_version_3_is_too_new_and_left_as_it_is(tmp_path: Path) -> None:
    async with served(3, tmp_path) as server:
        await server.connection(NS).run(DB, "CREATE a:1 SET n = 1")
        await server.kill()
        connection = EmbeddedConnection(tmp_path, NS)
        with pytest.raises(StoreTooNew):
            await connection.run(DB, "RETURN 1")
        await connection.close()
        await server.restart()
        assert await server.connection(NS).run(DB, "SELECT VALUE n FROM a") == [[1]]


async def test_a_folder_of_something_else_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "manifest").write_text("a list", encoding="utf-8")
    connection = EmbeddedConnection(tmp_path, NS)
    with pytest.raises(StoreDamaged):
        await connection.run(DB, "RETURN 1")
    await connection.close()


if sys.platform != "win32":

    def test_no_room_is_told_with_sizes_and_writing_goes_on_once_there_is(tmp_path: Path) -> None:
        with acting("surreal_holders:outgrow", tmp_path, 50_000) as writer:
            told, found = writer.hear(), writer.hear()
        assert told["error"] == "storage_full"
        assert told["current_size"] > 0
        assert told["free"] > 0
        assert told["limit"] >= told["current_size"]
        assert found == [[1, 3]]
