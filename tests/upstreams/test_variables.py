import pytest

from recollect.errors import UpstreamUnavailable
from recollect.upstreams.variables import filled


def test_variables_are_replaced_once_and_wherever_they_stand() -> None:
    ours = {"A": "${B}", "B": "$x\\1"}
    values = {"one": "${A}-${B}", "two": "$A {B} ${}", "three": ""}
    assert filled(values, ours, "notes") == {
        "one": "${B}-$x\\1",
        "two": "$A {B} ${}",
        "three": "",
    }


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(UpstreamUnavailable) as caught:
        filled({"Authorization": "Bearer ${TOKEN}"}, {"OTHER": "x"}, "notes")
    assert "TOKEN" in caught.value.message
    assert caught.value.facts["upstream"] == "notes"


def test_a_variable_that_is_empty_is_set() -> None:
    assert filled({"a": "<${E}>"}, {"E": ""}, "notes") == {"a": "<>"}
