"""Value types against the promises of the standard library's dataclasses."""

import copy
import dataclasses
import pickle
import subprocess
import sys
from typing import ClassVar, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.values import MISSING, Value, as_dict, field, is_value_type, list_fields, replace

T = TypeVar("T")


class Point(Value):
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list[str])
    secret: str = field(default="", repr=False, compare=False)
    ORIGIN: ClassVar[str] = "here"


class Named(Point):
    name: str = "point"
    y: int = 7


class Counter(Value, frozen=False):
    count: int = 0


class Token(Value, eq=False):
    text: str


class Options(Value, kw_only=True):
    depth: int = 1
    path: str


class Box(Value, Generic[T]):
    content: T


class Sorted(Value):
    items: tuple[int, ...]

    def __post_init__(self) -> None:
        if list(self.items) != sorted(self.items):
            raise ValueError("unsorted")


class Empty(Value):
    pass


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    """What the standard library makes of the same fields."""

    x: int
    y: int = 0


class Pair(Value):
    x: int
    y: int = 0


numbers = st.integers(-3, 3)


@given(numbers, numbers, numbers, numbers)
def test_values_are_equal_and_hashed_as_dataclasses_are(a: int, b: int, c: int, d: int):
    assert (Pair(a, b) == Pair(c, d)) == (Model(a, b) == Model(c, d))
    assert hash(Pair(a, b)) == hash(Model(a, b))
    assert repr(Pair(a, b)) == repr(Model(a, b)).replace("Model", "Pair")
    assert as_dict(Pair(a, b)) == dataclasses.asdict(Model(a, b))
    assert replace(Pair(a, b), y=d) == Pair(a, y=d)


def test_defaults_are_used_and_made_for_each_value():
    first, second = Point(1), Point(1)
    first.tags.append("mine")
    assert (first.y, second.tags) == (0, [])
    assert Point(1, tags=["given"]).tags == ["given"]


def test_a_frozen_value_refuses_assignment_and_deletion():
    point = Point(1)
    with pytest.raises(AttributeError, match="frozen Point"):
        setattr(point, "x", 2)  # noqa: B010
    with pytest.raises(AttributeError, match="frozen Point"):
        delattr(point, "x")
    with pytest.raises(AttributeError):
        setattr(point, "unknown", 2)  # noqa: B010
    assert point.x == 1


def test_a_value_that_is_not_frozen_takes_its_fields_alone():
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    with pytest.raises(AttributeError):
        setattr(counter, "total", 2)  # noqa: B010
    with pytest.raises(TypeError):
        hash(counter)


def test_a_subclass_adds_fields_and_changes_defaults():
    assert [each.name for each in list_fields(Named)] == ["x", "y", "tags", "secret", "name"]
    assert (Named(1).y, Named(1).name) == (7, "point")
    assert Named(1, 0) != Point(1, 0)


def test_what_is_left_out_of_equality_and_repr():
    assert Point(1, secret="a") == Point(1, secret="b")
    assert "secret" not in repr(Point(1, secret="a"))


def test_identity_counts_where_equality_is_off():
    token = Token("a")
    assert token != Token("a")
    assert token in {token}


def test_keyword_fields_refuse_positions():
    assert Options(path="a") == Options(depth=1, path="a")
    with pytest.raises(TypeError):
        Options(1, "a")  # pyright: ignore


@pytest.mark.parametrize("arguments", [(), (1, 2, [], "", "more")])
def test_wrong_arguments_are_refused_in_the_name_of_the_type(arguments: tuple[object, ...]):
    with pytest.raises(TypeError, match=r"Point.__init__\(\)"):
        Point(*arguments)  # pyright: ignore


def test_a_check_after_construction_holds_for_copies_too():
    with pytest.raises(ValueError, match="unsorted"):
        Sorted((2, 1))
    with pytest.raises(ValueError, match="unsorted"):
        replace(Sorted((1, 2)), items=(2, 1))


def test_values_may_be_generic_and_empty():
    assert Box[int](1) == Box(1)
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())


def test_values_can_be_copied_and_pickled():
    point = Point(1, tags=["a"])
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    assert copy.deepcopy(point).tags is not point.tags


def test_patterns_match_by_position():
    match Pair(1, 2):
        case Pair(x, y):
            assert (x, y) == (1, 2)


def test_a_shared_default_is_refused():
    with pytest.raises(TypeError, match="default_factory"):
        type(Value)("Bad", (Value,), {"__annotations__": {"items": list}, "items": []})


def test_as_dict_opens_values_within_values():
    assert as_dict(Box([Pair(1, 2), {"k": Pair(3)}])) == {"content": [{"x": 1, "y": 2}, {"k": {"x": 3, "y": 0}}]}


def test_fields_say_what_a_schema_needs():
    x, y, tags, _ = list_fields(Point)
    assert (x.type, x.is_required, y.default, tags.default_factory) == (int, True, 0, list[str])
    assert y.default_factory is MISSING
    assert is_value_type(Point)
    assert not is_value_type(Point(1))
    assert Point.ORIGIN == "here"


def test_a_value_type_costs_no_import_of_the_standard_dataclasses():
    code = "import sys, everkept.values; print({'dataclasses', 'inspect'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8")
    assert done.stdout.strip() == "set()"
