"""Addresses of PostgreSQL, however a person wrote them."""

import pytest

from everkept.engines.postgres.connection import Address, Credentials, parse_address
from everkept.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("postgresql://db.example.org/memory", Address("db.example.org", 5432, "memory")),
        ("postgres://ada@[::1]:6543/my%20db", Address("::1", 6543, "my db", "ada")),
        (" postgresql://127.0.0.1/a?sslmode=require ", Address("127.0.0.1", 5432, "a", ssl_mode="require")),
    ],
)
def test_an_address_names_a_server_and_a_database(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "db.example.org",
        "mysql://db.example.org/a",
        "postgresql://db.example.org",
        "postgresql://db.example.org/",
        "postgresql://db.example.org/a/b",
        "postgresql:///a",
        "postgresql://one,two/a",
        "postgresql://db.example.org:0/a",
        "postgresql://db.example.org:99999/a",
        "postgresql://db.example.org/a#b",
        "postgresql://db.example.org/a?sslmode=prefer",
        "postgresql://db.example.org/a?sslmode=",
        "postgresql://db.example.org/a?sslmode=require&host=elsewhere",
        "postgresql://db.example.org/a?options=-c",
        "postgresql://db.example.org/a%00b",
        "postgresql:///a?host=/run/postgresql&port=here",
    ],
)
def test_what_is_no_address_of_a_database_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="the form postgresql://"):
        parse_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://ada:secret@db.example.org/a",
        "mysql://ada:secret@db.example.org/a",
        "postgresql://ada@db.example.org/a?password=secret",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_address(text)
    assert "secret" not in str(refused.value)


def test_a_password_is_in_no_picture_of_who_we_are() -> None:
    assert "secret" not in repr(Credentials("ada", "secret"))


@pytest.mark.parametrize(
    ("host", "is_near"),
    [
        *[(host, True) for host in ("127.0.0.1", "[::1]", "localhost", "db.localhost")],
        *[(host, False) for host in ("10.0.0.1", "db.example.org", "localhost.example.org")],
    ],
)
def test_only_this_machine_is_near(host: str, is_near: bool) -> None:
    address = parse_address(f"postgresql://{host}/a")
    assert address.is_local == is_near
    assert address.display_url == f"postgresql://{host}:5432/a"
