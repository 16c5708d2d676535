"""The server of the tests lacks the extension: another one, and another index, stand in for it."""

import pytest

from everkept.core.records import RecordFilter
from everkept.core.store import MatchText
from everkept.engines.postgres import indexes
from everkept.engines.postgres.indexes import IndexMaintenance
from everkept.engines.postgres.queries import match_text
from postgres_server import shared
from postgres_tables import Tables, said


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "TRIGRAM_EXTENSION", "plpgsql")
    monkeypatch.setattr(indexes, "TRIGRAM_METHOD", "btree")
    monkeypatch.setattr(indexes, "TRIGRAM_OPERATORS", "text_pattern_ops")


def definition(tables: Tables) -> str:
    found = tables.value("SELECT pg_get_indexdef(to_regclass(%s))", indexes.TRIGRAM_INDEX)
    return found or ""


def test_without_the_extension_there_is_no_index_of_trigrams(tables: Tables) -> None:
    assert not indexes.is_trigram_index_wanted(tables.cursor)
    indexes.build_trigram_index(tables.connection)
    assert definition(tables) == ""


@pytest.mark.usefixtures("extended")
def test_where_the_extension_is_there_the_index_is_made_once(tables: Tables) -> None:
    tables.add(said("a Kettle", id="text"), said("cup", id="name", name="kettles"))
    assert indexes.is_trigram_index_wanted(tables.cursor)
    indexes.build_trigram_index(tables.connection)
    assert not indexes.is_trigram_index_wanted(tables.cursor)
    for column in ("name", "type", "text"):
        assert f"lower({column}) text_pattern_ops" in definition(tables)
    found = match_text(tables.cursor, tables.store, MatchText("KETTLE", RecordFilter(), 9))
    assert [match.id for match in found] == ["name", "text"]
    made = tables.value("SELECT to_regclass(%s)::oid", indexes.TRIGRAM_INDEX)
    indexes.build_trigram_index(tables.connection)
    assert tables.value("SELECT to_regclass(%s)::oid", indexes.TRIGRAM_INDEX) == made
    tables.connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s", (made,))
    assert indexes.is_trigram_index_wanted(tables.cursor)
    indexes.build_trigram_index(tables.connection)
    assert not indexes.is_trigram_index_wanted(tables.cursor)


@pytest.mark.usefixtures("extended")
async def test_it_is_made_when_a_store_has_grown() -> None:
    database = shared().database()
    maintenance = IndexMaintenance(database)
    assert await database.read(indexes.is_trigram_index_wanted)
    maintenance.note_doubling(1)
    await maintenance.wait_until_settled()
    assert not await database.read(indexes.is_trigram_index_wanted)
    await database.close()


async def test_what_cannot_be_made_is_told_and_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(indexes, "TRIGRAM_EXTENSION", "plpgsql")  # which has no such operators
    database = shared().database()
    maintenance = IndexMaintenance(database)
    maintenance.note_doubling(1)
    await maintenance.wait_until_settled()
    assert await database.read(indexes.is_trigram_index_wanted)
    assert "indexes of store 1 not built" in caplog.text
    await database.close()
