"""Values on their way to a server: each arrives as what it was."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from everkept.engines.postgres.statements import build_statement, open_cursor
from postgres_server import shared

SOME = UUID("12345678-1234-5678-1234-567812345678")


class Name(str):
    """A text by descent."""


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", 'it\'s \\ "quoted" %s $1 ü'),
        ("text", ""),
        ("text", Name("by descent")),
        ("text", None),
        ("boolean", True),
        ("integer", -(2**31) + 1),
        ("bigint", 2**63 - 1),
        ("bigint", -(2**63)),
        ("numeric", 2**70),
        ("double precision", 0.1),
        ("double precision", float("-inf")),
        ("uuid", SOME),
        ("text[]", []),
        ("text[]", ["a,b", "{}", 'say "x"', "back\\slash", "NULL", "", None]),
        ("bigint[]", [1, None, 2**40]),
        ("double precision[]", [0.1, 2.0]),
        ("boolean[]", [True, False]),
        ("uuid[]", [SOME]),
    ],
)
def test_a_value_arrives_as_what_it_was(kind: str, value: Any) -> None:
    with shared().connect() as connection:
        [(seen,)] = open_cursor(connection).execute(f"SELECT %s::{kind}", [value])
        assert seen == value


def test_a_sequence_is_an_array_whatever_it_is_made_of() -> None:
    with shared().connect() as connection:
        rows = open_cursor(connection).execute("SELECT %s::text[]", [("a", "b")])
        assert rows.fetchall() == [(["a", "b"],)]


def test_a_name_that_comes_twice_is_one_value() -> None:
    text = "SELECT %(a)s, %(b)s, %(a)s, 5 %% 3"
    assert build_statement(text, {"a": "x", "b": 1}) == (b"SELECT $1, $2, $1, 5 % 3", [b"x", b"1"], (0, 23))


def test_without_values_a_percent_sign_is_one() -> None:
    assert build_statement("SELECT '%s%%'").text == b"SELECT '%s%%'"


@pytest.mark.parametrize("value", ["a\0b", ["a", "b\0"]])
def test_a_nul_is_refused_instead_of_cut_off(value: Any) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        build_statement("SELECT %s", [value])


def test_what_no_column_can_hold_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="object"):
        build_statement("SELECT %s", [object()])
