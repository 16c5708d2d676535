from base64 import b64decode

import pytest

from everkept.core.mcp import UpstreamEndpoint
from everkept.errors import UpstreamUnavailable
from everkept.upstreams.http_target import build_target, find_proxy
from http_upstreams import Received, Writer, ask, by_tool, in_stateless_era, linked, raw_server, send

PROXIES = {"HTTP_PROXY": "http://one:3128", "https_proxy": "two:3129", "ALL_PROXY": "socks5://three:1080"}


@pytest.mark.parametrize(
    ("scheme", "host", "port", "no_proxy", "proxy"),
    [
        ("http", "example.org", None, "", "http://one:3128"),
        ("https", "example.org", None, "", "http://two:3129"),
        ("http", "localhost", 8000, "", None),
        ("http", "127.0.0.9", None, "", None),
        ("http", "::1", None, "", None),
        ("http", "notes.localhost", None, "", None),
        ("http", "example.org", None, "*", None),
        ("http", "example.org", None, "other.org, EXAMPLE.org", None),
        ("http", "a.example.org", None, "example.org", None),
        ("http", "a.example.org", None, ".example.org", None),
        ("http", "a.example.org", None, "*.example.org", None),
        ("http", "notexample.org", None, "example.org", "http://one:3128"),
        ("http", "example.org", 8080, "example.org:8080", None),
        ("http", "example.org", None, "example.org:80", None),
        ("http", "example.org", 8080, "example.org:80", "http://one:3128"),
        ("http", "10.1.2.3", None, "10.0.0.0/8", None),
        ("http", "10.1.2.3", None, "10.1.2.4,::1", "http://one:3128"),
        ("http", "fd00::1", None, "fd00::/8", None),
        ("http", "fd00::1", None, "[fd00::1]", None),
    ],
)
def test_a_proxy_is_chosen_like_everywhere(
    scheme: str, host: str, port: int | None, no_proxy: str, proxy: str | None
) -> None:
    assert find_proxy(scheme, host, port, PROXIES | {"NO_PROXY": no_proxy}) == proxy


def test_one_proxy_may_serve_all_kinds() -> None:
    assert find_proxy("https", "example.org", None, {"ALL_PROXY": "http://p"}) == "http://p"
    assert find_proxy("https", "example.org", None, {}) is None


def test_credentials_leave_the_address_for_a_header() -> None:
    target = build_target(UpstreamEndpoint("https://a%40b:p%3Aw@example.org:444/mcp?x=1#y"), {}, "notes")
    assert target.url == "https://example.org:444/mcp?x=1"
    assert target.shown == "example.org:444"
    scheme, encoded = target.headers["Authorization"].split(" ")
    assert (scheme, b64decode(encoded)) == ("Basic", b"a@b:p:w")
    assert encoded not in repr(target)


def test_a_header_that_is_given_wins_over_the_address() -> None:
    endpoint = UpstreamEndpoint("https://user:word@example.org/", {"authorization": "Bearer ${T}"})
    assert build_target(endpoint, {"T": "t\n"}, "notes").headers == {"authorization": "Bearer t"}


@pytest.mark.parametrize("value", ["a\nb", "é", "a\x00b"])
def test_a_value_that_no_header_can_hold_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(UpstreamUnavailable) as caught:
        build_target(UpstreamEndpoint("https://example.org/", {"X-Key": "${KEY}"}), {"KEY": value}, "notes")
    assert "X-Key" in caught.value.message
    assert value not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org/mcp",
        "ftp://example.org",
        "http://",
        "http://[::1",
        "http://x:99999/",
        "http://x/\x01",
        "http://\u200b.org/",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UpstreamUnavailable, match="invalid `url`"):
        build_target(UpstreamEndpoint(url), {}, "notes")


def test_a_proxy_is_shown_without_its_password() -> None:
    environment = {"HTTPS_PROXY": "http://user:word@proxy.example.org:3128/"}
    target = build_target(UpstreamEndpoint("https://example.org/mcp"), environment, "notes")
    assert target.shown == "example.org (through the proxy proxy.example.org:3128)"
    assert "word" not in repr(target)


async def test_a_proxy_is_asked_for_a_way_through_to_https_and_may_refuse() -> None:
    async def refuse(_: Received, writer: Writer) -> None:
        send(writer, 403)

    async with raw_server(refuse) as (proxy, raw):
        with pytest.raises(UpstreamUnavailable, match="the proxy refuses it") as caught:
            async with linked("https://notes.invalid/mcp", environment={"HTTPS_PROXY": proxy}):
                pass
    assert {(received.method, received.path) for received in raw.received} == {("CONNECT", "notes.invalid:443")}
    assert not caught.value.retry_possible


async def test_this_machine_is_reached_without_the_proxy_that_others_need() -> None:
    async with raw_server(in_stateless_era(by_tool())) as (url, _):
        nowhere = {"HTTP_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "socks5://127.0.0.1:1"}
        async with linked(url, environment=nowhere) as link:
            assert await ask(link) == {"content": []}


async def test_a_name_that_no_host_can_have_is_told() -> None:
    with pytest.raises(UpstreamUnavailable, match="cannot be reached"):
        async with linked("http://a..b/mcp"):
            pass


@pytest.mark.parametrize(
    ("proxy", "why"),
    [
        ("socks5://127.0.0.1:1", "uses socks5, which is not supported"),
        ("gopher://127.0.0.1:1", "is not a valid URL"),
        ("http://127.0.0.1:port", "is not a valid URL"),
    ],
)
async def test_a_proxy_that_cannot_be_used_is_told(proxy: str, why: str) -> None:
    with pytest.raises(UpstreamUnavailable, match=why) as caught:
        async with linked("http://notes.invalid/mcp", environment={"ALL_PROXY": proxy}):
            pass
    assert not caught.value.retry_possible
