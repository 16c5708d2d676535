"""Plain values in pickles, read without running them."""

import pickle
from collections import OrderedDict
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from everkept.exchange.sources.mem0 import read_pickled_value

PLAIN = {"text": "ünï", "n": [1, -2, 3.5, 2**70, None, True, False], "deep": {"a": {"b": ["c", "c"]}}}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_the_same_in_every_protocol(protocol: int) -> None:
    assert read_pickled_value(pickle.dumps(PLAIN, protocol=protocol)) == PLAIN


def test_tuples_and_sets_are_lists_and_objects_are_their_fields() -> None:
    value = {"t": (1, 2), "s": {3}, "o": SimpleNamespace(a=1)}
    assert read_pickled_value(pickle.dumps(value)) == {"t": [1, 2], "s": [3], "o": {"a": 1}}


def test_what_only_a_call_could_make_is_nothing() -> None:
    value = {"when": datetime(2026, 1, 1, tzinfo=UTC), "path": Path("/x"), "text": "kept"}
    assert read_pickled_value(pickle.dumps(value)) == {"when": None, "path": None, "text": "kept"}


def test_a_value_that_holds_itself_ends() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert read_pickled_value(pickle.dumps(circle)) == [None]


@pytest.mark.parametrize("raw", [b"", b".", b"\x80\x04", b"]e.", b"not a pickle", pickle.dumps(OrderedDict(a=1))[:-4]])
def test_a_broken_pickle_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        read_pickled_value(raw)


def test_a_long_text_that_is_repeated_very_often_is_refused() -> None:
    """Each repetition takes two bytes, and a million characters later."""
    text = "x" * 1_000_000
    assert read_pickled_value(pickle.dumps([text] * 10)) == [text] * 10
    with pytest.raises(ValueError, match="too often"):
        read_pickled_value(pickle.dumps([text] * 100_000))


def test_keys_are_texts_so_that_no_numbers_collide() -> None:
    """All multiples of this number have the same hash, so that a mapping of them takes a step for each pair."""
    assert read_pickled_value(pickle.dumps({1: "a", None: "b", "c": 2.5})) == {"1": "a", "None": "b", "c": 2.5}
    mapping = b"".join(b"\x8a\x0a" + (i * (2**61 - 1)).to_bytes(10, "little") + b"N" for i in range(100_000))
    assert len(read_pickled_value(b"\x80\x04}(" + mapping + b"u.")) == 100_000


def test_fields_that_are_added_very_often_are_not_copied_each_time() -> None:
    fields = b"".join(b"J" + i.to_bytes(4, "little") + b"N" for i in range(100_000))
    assert len(read_pickled_value(b"\x80\x04}(" + fields + b"u" + b"}b" * 100_000 + b".")) == 100_000


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        read_pickled_value(pickle.dumps([10**9_000]))
