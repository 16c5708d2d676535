"""Values on their way into columns and back."""

from hypothesis import given
from hypothesis import strategies as st

from everkept.engines.postgres.rows import (
    FIELDS,
    edge_hash,
    kept,
    link_from,
    link_to,
    name_hash,
    record_from,
    record_to,
    says,
    stands_for,
)
from everkept.engines.postgres.rows import (
    given as taken_back,
)
from everkept.values import replace
from records import entity, link

TEXTS = st.text(st.sampled_from("\0\x01\x02ab"), max_size=8)


@given(TEXTS, TEXTS)
def test_every_text_is_kept_without_a_nul_and_told_from_every_other(one: str, two: str) -> None:
    assert "\0" not in kept(one)
    assert taken_back(kept(one)) == one
    assert (kept(one) == kept(two)) is (one == two)


@given(TEXTS, st.lists(TEXTS, unique=True))
def test_a_record_comes_back_from_its_columns(text: str, tags: list[str]) -> None:
    record = entity("x", text=text, tags=tuple(tags), facets={text: tags}, scope=text, parent=text)
    columns = record_to(record)
    assert record_from(tuple(columns[: len(FIELDS)])) == record
    edge = link(text, text, "b", facets={text: text})
    assert link_from(tuple(link_to(edge)[:-1])) == edge


@given(st.tuples(TEXTS, TEXTS, TEXTS), st.tuples(TEXTS, TEXTS, TEXTS))
def test_what_stands_for_something_else_has_another_hash(
    one: tuple[str, str, str], two: tuple[str, str, str]
) -> None:
    names = [entity("x", name_key=n, variant=v, kind=k) for n, v, k in (one, two)]
    assert (name_hash(names[0]) == name_hash(names[1])) is (one == two)
    edges = [link(*parts) for parts in (one, two)]
    assert (edge_hash(edges[0]) == edge_hash(edges[1])) is (one == two)


def test_what_is_deleted_or_has_no_name_stands_for_nothing() -> None:
    assert stands_for(entity("x")) == stands_for(entity("x", id="y"))
    assert stands_for(entity("x")) != stands_for(entity("x", parent="p"))
    assert stands_for(entity("x", deleted_at=1)) is None
    assert stands_for(entity("x", name_key=None)) is None
    assert says(link("a", "b", "c")) is not None
    assert says(replace(link("a", "b", "c"), deleted_at=1)) is None
