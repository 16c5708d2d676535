"""Records and links as lines of JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.records import Record, RecordLink
from everkept.exchange.export_format import format_line, parse_link, parse_record
from records import entity, link

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = texts.filter(bool)
moments = st.integers(0, 4_000_000_000_000_000)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
records = st.builds(
    Record,
    id=names,
    kind=names,
    created_at=moments,
    updated_at=moments,
    text=texts,
    name=st.none() | names,
    type=st.none() | names,
    name_key=st.none() | names,
    variant=texts,
    parent=st.none() | names,
    scope=texts,
    session=st.none() | names,
    position=st.none() | st.integers(0, 2**40),
    author=st.none() | names,
    importance=st.none() | st.floats(0, 1),
    occurred_at=st.none() | moments,
    tags=st.lists(names, max_size=3).map(tuple),
    facets=st.dictionaries(texts, values, max_size=3),
    deleted_at=st.none() | moments,
)
links = st.builds(
    RecordLink,
    id=names,
    source=names,
    verb=names,
    target=names,
    created_at=moments,
    facets=st.dictionaries(texts, values, max_size=3),
)


@given(records)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    line = format_line(record)
    assert "\n" not in line
    assert parse_record(line) == record


@given(links)
def test_a_link_comes_back_as_it_was(found: RecordLink) -> None:
    assert parse_link(format_line(found)) == found


def test_how_often_a_record_was_changed_here_is_not_written() -> None:
    assert "version" not in json.loads(format_line(entity("Ada", version=7)))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"id": ""}, "must not be empty"),
        ({"id": 7}, "must be a text"),
        ({"kind": None}, "must be a text"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"importance": 2}, "from 0 to 1"),
        ({"importance": True}, "from 0 to 1"),
        ({"position": 1.5}, "whole number"),
        ({"tags": "one"}, "list of texts"),
        ({"tags": [""]}, "must not be empty"),
        ({"facets": []}, "an object"),
        ({"text": None}, "Omit it instead"),
        ({"text": "half \ud800"}, "unpaired surrogate"),
        ({"colour": "red"}, '"colour"'),
    ],
)
def test_a_line_that_is_not_ours_is_refused_with_the_reason(values: dict[str, Any], problem: str) -> None:
    line = json.dumps(json.loads(format_line(entity("Ada"))) | values)
    with pytest.raises(ValueError, match=problem):
        parse_record(line)


@pytest.mark.parametrize("line", ["", "[]", "{", "7", "[" * 100_000])
def test_what_is_no_object_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="it is not"):
        parse_record(line)
    with pytest.raises(ValueError, match="it is not"):
        parse_link(line)


def test_a_link_without_an_end_is_refused() -> None:
    facts = json.loads(format_line(link("a", "knows", "b")))
    del facts["target"]
    with pytest.raises(ValueError, match="target"):
        parse_link(json.dumps(facts))
