import pytest

from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import AmbiguousName, NotFound
from everkept.graph.entities import (
    BY_NAME_AND_TYPE,
    STUB_FACETS,
    UNKNOWN_TYPE,
    EntityIdentity,
    ExactNameAndTypeIdentity,
    ExactNameIdentity,
    ensure_entities,
    find_candidates,
    match_names,
    parse_name_and_type,
    require_entity,
    require_unique,
)
from records import batch

ADA = BY_NAME_AND_TYPE.build_entity("Ada", "person", 1)
SHIP = BY_NAME_AND_TYPE.build_entity("Ada", "ship", 2)
ODD = BY_NAME_AND_TYPE.build_entity("Bob (cat)", "word", 3)
CAT = BY_NAME_AND_TYPE.build_entity("Bob", "cat", 4)
ALL = [ADA, SHIP, ODD, CAT]


def test_a_name_means_by_id_then_by_name_then_by_name_and_type() -> None:
    names = [ADA.id, " ADA ", "ada (Ship)", "bob (cat)", "bob", "nobody", "ada (cat)"]
    found = [*match_names(ALL, names).values()]
    assert found == [[ADA], [ADA, SHIP], [SHIP], [ODD], [CAT], [], []]


async def test_a_store_finds_the_same() -> None:
    store = await MemoryLibrary().open_user_store()
    await store.commit(batch(*ALL))
    names = [SHIP.id, "ada", "Ada (person)", "bob (cat)", "nobody"]
    found = await find_candidates(store, names)
    assert [[record.id for record in meant] for meant in found.values()] == [
        [record.id for record in meant] for meant in match_names(ALL, names).values()
    ]


def test_a_name_that_means_two_entities_is_an_error_that_lists_them() -> None:
    with pytest.raises(AmbiguousName) as caught:
        require_unique({"Bob": [CAT], "Ada": [ADA, SHIP]})
    assert ADA.id in str(caught.value)
    assert SHIP.id in str(caught.value)
    found = require_unique({"Bob": [CAT], "Eve": []})
    assert require_entity(found, "Bob", "hint") == CAT
    with pytest.raises(NotFound, match="Eve"):
        require_entity(found, "Eve", "hint")


@pytest.mark.parametrize(
    ("text", "parts"), [("Ada (Person)", ("ada", "person")), ("a (b) (c) ", ("a (b)", "c")), ("(x)", None), ("a", None)]
)
def test_a_type_stands_in_brackets_at_the_end(text: str, parts: tuple[str, str] | None) -> None:
    assert parse_name_and_type(text) == parts


@pytest.mark.parametrize(
    ("identity", "count"), [(BY_NAME_AND_TYPE, 2), (ExactNameIdentity(), 3), (ExactNameAndTypeIdentity(), 4)]
)
async def test_an_identity_says_which_names_and_types_are_one_entity(identity: EntityIdentity, count: int) -> None:
    store = await MemoryLibrary().open_user_store()
    wanted = [("Ada", "person"), ("ada", "Person"), (" Ada", "person"), ("Ada", "ship")]
    steps, meant = await ensure_entities(store, wanted, 1, identity)
    assert len(steps) == len({record.id for record in meant}) == count
    await store.commit(batch(*steps))
    again = await ensure_entities(store, wanted, 2, identity)
    assert (again[0], [record.id for record in again[1]]) == ([], [record.id for record in meant])


async def test_of_two_stubs_the_one_with_the_exact_name_is_described() -> None:
    store = await MemoryLibrary().open_user_store()
    exact = ExactNameIdentity()
    stubs = [exact.build_entity(name, UNKNOWN_TYPE, 1, STUB_FACETS) for name in ("Ada", "ada")]
    await store.commit(batch(*stubs))
    steps, [made] = await ensure_entities(store, [("ada", "person")], 2, exact)
    await store.commit(batch(*steps))
    found = await exact.resolve(store, ["ada", "Ada", "ADA"])
    kept = {name: record and (record.id, record.type) for name, record in found.items()}
    assert kept == {"ada": (stubs[1].id, "person"), "Ada": (stubs[0].id, UNKNOWN_TYPE), "ADA": None}
    assert made.id == stubs[1].id
