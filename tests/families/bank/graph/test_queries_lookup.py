from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bank_graph import CountingRecords, Graphing, SilentMirror, graph_in, offer
from everkept.core.ports import Library
from everkept.core.records import Delete, Insert, Record, RecordFilter, Restore, Step, Update
from everkept.core.times import format_iso
from everkept.engines.memory.store import MemoryStore
from everkept.errors import NotFound
from everkept.families.bank.graph import queries
from everkept.families.bank.graph.model import compute_entity_id, compute_observation_id
from everkept.families.bank.graph.queries import EntityDirectory
from memory_bank import HomeRecords
from records import batch, entity, note, record_ref

MANY = 300


@pytest.fixture
async def graph(library: Library, tmp_path: Path) -> AsyncGenerator[Graphing, None]:
    """A graph of many entities with an observation each."""
    async with graph_in(tmp_path, library=library) as made:
        entities = [entity(f"e{n}", variant="thing") for n in range(MANY)]
        notes = [note(f"e{n}", f"note {n}") for n in range(MANY)]
        await (await made.store()).commit(batch(*entities, *notes))
        yield made


@pytest.fixture
def counted(graph: Graphing) -> CountingRecords:
    records = CountingRecords(HomeRecords(graph.banking.library))
    offer(graph.banking, records, SilentMirror())
    return records


def public(number: int) -> str:
    return compute_entity_id(f"e{number}", "thing")


async def observed(graph: Graphing, number: int) -> str:
    (record,) = await (await graph.store()).get([f"note {number}"])
    return compute_observation_id(public(number), record.text, format_iso(record.effective_at))


async def opened(graph: Graphing, name: str) -> str:
    return (await graph("open_nodes", nodes=[name]))["entities"][0]["name"]


async def test_all_entities_are_read_once_and_then_only_what_changed(graph: Graphing, counted: CountingRecords) -> None:
    assert await opened(graph, public(7)) == "e7"
    assert counted.rows["scan"] >= MANY
    counted.begin()
    assert await opened(graph, public(8)) == "e8"
    assert counted.rows["scan"] == 1  # its observation
    await graph.entity("e new", "thing")
    counted.begin()
    assert await opened(graph, compute_entity_id("e new", "thing")) == "e new"
    assert counted.rows["scan"] == 1
    assert counted.rows["read_changes"] == 1


async def test_names_need_no_directory(graph: Graphing, counted: CountingRecords) -> None:
    assert await opened(graph, "E7 (thing)") == "e7"
    await graph.observe("e7", "more")
    await graph.link("e7", "knows", "e8")
    await graph("delete_entity", entity="e9")
    assert counted.rows["scan"] < 10
    assert counted.calls["get_revision"] == 0


async def test_observations_are_read_once_and_then_only_what_changed(graph: Graphing, counted: CountingRecords) -> None:
    await graph("delete_observation", observationId=await observed(graph, 7))
    assert counted.rows["scan"] >= 2 * MANY
    added = await graph.observe("e7", "another")
    counted.begin()
    await graph("delete_observation", observationId=added)
    assert counted.rows["scan"] == 1
    assert counted.rows["read_changes"] == 2
    assert counted.rows["get"] <= 2


async def test_what_is_deleted_is_found_no_more_and_again_when_it_is_restored(graph: Graphing) -> None:
    observation = await observed(graph, 7)
    assert await opened(graph, public(7)) == "e7"
    store = await graph.store()
    await graph("delete_entity", entity=public(7))
    with pytest.raises(NotFound):
        await opened(graph, public(7))
    with pytest.raises(NotFound):
        await graph("delete_observation", observationId=observation)
    back = [Restore(record_ref(record)) for record in ("e7", "note 7")]
    await store.commit(batch(*back))
    assert await opened(graph, public(7)) == "e7"
    await graph("delete_observation", observationId=observation)


async def test_a_new_type_gives_an_entity_and_its_observations_new_ids(graph: Graphing) -> None:
    old = await observed(graph, 7)
    await graph("delete_observation", observationId=await observed(graph, 8))
    store = await graph.store()
    (record,) = await store.get(["e7"])
    await store.commit(batch(Update("e7", {"type": "service"}, record.version)))
    with pytest.raises(NotFound):
        await opened(graph, public(7))
    with pytest.raises(NotFound):
        await graph("delete_observation", observationId=old)
    renamed = compute_entity_id("e7", "service")
    assert await opened(graph, renamed) == "e7"
    (told,) = (await graph("open_nodes", nodes=[renamed]))["observations"]
    await graph("delete_observation", observationId=told["id"])
    assert (await graph("open_nodes", nodes=[renamed]))["observations"] == []


async def test_what_is_purged_or_rewritten_for_good_is_noticed(graph: Graphing) -> None:
    assert await opened(graph, public(7)) == "e7"
    store = await graph.store()
    await store.purge([record_ref("e7")])
    with pytest.raises(NotFound):
        await opened(graph, public(7))
    await store.redact(
        [record_ref("e8")], lambda _, values: {**values, "name": "x8", "name_key": "x8"} if "name" in values else values
    )
    assert await opened(graph, compute_entity_id("x8", "thing")) == "x8"
    with pytest.raises(NotFound):
        await opened(graph, public(8))
    assert await graph.names("e7") == [f"e{n}" for n in range(70, 80)]


async def test_a_long_log_is_not_followed_step_by_step(
    graph: Graphing, counted: CountingRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_FOLLOWED_CHANGES", 3)
    monkeypatch.setattr(queries, "PAGE_RECORDS", 100)
    assert await opened(graph, public(7)) == "e7"
    for number in range(5):
        await graph.entity(f"later {number}", "thing")
    counted.begin()
    assert await opened(graph, compute_entity_id("later 4", "thing")) == "later 4"
    assert counted.calls["read_changes"] == 0
    assert counted.rows["scan"] == MANY + 5
    assert await opened(graph, public(MANY - 1)) == f"e{MANY - 1}"


async def test_a_search_sees_what_another_has_changed_since(graph: Graphing) -> None:
    assert await graph.names("fresh") == []
    store = await graph.store()
    await store.commit(batch(entity("fresh", variant="thing", facets={"attrs": {"hue": "teal"}})))
    assert await graph.names("fresh") == ["fresh"]
    assert await graph.names("teal") == ["fresh"]
    await store.commit(batch(Delete(record_ref("fresh"))))
    assert await graph.names("teal") == []


async def test_directories_of_projects_used_long_ago_are_let_go(
    graph: Graphing, counted: CountingRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_DIRECTORIES", 1)
    assert await opened(graph, public(7)) == "e7"
    elsewhere = graph.banking.home.parent / "other" / "memory-bank"
    elsewhere.mkdir(parents=True)
    graph.banking.session.bank = str(elsewhere)
    await opened(graph, await graph.entity("there"))
    graph.banking.session.bank = None
    counted.begin()
    assert await opened(graph, public(7)) == "e7"
    assert counted.rows["scan"] >= MANY


@given(st.lists(st.tuples(st.sampled_from("ioudrpl"), st.integers(0, 3)), max_size=25))
async def test_a_directory_that_followed_knows_what_one_built_anew_does(history: list[tuple[str, int]]) -> None:
    store = MemoryStore()
    followed = EntityDirectory()
    for move, number in history:
        if move == "l":
            await followed.catch_up(store, observations=number > 1)
        elif move == "p":
            await store.purge([record_ref(f"e{number}")])
        else:
            steps = await _steps(store, move, number)
            await store.commit(batch(*steps))
    fresh = EntityDirectory()
    for directory in (followed, fresh):
        await directory.catch_up(store, observations=True)
    assert followed.cards == fresh.cards
    for record in await store.scan(RecordFilter(deleted=None)):
        assert _public_ids(followed, fresh, record)


async def _steps(store: MemoryStore, move: str, number: int) -> list[Step]:
    """Those of a move that fit the state: insert, observe, update, delete or restore."""
    name, told = f"e{number}", f"note {number}"
    there = {record.id: record for record in await store.scan(RecordFilter(deleted=None))}
    record, observation = there.get(name), there.get(told)
    is_live = record is not None and record.deleted_at is None
    if move == "i" and record is None:
        return [Insert(entity(name))]
    if move == "o" and is_live and observation is None:
        return [Insert(note(name, told))]
    if record is not None and is_live and move == "u":
        kind = "thing" if record.type == "person" else "person"
        return [Update(name, {"type": kind}, record.version)]
    if move == "d" and is_live:
        return [Delete(record_ref(name))]
    if move == "r" and record is not None and not is_live:
        return [Restore(r.ref) for r in (record, observation) if r and r.deleted_at]
    return []


def _public_ids(followed: EntityDirectory, fresh: EntityDirectory, record: Record) -> bool:
    """Whether both find the record, or both do not, by every id it may have or have had."""
    assert followed.observations is not None
    assert fresh.observations is not None
    owners = [compute_entity_id(record.parent or record.id, kind) for kind in ("thing", "person")]
    told = [compute_observation_id(owner, record.text, format_iso(record.effective_at)) for owner in owners]
    return all(
        set(followed.entities.get_records(owner)) == set(fresh.entities.get_records(owner)) for owner in owners
    ) and all(followed.observations.get_records(public) == fresh.observations.get_records(public) for public in told)
