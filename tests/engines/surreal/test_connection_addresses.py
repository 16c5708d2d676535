"""Addresses of servers, as people write them."""

import pytest

from everkept.engines.surreal.connection import Credentials, parse_address
from everkept.errors import InvalidInput

WRITTEN = {
    "ws://127.0.0.1:8000": "ws://127.0.0.1:8000/rpc",
    "ws://127.0.0.1:8000/": "ws://127.0.0.1:8000/rpc",
    "http://127.0.0.1:8000/rpc": "ws://127.0.0.1:8000/rpc",
    "https://db.example.org": "wss://db.example.org/rpc",
    "wss://db.example.org/surreal/rpc/": "wss://db.example.org/surreal/rpc",
    " ws://[::1]:8000 ": "ws://[::1]:8000/rpc",
}


@pytest.mark.parametrize(("text", "url"), WRITTEN.items())
def test_an_address_leads_to_the_endpoint_of_the_websocket(text: str, url: str) -> None:
    address = parse_address(text)
    assert address.url == url
    assert address.shown + "/rpc" == url
    assert address.is_secure == url.startswith("wss")


@pytest.mark.parametrize("text", ["", "localhost:8000", "mem://", "ws://", "ws://h:0", "ws://h:99999", "ws://h?x=1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_address(text)


@pytest.mark.parametrize("text", ["ws://me:hush@h:8000", "ws://me:hush@h:wrong", "me:hush@h"])
def test_a_password_in_an_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_address(text)
    assert "hush" not in str(raised.value)


def test_credentials_do_not_show_the_password() -> None:
    assert "hush" not in repr(Credentials("me", "hush"))
