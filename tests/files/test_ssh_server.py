"""Which users, hosts and ports can be meant."""

import pytest

from everkept.errors import InvalidInput
from everkept.files.ssh_server import SshTarget


@pytest.mark.parametrize(
    "name", ["", "-oProxyCommand=x", "a b", "a\tb", "a\nb", "a\0b", "$(id)", "`id`", "a;b", "a|b", "a'b"]
)
@pytest.mark.parametrize("field", ["user", "host"])
def test_a_name_that_a_program_could_take_for_something_else_is_refused(name: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        SshTarget(**({"user": "ada", "host": "example.org"} | {field: name}))
    assert field in caught.value.facts


@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_a_port_is_one_that_there_is(port: int) -> None:
    with pytest.raises(InvalidInput):
        SshTarget("ada", "example.org", port)


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (SshTarget("ada", "example.org"), "ada@example.org"),
        (SshTarget("ada", "example.org", 2222), "ada@example.org:2222"),
        (SshTarget("ada", "::1", 2222), "ada@[::1]:2222"),
        (SshTarget("ada@corp", "example.org"), "ada%40corp@example.org"),
    ],
)
def test_a_place_reads_as_in_an_address(place: SshTarget, shown: str) -> None:
    assert str(place) == shown
