import pytest

from asgi_client import asked
from everkept.errors import InvalidInput
from everkept.transports.guard import Guard
from everkept.transports.http_exchange import Message, Receive, Send, get_client_address, send_answer
from everkept.transports.trusted_proxies import TrustedProxies


async def seen(trusted: str, address: str, *told: str) -> str:
    """Where a guarded application takes a request to come from."""
    found: list[str] = []

    async def inside(scope: Message, _receive: Receive, send: Send) -> None:
        found.append(get_client_address(scope))
        await send_answer(send, 200, b"{}")

    guard = Guard(inside, "127.0.0.1", None, proxies=TrustedProxies.from_text(trusted))
    headers = {"x-forwarded-for": ", ".join(told)} if told else {}
    await asked(guard, address=address, **headers)
    return found[0]


@pytest.mark.parametrize("trusted", ["", "10.0.0.6", "10.1.0.0/16, 2001:db8::/32"])
async def test_nobody_else_can_say_to_be_another(trusted: str) -> None:
    assert await seen(trusted, "10.0.0.5", "203.0.113.9") == "10.0.0.5"


@pytest.mark.parametrize("trusted", ["10.0.0.5", "192.0.2.1 , 10.0.0.0/24", "10.0.0.5,"])
async def test_a_trusted_proxy_says_who_asked_it(trusted: str) -> None:
    assert await seen(trusted, "10.0.0.5", "203.0.113.9") == "203.0.113.9"
    assert await seen(trusted, "::ffff:10.0.0.5", "203.0.113.9") == "203.0.113.9"


async def test_what_came_with_the_request_does_not_count() -> None:
    assert await seen("10.0.0.5", "10.0.0.5", "198.51.100.1", "203.0.113.9") == "203.0.113.9"


@pytest.mark.parametrize("told", ["", "unknown", "not an address", "10.0.0.0/8", "a\x1b[31m"])
async def test_what_is_no_address_is_not_taken(told: str) -> None:
    assert await seen("10.0.0.5", "10.0.0.5", told) == "10.0.0.5"
    assert await seen("10.0.0.5", "10.0.0.5") == "10.0.0.5"


async def test_an_address_of_ipv6_is_one() -> None:
    assert await seen("fd00::/8", "fd00::1", "2001:DB8::7") == "2001:db8::7"
    # A zone means something only on the machine of the proxy, and may be any text.
    assert await seen("fd00::/8", "fd00::1", "fe80::7%\x1b[2Jany text") == "fe80::7"


@pytest.mark.parametrize("trusted", ["proxy.example", "10.0.0.5/8", "*", "10.0.0.5, all"])
def test_what_is_no_network_is_told(trusted: str) -> None:
    with pytest.raises(InvalidInput, match="trusted_proxies"):
        TrustedProxies.from_text(trusted)


async def test_proxies_in_a_row_are_skipped_from_the_end() -> None:
    row = ("198.51.100.1", "203.0.113.9", "10.0.0.6", "10.0.0.7")
    assert await seen("10.0.0.0/24", "10.0.0.5", *row) == "203.0.113.9"
    # A proxy that is not listed cannot name another, and neither can the client.
    assert await seen("10.0.0.5, 10.0.0.7", "10.0.0.5", *row) == "10.0.0.6"


async def test_an_address_with_a_port_is_read() -> None:
    assert await seen("10.0.0.5", "10.0.0.5", "203.0.113.9:4711") == "203.0.113.9"
    assert await seen("10.0.0.5", "10.0.0.5", "[2001:db8::7]:4711") == "2001:db8::7"
    assert await seen("10.0.0.5", "10.0.0.5", "[2001:db8::7]") == "2001:db8::7"


async def test_a_proxy_may_add_a_header_of_its_own() -> None:
    found: list[str] = []

    async def inside(scope: Message, _receive: Receive, send: Send) -> None:
        found.append(get_client_address(scope))
        await send_answer(send, 200, b"{}")

    guard = Guard(inside, "127.0.0.1", None, proxies=TrustedProxies.from_text("10.0.0.0/24"))
    forwarded = [(b"x-forwarded-for", b"203.0.113.9"), (b"x-forwarded-for", b"10.0.0.7")]
    scope: Message = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "client": ("10.0.0.5", 1),
        "headers": [(b"host", b"localhost"), *forwarded],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(_message: Message) -> None:
        return

    await guard(scope, receive, send)
    assert found == ["203.0.113.9"]
