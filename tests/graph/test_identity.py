import pytest
from making import batch

from everkept.engines.memory.library import MemoryLibrary
from everkept.graph.entities import STUB, UNKNOWN_TYPE
from everkept.graph.identity import (
    BY_NAME_AND_TYPE,
    ByExactName,
    ByExactNameAndType,
    Identity,
    ensure_entities,
)


@pytest.mark.parametrize(
    ("identity", "count"), [(BY_NAME_AND_TYPE, 2), (ByExactName(), 3), (ByExactNameAndType(), 4)]
)
async def test_an_identity_says_which_names_and_types_are_one_entity(
    identity: Identity, count: int
) -> None:
    store = await MemoryLibrary().user()
    wanted = [("Ada", "person"), ("ada", "Person"), (" Ada", "person"), ("Ada", "ship")]
    steps, meant = await ensure_entities(store, wanted, 1, identity)
    assert len(steps) == len({record.id for record in meant}) == count
    await store.commit(batch(*steps))
    again = await ensure_entities(store, wanted, 2, identity)
    assert (again[0], [record.id for record in again[1]]) == ([], [record.id for record in meant])


async def test_of_two_stubs_the_one_with_the_exact_name_is_described() -> None:
    store = await MemoryLibrary().user()
    exact = ByExactName()
    stubs = [exact.new(name, UNKNOWN_TYPE, 1, STUB) for name in ("Ada", "ada")]
    await store.commit(batch(*stubs))
    steps, [made] = await ensure_entities(store, [("ada", "person")], 2, exact)
    await store.commit(batch(*steps))
    found = await exact.resolve(store, ["ada", "Ada", "ADA"])
    kept = {name: record and (record.id, record.type) for name, record in found.items()}
    assert kept == {
        "ada": (stubs[1].id, "person"),
        "Ada": (stubs[0].id, UNKNOWN_TYPE),
        "ADA": None,
    }
    assert made.id == stubs[1].id
