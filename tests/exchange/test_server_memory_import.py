import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import RecordFilter
from everkept.core.times import read_clock
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import InvalidInput
from everkept.exchange.server_memory_import import import_server_memory, read_server_file


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RecordStore]:
    library = SqliteLibrary(tmp_path / "data")
    await library.create("default", "")
    _, store = await library.open("default")
    yield store
    await library.close()


def written(path: Path, *lines: Any) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def entity(name: str, kind: str, *observations: str) -> dict[str, Any]:
    return {"type": "entity", "name": name, "entityType": kind, "observations": [*observations]}


def relation(source: str, target: str) -> dict[str, Any]:
    return {"type": "relation", "from": source, "to": target, "relationType": "knows"}


async def test_a_file_is_taken_in_exactly_once(store: RecordStore, tmp_path: Path) -> None:
    many = [entity(f"n{i}", "thing", f"fact {i}") for i in range(400)]
    edges = [relation(f"n{i}", f"n{i + 1}") for i in range(399)]
    path = written(tmp_path / "memory.jsonl", *many, "{broken", *edges)
    seen: list[tuple[int, int]] = []
    first = await import_server_memory(read_server_file(path), store, read_clock, lambda *step: seen.append(step))
    assert (first.entities, first.observations, first.relations) == (400, 400, 399)
    assert [item.line for item in first.unreadable] == [401]
    assert seen[-1] == (799, 799)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    counted = await store.count_live()
    again = await import_server_memory(read_server_file(path), store, read_clock, lambda *_: None)
    assert (again.entities, again.observations, again.relations) == (0, 0, 0)
    assert await store.count_live() == counted


async def test_an_interrupted_import_goes_on_where_it_stopped(store: RecordStore, tmp_path: Path) -> None:
    path = written(tmp_path / "m.jsonl", *(entity(f"n{i}", "t", "x") for i in range(300)))

    def stop(done: int, _total: int) -> None:
        if done > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await import_server_memory(read_server_file(path), store, read_clock, stop)
    before = (await store.count_live())["entity"]
    assert 0 < before < 300
    rest = await import_server_memory(read_server_file(path), store, read_clock, lambda *_: None)
    assert rest.entities == 300 - before
    assert (await store.count_live())["entity"] == 300


async def test_a_relation_to_nobody_makes_a_stub_that_a_later_line_fills(store: RecordStore, tmp_path: Path) -> None:
    path = written(tmp_path / "m.jsonl", entity("Ada", "person"), relation("Ada", "Ghost"))
    await import_server_memory(read_server_file(path), store, read_clock, lambda *_: None)
    assert (await store.count_live())["entity"] == 2
    path = written(tmp_path / "m.jsonl", entity("Ghost", "service", "haunts"))
    found = await import_server_memory(read_server_file(path), store, read_clock, lambda *_: None)
    assert found.entities == 1
    assert (await store.count_live())["entity"] == 2


async def test_the_files_own_entities_are_meant_where_a_name_fits_two(store: RecordStore, tmp_path: Path) -> None:
    first = written(tmp_path / "a.jsonl", entity("Mercury", "planet"), entity("Sun", "star"))
    await import_server_memory(read_server_file(first), store, read_clock, lambda *_: None)
    second = written(tmp_path / "b.jsonl", entity("Mercury", "metal"), relation("Mercury", "Sun"))
    outcome = await import_server_memory(read_server_file(second), store, read_clock, lambda *_: None)
    assert outcome.relations == 1
    third = written(tmp_path / "c.jsonl", relation("Sun", "Mercury"))
    outcome = await import_server_memory(read_server_file(third), store, read_clock, lambda *_: None)
    assert [item.line for item in outcome.unreadable] == [1]


async def test_names_that_differ_in_case_stay_apart(store: RecordStore, tmp_path: Path) -> None:
    path = written(
        tmp_path / "m.jsonl", entity("Alice", "person", "x"), entity("alice", "person", "y"), relation("alice", "Alice")
    )
    outcome = await import_server_memory(read_server_file(path), store, read_clock, lambda *_: None)
    assert (outcome.entities, outcome.relations) == (2, 1)
    (link,) = await store.find_links([r.id for r in await store.scan(RecordFilter(kinds=("entity",)))])
    assert link.source != link.target
    again = await import_server_memory(read_server_file(path), store, read_clock, lambda *_: None)
    assert (again.entities, again.observations, again.relations) == (0, 0, 0)


async def test_a_file_that_is_not_there_is_the_callers_mistake(store: RecordStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        await import_server_memory(read_server_file(tmp_path / "none"), store, read_clock, lambda *_: None)


async def test_secrets_in_names_types_and_verbs_are_kept_out(store: RecordStore, tmp_path: Path) -> None:
    token = "gh" + "p_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3cD6"
    path = written(
        tmp_path / "memory.jsonl",
        entity(f"House {token}", f"{token} shed", f"has {token}"),
        relation(f"House {token}", f"Door {token}") | {"relationType": f"opens with {token}"},
    )
    first = await import_server_memory(read_server_file(path), store, read_clock, lambda *_: None)
    assert (first.entities, first.relations, first.masked) == (2, 1, ["github token"])
    again = await import_server_memory(read_server_file(path), store, read_clock, lambda *_: None)
    assert (again.entities, again.observations, again.relations) == (0, 0, 0)
    kept = repr([await store.scan(RecordFilter()), await store.scan_links(deleted=None)])
    assert token.lower() not in kept.lower()
