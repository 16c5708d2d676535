"""Statements on one connection: their values, their round trips, and their results in order."""

import re
import selectors
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import abc, adapt
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from everkept.engines.postgres.connection import Connection

MAX_REMEMBERED_TEXTS = 2_000
UNKNOWN, INT4, INT8, NUMERIC, FLOAT8, BOOL, UUID_TYPE = 0, 23, 20, 1700, 701, 16, 2950
MAX_INT4, MAX_INT8 = 2**31 - 1, 2**63 - 1

Values = Sequence[Any] | Mapping[str, Any]

_PLACEHOLDER = re.compile(r"%(?:%|s|\((\w+)\)s)")
_SPECIAL = re.compile(r'(["\\])')


class Statement(NamedTuple):
    """Statement to send. The server prepares it by text and types, whatever its values."""

    text: bytes
    values: Sequence[bytes | None] = ()
    types: tuple[int, ...] = ()


def build_statement(text: str | bytes, values: Values | None = None) -> Statement:
    """Return the statement with its values beside it. Without values, `%` is an ordinary character.

    Raise DataError for NUL, and UnicodeEncodeError for an unpaired surrogate.
    """
    if isinstance(text, bytes):
        text = text.decode()
    if values is None:
        return Statement(text.encode())
    numbered, names = _number_placeholders(text)
    given = values if isinstance(values, Sequence) else [values[name] for name in names]
    encoded = [_encode(value) for value in given]
    return Statement(numbered, [each[0] for each in encoded], tuple([each[1] for each in encoded]))


@lru_cache(MAX_REMEMBERED_TEXTS)
def _number_placeholders(text: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the text with `$1` for `%s` or `%(name)s`, and the names."""
    names: dict[str, int] = {}

    def place(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        name = found[1] or f"{len(names)}"
        return f"${names.setdefault(name, len(names) + 1)}"

    return _PLACEHOLDER.sub(place, text).encode(), tuple(names)


def _encode(value: Any) -> tuple[bytes | None, int]:
    """Return the value as text, and its type. UNKNOWN leaves the type to the statement."""
    if (encode := _ENCODERS.get(value.__class__)) is not None:
        return encode(value)
    for kind in (str, bool, int, float, Sequence):  # subclasses
        if isinstance(value, kind):
            return _ENCODERS[kind](value)
    raise TypeError(f"cannot send a {type(value).__name__} as a value of a statement")


def _encode_text(text: str) -> bytes:
    encoded = text.encode()
    if b"\0" in encoded:
        raise psycopg.DataError("the text contains NUL (0x00)")
    return encoded


def _choose_integer_type(number: int) -> int:
    if -MAX_INT4 <= number <= MAX_INT4:
        return INT4
    return INT8 if -MAX_INT8 <= number <= MAX_INT8 else NUMERIC


def _format_array(values: Sequence[Any]) -> str:
    return f"{{{','.join(_ELEMENTS.get(value.__class__, _quote)(value) for value in values)}}}"


def _quote(value: Any) -> str:
    text = str(value)
    return f'"{_SPECIAL.sub(_ESCAPED, text)}"' if _SPECIAL.search(text) else f'"{text}"'


_ESCAPED = r"\\\1"
_ELEMENTS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "NULL",
    bool: lambda value: "t" if value else "f",
    int: str,
    float: repr,
    UUID: str,
}
_ENCODERS: dict[type, Callable[[Any], tuple[bytes | None, int]]] = {
    type(None): lambda _: (None, UNKNOWN),
    str: lambda value: (_encode_text(value), UNKNOWN),
    bool: lambda value: (b"t" if value else b"f", BOOL),
    int: lambda value: (b"%d" % value, _choose_integer_type(value)),
    float: lambda value: (repr(float(value)).encode(), FLOAT8),
    UUID: lambda value: (str(value).encode(), UUID_TYPE),
    list: lambda value: (_encode_text(_format_array(value)), UNKNOWN),
    Sequence: lambda value: (_encode_text(_format_array(value)), UNKNOWN),
}


PREPARE_AFTER_USES = 5  # after which the server prepares a statement
MAX_PREPARED = 250  # prepared statements per connection
MAX_COUNTED = 2_000  # statements whose uses are counted

Row = tuple[Any, ...]
WaitCallback = Callable[[], None]
ResultCheck = Callable[["QueryResult"], None]
_StatementKey = tuple[bytes, tuple[int, ...]]

_OK_STATUSES = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)


class QueryResult:
    """Result of a statement. Reading it waits until it arrives."""

    def __init__(self, look: WaitCallback, check: ResultCheck | None = None) -> None:
        """Prepare an empty result. `check` is called when it arrives, before any later result is read."""
        self._look = look
        self._check = check
        self._result: PGresult | None = None
        self._rows: list[Row] = []
        self._is_skipped = False
        self._taken = 0  # rows that fetchone returned
        self.error: psycopg.Error | None = None

    def fetchall(self) -> list[Row]:
        self._wait()
        rows, self._taken = self._rows[self._taken :], len(self._rows)
        return rows

    def fetchone(self) -> Row | None:
        self._wait()
        if self._taken == len(self._rows):
            return None
        self._taken += 1
        return self._rows[self._taken - 1]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.fetchall())

    @property
    def rowcount(self) -> int:
        """Return the number of rows that the statement returned or changed."""
        self._wait()
        assert self._result is not None
        return self._result.command_tuples or 0

    @property
    def status(self) -> bytes:
        """Return the server's name for the command."""
        self._wait()
        assert self._result is not None
        return self._result.command_status or b""

    def _wait(self) -> None:
        if self._result is None and not self._is_skipped:
            self._look()
        if self._result is None:
            raise RuntimeError("a statement was skipped because an earlier one had failed")

    def skip(self) -> None:
        """Mark the statement as not run, because an earlier one failed."""
        self._is_skipped = True

    def set_result(self, result: PGresult, transformer: abc.Transformer) -> None:
        """Store the result. Raise the server's error, or an error from `check`."""
        self._result = result
        if result.status == ExecStatus.TUPLES_OK:
            transformer.set_pgresult(result)
            self._rows = transformer.load_rows(0, result.ntuples, tuple)
        elif result.status not in _OK_STATUSES:
            self.error = error_from_result(result)
        if self._check is not None:
            self._check(self)
        if self.error is not None:
            raise self.error


class StatementPipeline:
    """Pipeline that one thread uses at a time. `trips` counts its round trips."""

    def __init__(self, connection: Connection, *, remembers: bool = False) -> None:
        """Use the connection. With `remembers`, the server prepares frequent statements."""
        self.connection = connection
        self.trips = 0
        self.has_answered = False  # since `open`
        self._pgconn = connection.pgconn
        self._transformer: abc.Transformer = adapt.Transformer(connection)
        self._remembers = remembers
        self._uses: dict[_StatementKey, int] = {}
        self._names: dict[_StatementKey, bytes] = {}  # names of prepared statements
        self._unsure: list[_StatementKey] = []  # prepared statements that the server has not confirmed yet
        self._named = 0
        self._has_failed = False
        self._expected: deque[QueryResult | None] = deque()  # None marks the end of a group
        self._selector: selectors.BaseSelector | None = None
        self._awaited = selectors.EVENT_READ

    @property
    def is_waiting(self) -> bool:
        """Return whether a statement has no result yet."""
        return bool(self._expected)

    def open(self) -> None:
        self.has_answered = False
        self._pgconn.enter_pipeline_mode()

    def send(self, statement: Statement, look: WaitCallback, check: ResultCheck | None = None) -> QueryResult:
        """Queue a statement. The next `synchronize` sends it."""
        name = self._find_prepared_name(statement) if self._remembers else None
        if name is None:
            self._pgconn.send_query_params(statement.text, statement.values, statement.types)
        else:
            self._pgconn.send_query_prepared(name, statement.values)
        answer = QueryResult(look, check)
        self._expected.append(answer)
        return answer

    def synchronize(self) -> None:
        """End the group of statements. If one of them fails, the server skips the rest of the group."""
        self._pgconn.pipeline_sync()
        self._expected.append(None)

    def receive(self) -> None:
        """Wait for all results. Raise the first failure; `close` skips the results after it."""
        self.trips += bool(self._expected)
        while self._expected:
            answer = self._expected[0]
            result = self._read_result()
            if answer is None:
                self._expected.popleft()
                continue
            while self._read_result() is not None:  # None ends a result
                pass
            self._expected.popleft()
            if self._has_failed or result is None:
                answer.skip()
                continue
            self._has_failed = True  # unless set_result succeeds
            answer.set_result(result, self._transformer)
            self._has_failed = False
            self.has_answered = True

    def close(self) -> None:
        """Leave the connection without pending statements, if it is still open."""
        with suppress(psycopg.Error):
            if self._expected:
                self._has_failed = True  # no one reads the remaining results
                if self._expected[-1] is not None:
                    self.synchronize()
            self.receive()
            self._pgconn.exit_pipeline_mode()
        if self._has_failed:
            for key in self._unsure:
                del self._names[key]
        self._unsure.clear()
        self._has_failed = False

    def _read_result(self) -> PGresult | None:
        pgconn = self._pgconn
        while pgconn.flush():
            self._wait(selectors.EVENT_READ | selectors.EVENT_WRITE)
            pgconn.consume_input()
        while pgconn.is_busy():
            self._wait(selectors.EVENT_READ)
            pgconn.consume_input()
        return pgconn.get_result()

    def _wait(self, events: int) -> None:
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
            self._selector.register(self._pgconn.socket, self._awaited)
        if events != self._awaited:
            self._selector.modify(self._pgconn.socket, events)
            self._awaited = events
        self._selector.select()

    def _find_prepared_name(self, statement: Statement) -> bytes | None:
        """Return the name of the prepared statement, or None if it is not used often enough."""
        key = statement.text, statement.types
        if (known := self._names.get(key)) is not None:
            return known
        if len(self._uses) >= MAX_COUNTED:
            self._uses.clear()
        self._uses[key] = uses = self._uses.get(key, 0) + 1
        if uses <= PREPARE_AFTER_USES or len(self._names) >= MAX_PREPARED:
            return None
        self._named += 1
        name = b"s%d" % self._named
        self._pgconn.send_prepare(name, statement.text, statement.types)
        self._expected.append(QueryResult(lambda: None))  # no one reads it
        self._names[key] = name
        self._unsure.append(key)
        return name


class Cursor:
    """Cursor that sends its statements when a result is read, together with all earlier ones.

    Statements that are sent together are one transaction. See `transactions.py` for longer ones.
    """

    def __init__(self, wire: StatementPipeline) -> None:
        self._wire = wire
        self.news: set[int | None] = set()  # changed stores to report after the commit

    @property
    def server_version(self) -> int:
        return self._wire.connection.pgconn.server_version

    def ask(self, statement: str | bytes, values: Values | None = None) -> QueryResult:
        """Return a result to read later. The statement is sent with the next ones."""
        return self._send(build_statement(statement, values))

    def ask_last(self, statement: str | bytes, values: Values | None = None) -> QueryResult:
        """Send the last statement of a query, together with the end of the transaction."""
        return self.ask(statement, values)

    def execute(self, statement: str | bytes, values: Values | None = None) -> QueryResult:
        """Send the statement and wait until it is done."""
        answer = self.ask(statement, values)
        self._receive()
        return answer

    def finish(self) -> None:
        """End the transaction and wait until its statements are done."""
        if self._wire.is_waiting:
            self._receive()

    def _send(self, statement: Statement, check: ResultCheck | None = None) -> QueryResult:
        self._wire.open()
        return self._wire.send(statement, self._receive, check)

    def _receive(self) -> None:
        try:
            self._exchange()
        finally:
            self._wire.close()

    def _exchange(self) -> None:
        self._wire.synchronize()
        self._wire.receive()


def open_cursor(connection: Connection) -> Cursor:
    """Return a cursor for a connection that the caller opens and closes."""
    return Cursor(StatementPipeline(connection))


MAX_INTEGER = 2**63 - 1  # largest integer of the database


def ask(cursor: Cursor, statement: str, *values: Any) -> QueryResult:
    """Queue a statement. It is sent with the next ones, or when its result is read."""
    # Input of a caller is always a value, never part of the statement.
    return cursor.ask(statement, values)


def ask_last(cursor: Cursor, statement: str, *values: Any) -> QueryResult:
    """Queue the last statement of a query."""
    return cursor.ask_last(statement, values)


def ask_for(cursor: Cursor, statement: str, store: int, wanted: Sequence[Any]) -> QueryResult | None:
    """Queue a statement about items of one store. Return None if `wanted` is empty."""
    return ask(cursor, statement, store, wanted) if wanted else None


def fetch_rows(asked: QueryResult | None) -> list[tuple[Any, ...]]:
    return [] if asked is None else asked.fetchall()


def to_limit(limit: int | None) -> int | None:
    """Return the value of LIMIT. None means no limit."""
    return None if limit is None or limit < 0 else min(limit, MAX_INTEGER)
