import pytest

from everkept.clients.config_files import UnexpectedShape, as_list, as_object, is_same, with_entry


def test_another_shape_is_told_with_its_place() -> None:
    assert as_object({"a": 1}) == {"a": 1}
    assert as_list([1], ("a",)) == [1]
    with pytest.raises(UnexpectedShape, match=r"a\.b is not an object"):
        as_object([], ("a", "b"))
    with pytest.raises(UnexpectedShape, match="the whole file is not an object"):
        as_object(3)
    with pytest.raises(UnexpectedShape, match=r"a\.0 is not a list"):
        as_list({}, ("a", 0))


def test_an_empty_part_is_as_good_as_none() -> None:
    assert with_entry({"a": 1, "b": {}}, "b", {}) == {"a": 1}
    assert with_entry({"a": 1}, "b", {"c": 2}) == {"a": 1, "b": {"c": 2}}


def test_what_is_no_number_is_the_same_as_itself() -> None:
    nan = float("nan")
    assert is_same({"a": [nan, 1]}, {"a": [nan, 1]})
    assert not is_same({"a": [nan]}, {"a": [1.0]})
    assert not is_same({"a": 1}, {"a": 1, "b": 2})
    assert not is_same([1, 2], [1])
    assert not is_same([True], [1])
