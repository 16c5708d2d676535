"""JSON read item by item, from streams of any size."""

import io
import json
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import InvalidInput
from everkept.exchange.json_files import NotJsonItems, expect_json, read_json_items

TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


class Trickle(io.BytesIO):
    """A stream that gives few bytes at a time, whatever is asked."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(3)


def read(text: str, file: type[io.BytesIO] = io.BytesIO) -> list[Any]:
    return list(read_json_items(file(text.encode())))


@given(st.lists(VALUES, max_size=5), st.sampled_from([None, 1]), st.sampled_from([io.BytesIO, Trickle]))
def test_a_list_comes_item_by_item(values: list[Any], indent: int | None, file: type[io.BytesIO]) -> None:
    assert read(json.dumps(values, indent=indent), file) == [(None, value) for value in values]


def test_an_object_comes_by_its_keys_with_the_items_of_its_lists() -> None:
    text = '\ufeff {"a": 1, "b": [{"c": "]\\"}"}, 2], "d": {"e": []}, "f": []}\n'
    expected: list[Any] = [("a", 1), ("b", {"c": ']"}'}), ("b", 2), ("d", {"e": []})]
    assert read(text) == read(text, Trickle) == expected


@pytest.mark.parametrize("text", ["", "1", '"text"', "[1, 2", "[1 2]", '{"a" 1}', "{1: 2}", "[1] 2", "[tru]", '["a'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(NotJsonItems):
        read(text)


def test_items_come_before_the_end_is_read() -> None:
    """A file of any size takes no more memory than its largest item."""

    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return b'{"text": "' + b"x" * 1_000 + b'"},'

    class Opened(Endless):
        is_begun = False

        def read(self, size: int | None = -1) -> bytes:
            begun, self.is_begun = self.is_begun, True
            return super().read(size) if begun else b"["

    file: IO[bytes] = Opened()
    items = read_json_items(file)
    assert [len(next(items)[1]["text"]) for _ in range(500)] == [1_000] * 500


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused, expect_json(tmp_path, "an export", "Pass another one."):
        raise NotJsonItems("it is empty")
    assert refused.value.message == f"{tmp_path} is not an export: it is empty."
    assert refused.value.hint == "Nothing was imported. Pass another one."
