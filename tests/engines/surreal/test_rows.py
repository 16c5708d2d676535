"""Values as rows have them."""

import json

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from everkept.engines.stored_text import decode_before, encode_before
from everkept.engines.surreal.rows import decode_record, diff_fields, encode_record, escape_text, unescape_text
from everkept.errors import StoreDamaged
from records import memory

# What is escaped, and what it is escaped with, more often than others.
TEXTS = st.text(st.sampled_from("\0\x01\x02a") | st.characters(codec="utf-8"))


@for_all(TEXTS)
def test_every_text_comes_back_and_none_is_kept_with_a_nul(text: str) -> None:
    assert "\0" not in escape_text(text)
    assert unescape_text(escape_text(text)) == text


@for_all(TEXTS, TEXTS)
def test_a_text_contains_another_where_it_did_before(text: str, part: str) -> None:
    if part in text:
        assert escape_text(part) in escape_text(text)


@for_all(TEXTS, st.lists(TEXTS, unique=True), st.dictionaries(TEXTS, TEXTS))
def test_a_record_comes_back_as_it_was(text: str, tags: list[str], facets: dict[str, str]) -> None:
    record = memory(text, id=f"id {text}", tags=tuple(tags), facets=facets, parent=text)
    row = encode_record(record)
    assert decode_record(row) == record
    assert diff_fields(record, record) == {}
    assert "\0" not in json.dumps(row, default=repr)


def test_old_values_come_back_as_they_were() -> None:
    before = {"tags": ("a", "b"), "text": "\0", "deleted_at": None}
    assert decode_before(encode_before(before)) == before
    assert decode_before(encode_before(None)) is None


def test_a_row_of_somebody_else_is_damage() -> None:
    for row in ({}, {**encode_record(memory("a")), "facets": "{"}, {"id": "a"}):
        with pytest.raises(StoreDamaged):
            decode_record(row)
