import socket
import ssl

import httpx2
import pytest

from recollect.upstreams.http.faults import Kind, of_exception, of_status

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
        (caused(ConnectionRefusedError()), Kind.UNREACHED, "the connection is refused"),
        (caused(socket.gaierror(-2, "unknown")), Kind.UNREACHED, "there is no such host"),
        (caused(ssl.SSLCertVerificationError()), Kind.UNREACHED, "certificate is not trusted"),
        (caused(ssl.SSLError()), Kind.UNREACHED, "TLS failed"),
        (caused(ValueError()), Kind.UNREACHED, "no connection comes about"),
        (httpx2.ConnectTimeout(""), Kind.UNREACHED, "accepts no connection"),
        (httpx2.ProxyError("407"), Kind.UNREACHED, "the proxy refuses it"),
        (httpx2.LocalProtocolError(""), Kind.UNREACHED, "cannot be sent"),
        (httpx2.ReadError(""), Kind.BROKEN, "before its answer was complete"),
        (httpx2.RemoteProtocolError(""), Kind.BROKEN, "before its answer was complete"),
        (httpx2.ReadTimeout(""), Kind.BROKEN, "stopped reading or writing"),
        (httpx2.DecodingError(""), Kind.UNREADABLE, "compression"),
    ],
)
def test_a_failure_of_the_network_is_told_in_words(
    error: Exception, kind: Kind, words: str
) -> None:
    fault = of_exception(error, PLACE)
    assert fault.kind is kind
    assert words in fault.reason
    assert PLACE in fault.reason or kind is Kind.UNREADABLE


@pytest.mark.parametrize("status", [401, 403, 404, 405, 429, 500, 503])
def test_a_status_comes_with_what_to_do(status: int) -> None:
    fault = of_status(status, PLACE)
    assert fault.status == status
    assert fault.hint


def test_a_status_that_nobody_knows_is_told_too() -> None:
    assert of_status(799, PLACE).reason == f"answered with 799 at {PLACE}"
