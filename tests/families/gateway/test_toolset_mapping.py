from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import InvalidInput
from everkept.families.gateway.model import JSON
from everkept.families.gateway.toolset import map_arguments
from gateways import tool_config

KEYS = st.sampled_from("abcdef")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
GIVEN, DEFAULT, CONSTANT = WAYS = ("given", "default", "constant")
PATHS = st.lists(KEYS, min_size=1, max_size=4).map(tuple)


def apart(paths: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Those of which none leads to, or is, another: as a file that was read has them."""
    kept: list[tuple[str, ...]] = []
    for path in paths:
        if all(path[: len(o)] != o[: len(path)] for o in kept):
            kept.append(path)
    return kept


def found_at(sent: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        sent = sent[key]
    return sent


def leaves(sent: JSON, places: set[tuple[str, ...]], above: tuple[str, ...] = ()) -> int:
    """How many values were sent, those in nested objects of their own not counted."""
    paths = {(*above, key): value for key, value in sent.items()}
    return sum(1 if path in places else leaves(value, places, path) for path, value in paths.items())


@given(st.dictionaries(KEYS, KEYS), st.dictionaries(KEYS, VALUES))
def test_a_plain_mapping_renames_what_is_given(names: dict[str, str], arguments: JSON) -> None:
    one_way = {ours: theirs for theirs, ours in {v: k for k, v in names.items()}.items()}
    tool = tool_config(mapping=one_way)
    assert map_arguments(tool, arguments) == {
        theirs: arguments[ours] for ours, theirs in one_way.items() if ours in arguments
    }


@given(st.lists(st.tuples(PATHS, st.sampled_from(WAYS), VALUES), max_size=6))
def test_every_value_arrives_in_its_own_place(wanted: list[tuple[tuple[str, ...], str, Any]]) -> None:
    kept = apart([path for path, _, _ in wanted])
    places = {path: (way, value) for path, way, value in reversed(wanted) if path in kept}

    def of(wanted_way: str) -> dict[tuple[str, ...], Any]:
        return {path: value for path, (way, value) in places.items() if way == wanted_way}

    tool = tool_config(
        mapping={".".join(path): ".".join(path) for path in of(GIVEN) | of(DEFAULT)},
        defaults={".".join(path): value for path, value in of(DEFAULT).items()},
        constants=of(CONSTANT),
    )
    sent = map_arguments(tool, {".".join(path): value for path, value in of(GIVEN).items()} | {"x": 1})
    assert {path: found_at(sent, path) for path in places} == {path: value for path, (_, value) in places.items()}
    assert leaves(sent, set(places)) == len(places)


def test_null_is_a_value_and_an_absent_parameter_is_none() -> None:
    tool = tool_config(mapping={"query": "query", "limit": "limit"})
    assert map_arguments(tool, {"query": None}) == {"query": None}


def test_null_does_not_call_for_the_default() -> None:
    tool = tool_config(mapping={"limit": "limit"}, defaults={"limit": 10})
    assert map_arguments(tool, {"limit": None}) == {"limit": None}
    assert map_arguments(tool, {}) == {"limit": 10}


def test_defaults_of_the_schema_are_not_sent() -> None:
    tool = tool_config(mapping={"limit": "limit"}, properties={"limit": {"default": 10}})
    assert map_arguments(tool, {}) == {}


def test_a_changed_structure_needs_the_file_alone() -> None:
    tool = tool_config(mapping={"query": "search.text"}, constants={("search", "filters"): {}, ("mode",): "both"})
    assert map_arguments(tool, {"query": "tea"}) == {"search": {"text": "tea", "filters": {}}, "mode": "both"}


def test_what_is_done_with_the_sent_values_does_not_change_the_file() -> None:
    tool = tool_config(mapping={"tags": "tags"}, defaults={"tags": ["a"]}, constants={("filters",): {"x": []}})
    before = deepcopy(tool)
    sent = map_arguments(tool, {})
    sent["tags"].append("b")
    sent["filters"]["x"].append("y")
    assert tool == before


def test_what_has_no_entry_is_sent_where_the_file_says() -> None:
    given_ = {"query": "tea", "colour": "green", "size": {"x": 1}}
    assert map_arguments(tool_config(mapping={"query": "q"}), given_) == {"q": "tea"}
    top = tool_config(mapping={"query": "q"}, rest=())
    assert map_arguments(top, given_) == {"q": "tea", "colour": "green", "size": {"x": 1}}
    inside = tool_config(mapping={"query": "f.q"}, constants={("f", "mode"): "both"}, rest=("f", "more"))
    assert map_arguments(inside, given_) == {
        "f": {"q": "tea", "mode": "both", "more": {"colour": "green", "size": {"x": 1}}}
    }
    assert map_arguments(inside, {}) == {"f": {"mode": "both", "more": {}}}


@pytest.mark.parametrize("name", ["q", "f", "mode"])
def test_what_has_no_entry_cannot_take_the_place_of_what_has_one(name: str) -> None:
    tool = tool_config(mapping={"query": "q", "deep": "f.x"}, constants={("mode",): "safe"}, rest=())
    with pytest.raises(InvalidInput) as raised:
        map_arguments(tool, {name: "other"})
    assert raised.value.facts["argument"] == name


@given(st.dictionaries(st.sampled_from("abcxyz"), VALUES))
def test_with_a_place_for_the_rest_nothing_is_lost(arguments: JSON) -> None:
    tool = tool_config(mapping={"a": "one", "b": "two"}, rest=())
    renamed = {"a": "one", "b": "two"}
    assert map_arguments(tool, arguments) == {renamed.get(name, name): value for name, value in arguments.items()}
