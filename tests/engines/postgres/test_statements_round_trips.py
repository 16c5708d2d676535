"""Statements that go out together on one connection, and what a server remembers of them."""

from collections.abc import Generator

import pytest
from psycopg import errors

from everkept.engines.postgres.connection import Connection
from everkept.engines.postgres.statements import PREPARE_AFTER_USES, Cursor, StatementPipeline
from postgres_server import shared

REMEMBERED = "SELECT count(*)::integer FROM pg_prepared_statements WHERE statement LIKE 'SELECT 7%'"


@pytest.fixture
def connection() -> Generator[Connection, None, None]:
    with shared().connect() as connection:
        yield connection


@pytest.fixture
def wire(connection: Connection) -> StatementPipeline:
    return StatementPipeline(connection, remembers=True)


def remembered(connection: Connection) -> int:
    [(count,)] = connection.execute(REMEMBERED).fetchall()
    return count


def test_however_many_statements_are_asked_they_take_one_trip(wire: StatementPipeline) -> None:
    cursor = Cursor(wire)
    answers = [cursor.ask("SELECT %s::integer", [number]) for number in range(20)]
    assert wire.trips == 0
    assert [answer.fetchone() for answer in answers] == [(number,) for number in range(20)]
    assert wire.trips == 1


def test_more_than_fits_on_the_way_goes_both_ways(wire: StatementPipeline) -> None:
    cursor, long = Cursor(wire), "x" * 100_000
    answers = [cursor.ask("SELECT %s", [long]) for _ in range(200)]
    assert all(answer.fetchall() == [(long,)] for answer in answers)


def test_rows_are_given_once(wire: StatementPipeline) -> None:
    answer = Cursor(wire).ask("SELECT * FROM generate_series(1, 3)")
    assert answer.fetchone() == (1,)
    assert list(answer) == [(2,), (3,)]
    assert answer.fetchone() is None
    assert answer.rowcount == 3


def test_what_comes_often_is_remembered_and_the_rest_is_not(connection: Connection, wire: StatementPipeline) -> None:
    cursor = Cursor(wire)
    for _ in range(PREPARE_AFTER_USES):
        cursor.execute("SELECT 7")
    assert remembered(connection) == 0
    for _ in range(3):
        assert cursor.execute("SELECT 7").fetchall() == [(7,)]
    assert remembered(connection) == 1


def test_nothing_is_remembered_by_a_server_that_is_not_to(connection: Connection) -> None:
    cursor = Cursor(StatementPipeline(connection))
    for _ in range(2 * PREPARE_AFTER_USES):
        cursor.execute("SELECT 7")
    assert remembered(connection) == 0


def test_what_failed_before_it_was_remembered_is_told_to_the_server_again(wire: StatementPipeline) -> None:
    cursor = Cursor(wire)
    for _ in range(PREPARE_AFTER_USES):
        cursor.execute("SELECT 7")
    cursor.ask("SELECT 1 / 0")
    with pytest.raises(errors.DivisionByZero):
        cursor.execute("SELECT 7")
    assert cursor.execute("SELECT 7").fetchall() == [(7,)]


def test_what_comes_behind_a_failure_has_no_answer(wire: StatementPipeline) -> None:
    cursor = Cursor(wire)
    cursor.ask("SELECT 1 / 0")
    behind = cursor.ask("SELECT 7")
    with pytest.raises(errors.DivisionByZero):
        behind.fetchall()
    with pytest.raises(RuntimeError, match="an earlier one had failed"):
        behind.fetchall()
