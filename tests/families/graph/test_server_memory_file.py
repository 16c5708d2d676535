import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from everkept.families.graph.model import BATCH_LIMIT, NewEntity, RelationSpec
from everkept.families.graph.server_memory import UnreadableLine, parse_lines

ENTITY = {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["a", "b"]}
RELATION = {"type": "relation", "from": "Ada", "to": "Bob", "relationType": "knows"}


def parsed(*lines: Any) -> list[Any]:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return [item for _, item in parse_lines(texts)]


def test_entities_and_relations_are_read() -> None:
    assert parsed(ENTITY, RELATION) == [NewEntity("Ada", "person", ["a", "b"]), RelationSpec("Ada", "Bob", "knows")]


def test_blank_lines_other_types_and_unknown_keys_are_passed_over() -> None:
    lines = ["", "  ", {"type": "note"}, ENTITY | {"createdAt": "2025"}, "\ufeff" + json.dumps(RELATION)]
    assert [type(item) for item in parsed(*lines)] == [NewEntity, RelationSpec]


def test_an_unreadable_line_is_reported_with_its_number_and_the_rest_goes_on() -> None:
    lines = [json.dumps(ENTITY), "{cut", "[1]", json.dumps({"type": "entity", "name": "x"})]
    lines += [json.dumps(ENTITY | {"name": "a\nb"}), json.dumps(RELATION)]
    found = [item for _, item in parse_lines(lines)]
    unreadable = [item for item in found if isinstance(item, UnreadableLine)]
    assert [item.line for item in unreadable] == [2, 3, 4, 5]
    assert all(item.reason for item in unreadable)
    assert isinstance(found[-1], RelationSpec)


def test_blank_observations_are_left_out() -> None:
    (entity,) = parsed(ENTITY | {"observations": ["a", "", "  "]})
    assert entity.observations == ["a"]


def test_an_entity_with_more_observations_than_a_call_may_have_comes_in_pieces() -> None:
    texts = [f"fact {i}" for i in range(BATCH_LIMIT + 1)]
    pieces = parsed(ENTITY | {"observations": texts})
    assert [len(piece.observations) for piece in pieces] == [BATCH_LIMIT, 1]
    assert {piece.name for piece in pieces} == {"Ada"}


@given(st.lists(st.text()))
def test_no_text_stops_the_reading(lines: list[str]) -> None:
    for number, item in parse_lines(lines):
        assert 1 <= number <= len(lines)
        assert isinstance(item, NewEntity | RelationSpec | UnreadableLine)
