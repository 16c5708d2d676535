import socket
import ssl

import httpx2
import pytest

from everkept.errors import UpstreamUnavailable
from everkept.upstreams.http_wire import FaultKind, explain_exception, explain_status
from http_upstreams import Era, Received, Writer, ask, by_era, by_tool, in_stateless_era, linked, raw_server, send

NOT_KNOWN = "The outcome of the call is unknown, so it was not repeated."
PLACE = "example.org:444"


def caused(by: Exception) -> Exception:
    """A failure to connect as it comes: the cause is deep inside."""
    attempts = OSError("All connection attempts failed")
    attempts.__cause__ = ExceptionGroup("attempts", [OSError("other"), by])
    failure = httpx2.ConnectError("All connection attempts failed")
    failure.__cause__ = attempts
    return failure


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (caused(ConnectionRefusedError()), FaultKind.UNREACHED, "the connection is refused"),
        (caused(socket.gaierror(-99, "unknown")), FaultKind.UNREACHED, "the host does not exist"),
        (caused(socket.gaierror(socket.EAI_AGAIN, "")), FaultKind.UNREACHED, "looked up now"),
        (caused(ssl.SSLCertVerificationError()), FaultKind.UNREACHED, "certificate is not trusted"),
        (caused(ssl.SSLError()), FaultKind.UNREACHED, "TLS failed"),
        (caused(ValueError()), FaultKind.UNREACHED, "the connection failed"),
        (httpx2.ConnectTimeout(""), FaultKind.UNREACHED, "accepts no connection"),
        (httpx2.ProxyError("407"), FaultKind.UNREACHED, "the proxy refuses it"),
        (httpx2.LocalProtocolError(""), FaultKind.UNREACHED, "cannot be sent"),
        (httpx2.ReadError(""), FaultKind.BROKEN, "before its answer was complete"),
        (httpx2.RemoteProtocolError(""), FaultKind.BROKEN, "before its answer was complete"),
        (httpx2.ReadTimeout(""), FaultKind.BROKEN, "stopped reading or writing"),
        (httpx2.DecodingError(""), FaultKind.UNREADABLE, "compression"),
    ],
)
def test_a_failure_of_the_network_is_told_in_words(error: Exception, kind: FaultKind, words: str) -> None:
    fault = explain_exception(error, PLACE)
    assert fault.kind is kind
    assert words in fault.reason
    assert PLACE in fault.reason or kind is FaultKind.UNREADABLE


@pytest.mark.parametrize("status", [401, 403, 404, 405, 429, 500, 503])
def test_a_status_comes_with_what_to_do(status: int) -> None:
    fault = explain_status(status, PLACE)
    assert fault.status == status
    assert fault.hint


def test_a_status_that_nobody_knows_is_told_too() -> None:
    assert explain_status(799, PLACE).reason == f"answered with 799 at {PLACE}"


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (caused(ConnectionRefusedError()), True),
        (caused(socket.gaierror(socket.EAI_AGAIN, "")), True),
        (httpx2.ConnectTimeout(""), True),
        (caused(socket.gaierror(-99, "unknown")), False),
        (caused(ssl.SSLCertVerificationError()), False),
        (httpx2.ProxyError("407"), False),
        (httpx2.LocalProtocolError(""), False),
    ],
)
def test_only_what_may_pass_is_worth_another_attempt(error: Exception, may_pass: bool) -> None:
    assert explain_exception(error, PLACE).may_pass is may_pass


@pytest.mark.parametrize(
    ("status", "content_type", "hint"),
    [
        (200, "text/html", "Check its `url`"),
        (400, "text/html; charset=utf-8", "Check its `url`"),
        (404, "text/plain", "Check its `url`"),
        (405, "", "Check its `url`"),
        (501, "text/html", "Check its `url`"),
        (401, "text/html", "Check the credentials in the `headers`"),
        (403, "", "Check whether the credentials in the `headers`"),
    ],
)
async def test_an_address_that_is_none_of_mcp_is_to_be_corrected(status: int, content_type: str, hint: str) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        send(writer, status, b"<html>", content_type)

    async with raw_server(answer) as (url, _):
        with pytest.raises(UpstreamUnavailable) as caught:
            async with linked(url):
                pass
    assert str(caught.value.hint).startswith(hint)
    assert not caught.value.retry_possible


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_server_in_trouble_may_be_greeted_later(status: int) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        send(writer, status)

    async with raw_server(answer) as (url, _):
        with pytest.raises(UpstreamUnavailable) as caught:
            async with linked(url):
                pass
    assert caught.value.retry_possible
    assert caught.value.hint != NOT_KNOWN


@by_era
@pytest.mark.parametrize(
    ("status", "may_be_done", "may_pass"),
    [
        (401, False, False),
        (403, False, False),
        (405, False, False),
        (429, False, True),
        (500, True, False),
        (501, False, False),
        (502, True, False),
        (503, True, False),
        (202, True, False),
    ],
)
async def test_a_call_is_worth_another_attempt_only_where_it_was_not_done(
    era: Era, status: int, may_be_done: bool, may_pass: bool
) -> None:
    acting = era(by_tool(act=lambda _, writer: send(writer, status)))
    async with raw_server(acting) as (url, _), linked(url) as link:
        with pytest.raises(UpstreamUnavailable) as caught:
            await ask(link, "act")
    assert (caught.value.hint == NOT_KNOWN) is may_be_done
    assert caught.value.retry_possible is may_pass


async def test_what_changes_nothing_there_may_be_asked_again() -> None:
    async def broken(_: Received, writer: Writer) -> None:
        send(writer, 502)

    async with raw_server(in_stateless_era(broken)) as (url, _), linked(url) as link:
        with pytest.raises(UpstreamUnavailable) as caught:
            await link.request("tools/list", {})
    assert caught.value.retry_possible
    assert caught.value.hint != NOT_KNOWN
