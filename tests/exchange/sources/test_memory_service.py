"""What mcp-memory-service stored, imported from its database and from its export."""

import json
import sqlite3
from pathlib import Path

import pytest

from everkept.core.records import Delete
from everkept.core.times import format_iso
from everkept.errors import InvalidInput
from everkept.exchange.sources.memory_service import MEMORY_SERVICE
from foreign_stores import Home, unpack_rival
from plugin_databases import read_files
from records import batch

CHOSEN = "We chose PostgreSQL for orders"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack_rival("mcp-memory-service", tmp_path)


async def test_memories_keep_times_tags_and_projects_and_come_once(home: Home, store: Path) -> None:
    before = read_files(store)
    first = await home.take(MEMORY_SERVICE, store)
    assert (first.memories, first.skipped) == (3, {"deleted there": 1})
    chosen = (await home.memories())[CHOSEN]
    assert (chosen.type, chosen.scope, chosen.importance) == ("semantic", "project", 0.8)
    assert chosen.tags == ("decision", "db")
    assert format_iso(chosen.created_at) == "2026-11-16T08:11:14.630Z"
    assert [*await home.memories("shop")] == ["Deploy with blue green"]
    assert [*await home.memories(None)] == ["Use ruff for linting, never black"]
    again = await home.take(MEMORY_SERVICE, store)
    assert (again.memories, again.unchanged) == (0, 3)
    assert read_files(store) == before


async def test_the_export_of_the_same_memories_adds_nothing(home: Home, store: Path) -> None:
    await home.take(MEMORY_SERVICE, store)
    exported = await home.take(MEMORY_SERVICE, store / "export.json")
    assert (exported.memories, exported.unchanged) == (0, 2)


async def test_a_dry_run_says_what_becomes_what_and_stores_nothing(home: Home, store: Path) -> None:
    planned = await home.take(MEMORY_SERVICE, store, dry_run=True)
    assert [(each.kind, each.becomes, each.project) for each in planned.kinds] == [
        ("decision", "semantic memory", "default"),
        ("workflow", "procedural memory", "shop"),
        ("preference_signal", "semantic memory", "the user"),
    ]
    assert planned.memories == 3
    assert await home.memories() == {}


async def test_what_is_forgotten_here_stays_forgotten(home: Home, store: Path) -> None:
    await home.take(MEMORY_SERVICE, store)
    chosen = (await home.memories())[CHOSEN]
    await (await home.open("default")).commit(batch(Delete(chosen.ref)))
    again = await home.take(MEMORY_SERVICE, store)
    assert (again.memories, again.forgotten) == (0, 1)


async def test_versions_links_and_beliefs_come_along(home: Home, store: Path) -> None:
    database = sqlite3.connect(store / "sqlite_vec.db")
    add = "INSERT INTO memories (content_hash, content, tags, memory_type, created_at, updated_at, parent_id) VALUES "
    database.execute(add + "('new', 'The port is 9090', '', 'note', 5e8, 5e8, 'old')")
    database.execute(add + "('old', 'The port is 8080', '', 'note', 4e8, 4e8, NULL)")
    for ends in (("new", "old"), ("old", "new")):
        database.execute(
            "INSERT INTO memory_graph (source_hash, target_hash, similarity, connection_types, relationship_type, "
            "created_at) VALUES (?, ?, 1, '[]', 'related', 5e8)",
            ends,
        )
    belief = "INSERT INTO beliefs (belief_hash, content, confidence, status, created_at, updated_at, derived_from) "
    moment = "'2026-01-01T00:00:00+00:00'"
    database.execute(f"""{belief} VALUES ('b', 'Ports change', 0.9, 'active', {moment}, {moment}, '["new"]')""")
    database.execute(f"{belief} VALUES ('c', 'Maybe', 0.1, 'candidate', {moment}, {moment}, '[]')")
    database.commit()
    database.close()
    outcome = await home.take(MEMORY_SERVICE, store)
    memories = await home.memories()
    assert memories["The port is 8080"].facets["superseded_by"] == memories["The port is 9090"].id
    assert await home.triples() == {
        ("The port is 9090", "supersedes", "The port is 8080"),
        ("The port is 9090", "related", "The port is 8080"),
        ("Ports change", "derived_from", "The port is 9090"),
    }
    assert outcome.skipped == {"candidate belief": 1, "deleted there": 1}


async def test_an_export_says_in_the_metadata_which_memory_was_replaced(home: Home, tmp_path: Path) -> None:
    rows = [
        {"content": "The port is 8080", "content_hash": "old", "metadata": {"superseded_by": "new"}},
        {"content": "The port is 9090", "content_hash": "new", "metadata": {}},
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"export_metadata": {}, "memories": rows}), encoding="utf-8")
    await home.take(MEMORY_SERVICE, path)
    memories = await home.memories()
    old, new = memories["The port is 8080"], memories["The port is 9090"]
    assert (old.facets["superseded_by"], new.facets["supersedes"]) == (new.id, old.id)
    assert await home.triples() == {("The port is 9090", "supersedes", "The port is 8080")}


async def test_entities_that_the_program_found_are_linked(home: Home, store: Path) -> None:
    database = sqlite3.connect(store / "sqlite_vec.db")
    database.execute(
        "INSERT INTO memory_graph (source_hash, target_hash, similarity, connection_types, metadata, created_at, "
        "relationship_type) SELECT content_hash, 'PostgreSQL', 1, '[\"entity\"]', '{\"entity_type\": \"technology\"}', "
        "5e8, 'has_entity' FROM memories WHERE content = ?",
        (CHOSEN,),
    )
    database.commit()
    database.close()
    outcome = await home.take(MEMORY_SERVICE, store)
    assert await home.triples() == {(CHOSEN, "about", "PostgreSQL")}
    assert (outcome.entities, outcome.skipped) == (1, {"deleted there": 1})


async def test_a_secret_in_a_memory_is_masked(home: Home, tmp_path: Path) -> None:
    secret = f"sk-ant-api03-{'a' * 93}AA"
    row = {"content": f"The key is {secret}", "content_hash": "x", "tags": [secret], "metadata": {"note": secret}}
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"export_metadata": {}, "memories": [row]}), encoding="utf-8")
    outcome = await home.take(MEMORY_SERVICE, path)
    assert outcome.masked
    assert secret not in repr([*(await home.memories()).values()])


@pytest.mark.parametrize("content", ["", "hello", "[]", '{"memories": [', '{"a": 1}', "SQLite format 3\0" + "x" * 200])
async def test_another_file_is_refused(home: Home, tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        await home.take(MEMORY_SERVICE, path)
    assert str(path) in refused.value.message
    assert await home.memories() == {}


async def test_a_database_without_usual_columns_is_read(home: Home, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "sqlite_vec.db")
    database.execute("CREATE TABLE memories (content_hash, content)")
    database.execute("INSERT INTO memories VALUES ('x', ?)", (CHOSEN,))
    database.commit()
    database.close()
    assert (await home.take(MEMORY_SERVICE, tmp_path)).memories == 1
