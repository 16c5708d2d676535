"""Values on their way into columns and back."""

from hypothesis import given
from hypothesis import strategies as st

from everkept.engines.postgres.rows import (
    FIELDS,
    decode_link,
    decode_record,
    encode_link,
    encode_record,
    escape_text,
    hash_edge,
    hash_live_edge,
    hash_live_name,
    hash_name,
)
from everkept.engines.postgres.rows import unescape_text as taken_back
from everkept.values import replace
from records import entity, link

TEXTS = st.text(st.sampled_from("\0\x01\x02ab"), max_size=8)


@given(TEXTS, TEXTS)
def test_every_text_is_kept_without_a_nul_and_told_from_every_other(one: str, two: str) -> None:
    assert "\0" not in escape_text(one)
    assert taken_back(escape_text(one)) == one
    assert (escape_text(one) == escape_text(two)) is (one == two)


@given(TEXTS, st.lists(TEXTS, unique=True))
def test_a_record_comes_back_from_its_columns(text: str, tags: list[str]) -> None:
    record = entity("x", text=text, tags=tuple(tags), facets={text: tags}, scope=text, parent=text)
    columns = encode_record(record)
    assert decode_record(tuple(columns[: len(FIELDS)])) == record
    edge = link(text, text, "b", facets={text: text})
    assert decode_link(tuple(encode_link(edge)[:-1])) == edge


@given(st.tuples(TEXTS, TEXTS, TEXTS), st.tuples(TEXTS, TEXTS, TEXTS))
def test_what_stands_for_something_else_has_another_hash(one: tuple[str, str, str], two: tuple[str, str, str]) -> None:
    names = [entity("x", name_key=n, variant=v, kind=k) for n, v, k in (one, two)]
    assert (hash_name(names[0]) == hash_name(names[1])) is (one == two)
    edges = [link(*parts) for parts in (one, two)]
    assert (hash_edge(edges[0]) == hash_edge(edges[1])) is (one == two)


def test_what_is_deleted_or_has_no_name_stands_for_nothing() -> None:
    assert hash_live_name(entity("x")) == hash_live_name(entity("x", id="y"))
    assert hash_live_name(entity("x")) != hash_live_name(entity("x", parent="p"))
    assert hash_live_name(entity("x", deleted_at=1)) is None
    assert hash_live_name(entity("x", name_key=None)) is None
    assert hash_live_edge(link("a", "b", "c")) is not None
    assert hash_live_edge(replace(link("a", "b", "c"), deleted_at=1)) is None
