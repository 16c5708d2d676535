from everkept.core.records import Insert, Update
from everkept.graph.entities import STUB, make_entity, new_entity, stub_named
from everkept.values import replace


def test_an_entity_is_inserted_or_described_in_the_place_of_its_stub() -> None:
    new = new_entity("Ada", "person", "person", 2, {"attrs": {"born": 1815}})
    assert make_entity(new, None) == (Insert(new), new)
    stub = new_entity("ada", "unknown", "=ada", 1, STUB)
    step, made = make_entity(new, stub)
    assert made == replace(new, id=stub.id)
    values = {"name": "Ada", "type": "person", "variant": "person", "facets": new.facets}
    assert step == Update(stub.id, values, stub.version)


def test_the_stub_with_the_same_spelling_comes_before_the_first_one() -> None:
    described = new_entity("Ada", "person", "person", 1)
    stubs = [new_entity(name, "unknown", f"={name}", 1, STUB) for name in ("ada", "Ada")]
    assert stub_named([described, *stubs], "Ada") == stubs[1]
    assert stub_named([described, *stubs], "ADA") == stubs[0]
    assert stub_named([described], "Ada") is None
