"""What SQLite is asked during a call, in which thread, and how many rows that gives."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import apsw


class Statement(NamedTuple):
    sql: str
    thread: int
    rows: list[None]  # as many as were read


class Watch:
    """The statements of all connections that were opened since."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def begin(self) -> None:
        """Forgets what was asked so far."""
        self.statements.clear()

    @property
    def questions(self) -> list[str]:
        """Statements that read rows of a project."""
        return [each.sql for each in self._questions]

    @property
    def rows(self) -> int:
        return sum(len(each.rows) for each in self._questions)

    @property
    def elsewhere(self) -> list[str]:
        """Statements that another thread than this one has made."""
        own = threading.get_ident()
        return [each.sql for each in self.statements if each.thread != own]

    @property
    def _questions(self) -> list[Statement]:
        tables = ("FROM records", "FROM links", "FROM words ")
        return [each for each in self.statements if any(name in each.sql for name in tables)]

    def follow(self, connection: Any) -> None:
        def note_statement(cursor: Any, sql: str, _bindings: object) -> bool:
            statement = Statement(sql, threading.get_ident(), [])
            self.statements.append(statement)

            def note_row(_cursor: object, row: object) -> object:
                statement.rows.append(None)
                return row

            cursor.row_trace = note_row
            return True

        connection.exec_trace = note_statement


@contextmanager
def watched() -> Generator[Watch, None, None]:
    watch = Watch()
    apsw.connection_hooks.append(watch.follow)
    try:
        yield watch
    finally:
        apsw.connection_hooks.remove(watch.follow)
