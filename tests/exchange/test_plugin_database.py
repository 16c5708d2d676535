"""Where the database of the surrealdb-memory plugin is, and what a server says about it."""

import logging
from pathlib import Path

import pytest

from everkept.errors import InvalidInput
from everkept.exchange.plugin_database import announce_plugin_data, find_plugin_place, open_plugin_database
from everkept.settings import Settings, read_settings
from plugin_databases import fill
from surreal_server import PASSWORD, USER, fresh_namespace, shared


async def announced(settings: Settings, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "everkept"):
        await announce_plugin_data(settings)
    return [record.getMessage() for record in caplog.records]


async def test_memories_on_the_server_that_is_used_are_announced_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, namespace = shared(3), fresh_namespace()
    environment = {"EVERKEPT_DATABASE_PASSWORD": PASSWORD, "EVERKEPT_NAMESPACE": namespace}
    settings = read_settings({"data_dir": tmp_path, "database_url": server.url, "database_user": USER}, environment)
    assert await announced(settings, caplog) == []
    connection = server.connection(namespace)
    await fill(connection, indexes=False)
    [said] = await announced(settings, caplog)
    assert f"run `everkept import surrealdb-memory {server.url}` to import them" in said
    assert PASSWORD not in said
    assert await announced(settings, caplog) == []
    place = find_plugin_place(settings, {})
    assert (place.shown, place.namespace, place.database) == (server.url, namespace, "default")
    await connection.close()


async def test_a_name_that_a_server_does_not_have_is_refused_and_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    server, known, typo = shared(3), fresh_namespace(), fresh_namespace()
    connection = server.connection(known)
    await connection.run("other", "RETURN 1")
    monkeypatch.setenv("EVERKEPT_DATABASE_PASSWORD", PASSWORD)
    for namespace in (typo, known):
        place = find_plugin_place(read_settings(), {"database_user": USER}, server.url, namespace=namespace)
        with pytest.raises(InvalidInput, match=f"namespace {namespace}, database default"):
            async with open_plugin_database(place):
                pass
    [root, space] = await connection.run("other", "INFO FOR ROOT; INFO FOR NS")
    assert typo not in root["namespaces"]
    assert list(space["databases"]) == ["other"]
    await connection.close()


async def test_a_server_that_cannot_be_asked_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = read_settings({"data_dir": tmp_path, "database_url": "ws://127.0.0.1:1"}, {})
    assert await announced(settings, caplog) == []


async def test_a_reader_writes_no_note_of_what_it_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "data" / "clog").mkdir(parents=True)
    named = {"MEMORY_DB_PATH": str(tmp_path / "data")}
    assert await announced(read_settings({"read_only": True}, named), caplog) == []
    assert not (tmp_path / "data.everkept").exists()
    [said] = await announced(read_settings({}, named), caplog)
    assert str(tmp_path / "data") in said
