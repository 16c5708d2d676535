import socket

import pytest

from everkept.errors import InvalidInput, Unavailable
from everkept.transports.guard import is_loopback, listen


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost", "LOCALHOST"])
def test_loopback_addresses_are_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org", ""])
def test_other_addresses_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_answers_are_sent_at_once() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_in_use_is_unavailable() -> None:
    with listen("127.0.0.1", 0) as listening, pytest.raises(Unavailable):
        listen("127.0.0.1", listening.getsockname()[1])


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_does_not_exist_is_the_callers_mistake(port: int) -> None:
    with pytest.raises(InvalidInput):
        listen("127.0.0.1", port)
