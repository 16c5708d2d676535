import pytest
from making import batch

from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import AmbiguousName, NotFound
from everkept.graph.identity import BY_NAME_AND_TYPE
from everkept.graph.lookup import candidates, meant_among, name_and_type, one_each, required

ADA = BY_NAME_AND_TYPE.new("Ada", "person", 1)
SHIP = BY_NAME_AND_TYPE.new("Ada", "ship", 2)
ODD = BY_NAME_AND_TYPE.new("Bob (cat)", "word", 3)
CAT = BY_NAME_AND_TYPE.new("Bob", "cat", 4)
ALL = [ADA, SHIP, ODD, CAT]


def test_a_name_means_by_id_then_by_name_then_by_name_and_type() -> None:
    names = [ADA.id, " ADA ", "ada (Ship)", "bob (cat)", "bob", "nobody", "ada (cat)"]
    found = [*meant_among(ALL, names).values()]
    assert found == [[ADA], [ADA, SHIP], [SHIP], [ODD], [CAT], [], []]


async def test_a_store_finds_the_same() -> None:
    store = await MemoryLibrary().user()
    await store.commit(batch(*ALL))
    names = [SHIP.id, "ada", "Ada (person)", "bob (cat)", "nobody"]
    found = await candidates(store, names)
    assert [[record.id for record in meant] for meant in found.values()] == [
        [record.id for record in meant] for meant in meant_among(ALL, names).values()
    ]


def test_a_name_that_means_two_entities_is_an_error_that_lists_them() -> None:
    with pytest.raises(AmbiguousName) as caught:
        one_each({"Bob": [CAT], "Ada": [ADA, SHIP]})
    assert ADA.id in str(caught.value)
    assert SHIP.id in str(caught.value)
    found = one_each({"Bob": [CAT], "Eve": []})
    assert required(found, "Bob", "hint") == CAT
    with pytest.raises(NotFound, match="Eve"):
        required(found, "Eve", "hint")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Ada (Person)", ("ada", "person")),
        ("a (b) (c) ", ("a (b)", "c")),
        ("(x)", None),
        ("a", None),
    ],
)
def test_a_type_stands_in_brackets_at_the_end(text: str, parts: tuple[str, str] | None) -> None:
    assert name_and_type(text) == parts
