import pytest

from everkept.core.upstreams import Endpoint, Launch, Reach
from everkept.errors import UpstreamUnavailable
from everkept.upstreams.variables import filled, hiding


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
    assert not caught.value.retry_possible


def test_a_variable_that_is_empty_is_set() -> None:
    assert filled({"a": "<${E}>"}, {"E": ""}, "notes") == {"a": "<>"}


@pytest.mark.parametrize(
    "way",
    [
        Launch("x", env={"A": "Bearer ${TOKEN}", "B": "${LONGER}-${HOME}-${MISSING}-${SHORT}"}),
        Endpoint("http://x", {"A": "Bearer ${TOKEN}", "B": "${LONGER}-${HOME}-${SHORT}"}),
    ],
)
def test_what_was_filled_in_is_hidden_in_what_a_server_says(way: Launch | Endpoint) -> None:
    ours = {"TOKEN": "s3cret", "LONGER": "s3cret-er", "HOME": "/home/ada", "SHORT": "on"}
    hide = hiding(Reach("notes", way), ours | {"OTHER": "plain words"})
    assert hide("got s3cret and s3cret-er in /home/ada, plain words only") == (
        "got [masked: variable] and [masked: variable] in /home/ada, plain words only"
    )


def test_what_looks_like_a_secret_is_hidden_too() -> None:
    hide = hiding(Reach("notes", Launch("x")), {})
    assert "Tr0ub4dor&3xyz" not in hide("login failed: password=Tr0ub4dor&3xyz")
