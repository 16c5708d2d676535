"""What mem0 stored, imported from its databases and from JSON."""

import json
import pickle
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest

from everkept.core.times import format_iso
from everkept.errors import InvalidInput
from everkept.exchange.sources.mem0 import MEM0
from foreign_stores import Home, unpack_rival
from plugin_databases import read_files

RUFF, ORDERS, NOTED = "I prefer ruff over black", "Orders live in PostgreSQL 18", "Noted."


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack_rival("mem0", tmp_path)


def write_json(folder: Path, value: Any) -> Path:
    path = folder / "memories.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


async def test_memories_of_the_qdrant_folder_keep_author_session_and_tags(home: Home, store: Path) -> None:
    before = read_files(store)
    first = await home.take(MEM0, store)
    assert (first.memories, first.projects) == (3, [])
    memories = await home.memories(None)
    ruff = memories[RUFF]
    assert (ruff.author, ruff.session, ruff.tags, ruff.scope) == ("coder", "r1", ("tools",), "user")
    assert format_iso(memories[ORDERS].updated_at) == "2026-11-16T08:09:32.764Z"
    again = await home.take(MEM0, store)
    assert (again.memories, again.updated, again.unchanged) == (0, 0, 3)
    assert read_files(store) == before


async def test_the_history_alone_has_the_newest_texts_and_takes_nothing_away(home: Home, store: Path) -> None:
    alone = await home.take(MEM0, store / "history.db")
    assert {RUFF, ORDERS, NOTED} == {*await home.memories(None)}
    richer = await home.take(MEM0, store / "qdrant")
    assert (alone.memories, richer.memories) == (3, 0)
    again = await home.take(MEM0, store / "history.db")
    assert (again.updated, again.unchanged) == (0, 3)
    assert (await home.memories(None))[RUFF].tags == ("tools",)


async def test_deleted_memories_of_the_history_stay_out(home: Home, store: Path) -> None:
    database = sqlite3.connect(store / "history.db")
    database.execute(
        "INSERT INTO history (id, memory_id, old_memory, event, created_at, is_deleted) "
        "SELECT 'x', memory_id, new_memory, 'DELETE', created_at, 1 FROM history WHERE new_memory = ?",
        (RUFF,),
    )
    database.commit()
    database.close()
    outcome = await home.take(MEM0, store / "history.db")
    assert (outcome.memories, outcome.skipped) == (2, {"deleted there": 2})


class Trap:
    """Pickles to a call, as a hostile file would."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


async def test_a_pickle_runs_no_code_and_its_plain_values_are_read(home: Home, store: Path, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    point = {"id": "p", "payload": {"data": "The port is 8080", "when": Trap(touched), "n": [1, (2, 3)]}}
    path = store / "qdrant/collection/mem0/storage.sqlite"
    database = sqlite3.connect(path)
    database.execute("INSERT INTO points (id, point) VALUES ('a', ?)", (pickle.dumps(point),))
    database.execute("INSERT INTO points (id, point) VALUES ('b', ?)", (b"\x80\x04broken",))
    database.commit()
    database.close()
    outcome = await home.take(MEM0, store)
    stored = (await home.memories(None))["The port is 8080"]
    assert stored.facets["metadata"] == {"when": None, "n": [1, [2, 3]]}
    assert outcome.skipped["unreadable"] == 1
    assert not touched.exists()


async def test_entities_of_the_second_collection_are_linked(home: Home, store: Path) -> None:
    memory = "796045e4-fdde-457d-958e-22f405c15dd0"
    folder = store / "qdrant/collection/mem0_entities"
    folder.mkdir()
    database = sqlite3.connect(folder / "storage.sqlite")
    database.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
    payload = {"data": "PostgreSQL", "entity_type": "database", "linked_memory_ids": [memory]}
    database.execute("INSERT INTO points VALUES ('e', ?)", (pickle.dumps({"id": "e", "payload": payload}),))
    database.commit()
    database.close()
    await home.take(MEM0, store)
    assert {(source, target) for source, _, target in await home.triples(None)} == {(ORDERS, "PostgreSQL")}


async def test_lists_of_the_api_skip_expired_memories_and_know_apps(home: Home, tmp_path: Path) -> None:
    row = {"user_id": "ada", "created_at": "2026-03-01T00:00:00-07:00", "metadata": None}
    rows = [
        {**row, "id": "1", "memory": "Use tabs", "app_id": "shop", "categories": ["style"]},
        {**row, "id": "2", "memory": "Away", "expiration_date": "2020-01-01"},
        {**row, "id": "3", "memory": "Stays", "expiration_date": "2999-01-01"},
    ]
    outcome = await home.take(MEM0, write_json(tmp_path, {"count": 3, "next": None, "results": rows}))
    assert (outcome.memories, outcome.skipped) == (2, {"expired there": 1})
    tabs = (await home.memories("shop"))["Use tabs"]
    assert (tabs.tags, format_iso(tabs.created_at)) == (("style",), "2026-03-01T07:00:00.000Z")
    assert [*await home.memories(None)] == ["Stays"]
    bare = await home.take(MEM0, write_json(tmp_path, rows))
    assert (bare.memories, bare.unchanged) == (0, 2)


async def test_an_archive_of_openmemory_keeps_categories_and_skips_deleted_ones(home: Home, tmp_path: Path) -> None:
    content = {
        "user": {"id": "u"},
        "categories": [{"id": "c", "name": "food"}],
        "memories": [
            {"id": "1", "content": "Likes tea", "state": "active", "category_ids": ["c"]},
            {"id": "2", "content": "Likes coffee", "state": "deleted"},
        ],
    }
    path = tmp_path / "memories_export_ada.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("memories.json", json.dumps(content))
        archive.writestr("__MACOSX/memories.json", "{")
    outcome = await home.take(MEM0, path)
    assert (outcome.memories, outcome.skipped) == (1, {"deleted there": 1})
    assert (await home.memories(None))["Likes tea"].tags == ("food",)


@pytest.mark.parametrize("content", ["", "[]", '[{"id": 1}]', "{", "SQLite format 3\0" + "x" * 200])
async def test_another_file_is_refused(home: Home, tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        await home.take(MEM0, path)
    assert str(path) in refused.value.message


async def test_an_empty_folder_and_a_broken_archive_are_refused(home: Home, tmp_path: Path) -> None:
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK\x03\x04 and no more")
    for place in (tmp_path, broken, tmp_path / "none"):
        with pytest.raises(InvalidInput):
            await home.take(MEM0, place)
