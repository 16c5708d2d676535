from making import batch, entity

from everkept.core.text import normalised
from everkept.engines.memory.library import MemoryLibrary
from everkept.graph.relations import (
    missing_relations,
    names_of,
    new_relation,
    relations_among,
    relations_from,
)


async def test_a_relation_is_known_by_its_ends_and_its_verb() -> None:
    store = await MemoryLibrary().user()
    ends = [entity(name, variant="thing") for name in ("a", "b", "c")]
    known = [new_relation("a", "Uses", "b", 1), new_relation("b", "owns", "c", 1)]
    await store.commit(batch(*ends, *known))
    exact = await relations_from(store, ["a"])
    assert exact == {("a", "Uses", "b"): [known[0]]}
    assert await relations_from(store, ["a"], normalised) == {("a", "uses", "b"): [known[0]]}
    wanted = [("a", "uses", "b"), ("a", "Uses", "b"), ("a", "uses", "b")]
    assert [link.verb for link in missing_relations(wanted, exact, 2)] == ["uses"]
    assert await relations_among(store, {"a", "b"}) == [known[0]]
    assert names_of([*ends, None]) == {"a": "a", "b": "b", "c": "c"}
