import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import InvalidInput, UpstreamError
from everkept.upstreams.link import UnreadableJson, encode_message, get_result, parse_message, strip_stateless_fields

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    LEAVES | st.text(st.characters(exclude_categories=())),  # half characters too
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_written_is_read_as_it_was(value: Any) -> None:
    message = encode_message({"id": 1, "params": value})
    assert repr(parse_message(message)) == repr({"jsonrpc": "2.0", "id": 1, "params": value})
    assert b"\n" not in message


@pytest.mark.parametrize("wrong", [float("nan"), float("-inf"), "deep"])
def test_what_json_cannot_say_is_not_written(wrong: Any) -> None:
    if wrong == "deep":
        wrong = []
        for _ in range(100_000):
            wrong = [wrong]
    with pytest.raises(InvalidInput):
        encode_message({"params": wrong})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"NaN", "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b"1" * 999 + b".0e9", "too large"),
        (b"1" * 5000, "more than 4,300 digits"),
        (b"[" * 100_000, "too deep"),
        (b"\xff", "UTF-8"),
        (b"{", "Expecting property name"),
        ("", "Expecting value"),
    ],
)
def test_what_cannot_be_passed_on_is_refused_in_few_words(text: bytes | str, why: str) -> None:
    with pytest.raises(UnreadableJson, match=why) as caught:
        parse_message(text)
    assert len(str(caught.value)) < 120


def test_half_a_character_is_read() -> None:
    assert parse_message(json.dumps("\ud800")) == "\ud800"


OWN = "io.modelcontextprotocol/"
FRAMING = ("serverInfo", "protocolVersion", "clientInfo", "clientCapabilities", "subscriptionId")
SMALL = st.none() | st.booleans() | st.integers() | st.text(max_size=2000)
JSON_VALUES = st.recursive(SMALL, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
KEYS = st.text().filter(lambda key: key not in ("_meta", "resultType"))


@given(st.dictionaries(KEYS, st.none() | st.integers() | st.text()))
def test_what_the_protocol_adds_is_taken_off_and_nothing_else(own: dict[str, Any]) -> None:
    added = {"resultType": "complete"}
    meta = {OWN + key: {"name": "x"} for key in FRAMING}
    assert strip_stateless_fields({**own, **added, "_meta": meta}, "notes") == own
    kept = own | {"_meta": {"example.org/a": 1}}
    assert strip_stateless_fields({**own, **added, "_meta": meta | kept["_meta"]}, "notes") == kept
    assert strip_stateless_fields(kept, "notes") == kept


@pytest.mark.parametrize("key", ["related-task", "ui", "something/new"])
def test_what_the_protocol_says_of_a_result_stays(key: str) -> None:
    result = {"ttlMs": 5, "cacheScope": "public", "_meta": {OWN + key: {"taskId": "t"}}}
    assert strip_stateless_fields({**result, "resultType": "complete"}, "notes") == result


@pytest.mark.parametrize("meta", [None, 7, {}, []])
def test_a_meta_of_another_shape_stays(meta: Any) -> None:
    assert strip_stateless_fields({"_meta": meta}, "notes") == {"_meta": meta}


def test_a_result_that_asks_for_more_is_an_error() -> None:
    with pytest.raises(UpstreamError, match="input_required"):
        strip_stateless_fields({"resultType": "input_required", "inputRequests": {}}, "notes")


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        ({"code": -32602, "message": "Failed to parse the date."}, "Failed to parse the date.", -32602),
        ({"code": "7", "message": "SSE stream failed"}, "SSE stream failed", None),
        ({"code": True, "message": " "}, "error {'code': True, 'message': ' '}", None),
        ("No.", "No.", None),
        ({}, "error {}", None),
    ],
)
def test_an_error_has_the_words_of_the_server(error: Any, words: str, code: int | None) -> None:
    with pytest.raises(UpstreamError) as caught:
        get_result({"error": error}, "notes")
    assert (caught.value.message, caught.value.facts.get("upstream_code")) == (words, code)


@given(JSON_VALUES)
def test_an_error_brings_its_data_along_where_they_are_few(data: Any) -> None:
    with pytest.raises(UpstreamError) as caught:
        get_result({"error": {"code": 1, "message": "No.", "data": data}}, "notes")
    is_kept = data is not None and len(json.dumps(data)) <= 4096
    assert caught.value.facts.get("upstream_data") == (data if is_kept else None)
    assert ("upstream_data" in caught.value.to_envelope()) is is_kept


def test_data_of_an_error_are_left_out_where_they_are_many_or_deep() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for data in ("x" * 4095, deep):
        with pytest.raises(UpstreamError) as caught:
            get_result({"error": {"code": 1, "message": "No.", "data": data}}, "notes")
        assert caught.value.facts == {"upstream": "notes", "upstream_code": 1}


def test_a_result_is_an_object() -> None:
    assert get_result({"result": {"a": 1}}, "notes") == {"a": 1}
    for wrong in (7, "text", None):
        with pytest.raises(UpstreamError, match="notes sent"):
            get_result({"result": wrong}, "notes")
