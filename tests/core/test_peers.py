import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.peers import (
    NoPeers,
    Peer,
    PeerQuestion,
    format_fingerprint,
    format_source,
    parse_address,
    parse_fingerprint,
    parse_source,
    validate_peer_name,
    validate_token,
)
from everkept.errors import InvalidInput

DIGITS = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [
        ("https://anna.example:8443", "anna.example", 8443),
        ("https://ANNA.example/", "anna.example", 443),
        (" https://192.168.1.7:8081 ", "192.168.1.7", 8081),
        ("https://[::1]:8081", "::1", 8081),
    ],
)
def test_an_address_is_a_host_and_a_port(given: str, host: str, port: int) -> None:
    assert parse_address(given) == (host, port)
    peer = Peer("anna", host, port, DIGITS, "secret")
    assert parse_address(peer.address) == (host, port)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "anna.example:8443",
        "http://anna.example:8443",
        "ftp://anna.example",
        "https://",
        "https://:8443",
        "https://anna.example:0",
        "https://anna.example:99999",
        "https://anna.example:8443/mcp",
        "https://anna.example?x=1",
        "https://anna.example#x",
        "https://anna:word@anna.example",
        "https://an na.example",
        "https://anna\r\nX-Evil: 1",
        "https://än.example",
        "https://[::1",
    ],
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput):
        parse_address(given)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_address("https://anna:word@anna.example")
    assert "word@" not in str(refused.value)
    assert "word" not in str(refused.value.facts["value"])


@pytest.mark.parametrize(
    "given",
    [
        DIGITS,
        DIGITS.upper(),
        f"sha256:{DIGITS}",
        f"SHA256:{DIGITS}",
        f" sha-256={DIGITS}\n",
        "sha256 Fingerprint=" + ":".join(DIGITS[i : i + 2] for i in range(0, 64, 2)).upper(),
    ],
)
def test_a_fingerprint_is_read_as_programs_write_it(given: str) -> None:
    assert parse_fingerprint(given) == DIGITS


@pytest.mark.parametrize("given", ["", "sha256:", DIGITS[1:], DIGITS + "00", "g" * 64, "sha1:00"])
def test_what_is_no_fingerprint_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput):
        parse_fingerprint(given)


@given(st.binary(min_size=32, max_size=32))
def test_a_fingerprint_that_is_shown_is_read_again(seen: bytes) -> None:
    assert parse_fingerprint(format_fingerprint(seen.hex())) == seen.hex()


@pytest.mark.parametrize("given", ["", "  ", "a b", "a\nb", "ä", "x" * 501, "a\x00"])
def test_what_is_no_token_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        validate_token(given)
    assert not given.strip() or given not in str(refused.value.to_envelope())


def test_a_token_is_taken_without_the_end_of_its_line() -> None:
    assert validate_token("evk_abc\r\n") == "evk_abc"


@pytest.mark.parametrize("given", ["", "a b", "ä", "x" * 41, "a/b", "a:b", "a\n"])
def test_what_is_no_name_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput):
        validate_peer_name(given if given != "a\n" else "a\nb")


def test_a_name_has_small_letters() -> None:
    assert validate_peer_name(" Anna-2 ") == "anna-2"


def test_a_source_names_its_peer() -> None:
    assert parse_source(format_source("anna")) == "anna"
    assert parse_source("local") is None


def test_a_token_is_in_no_text_of_a_peer() -> None:
    assert "secret" not in repr(Peer("anna", "host", 1, DIGITS, "secret"))


async def test_where_nobody_is_known_nobody_is_asked() -> None:
    asked = await NoPeers().ask(PeerQuestion("anything"))
    assert not asked.is_anybody
