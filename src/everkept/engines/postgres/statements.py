"""Statements on one connection: their values, their round trips, and their answers in order."""

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
    """What is sent: two that differ in values only are the same to a server that remembers it."""

    text: bytes
    values: Sequence[bytes | None] = ()
    types: tuple[int, ...] = ()


def build_statement(text: str | bytes, values: Values | None = None) -> Statement:
    """Return the statement with its values beside it. Without values, `%` is just a character.

    Raises DataError for NUL, and UnicodeEncodeError for an unpaired surrogate.
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
    """The text with `$1` for `%s` or `%(name)s`, and the names."""
    names: dict[str, int] = {}

    def place(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        name = found[1] or f"{len(names)}"
        return f"${names.setdefault(name, len(names) + 1)}"

    return _PLACEHOLDER.sub(place, text).encode(), tuple(names)


def _encode(value: Any) -> tuple[bytes | None, int]:
    """The value as text, and its type; UNKNOWN leaves that to the statement."""
    if (encode := _ENCODERS.get(value.__class__)) is not None:
        return encode(value)
    for kind in (str, bool, int, float, Sequence):  # what is one of these by descent
        if isinstance(value, kind):
            return _ENCODERS[kind](value)
    raise TypeError(f"{type(value).__name__} cannot be a value of a statement")


def _encode_text(text: str) -> bytes:
    encoded = text.encode()
    if b"\0" in encoded:
        raise psycopg.DataError("a text holds NUL (0x00)")
    return encoded


def _choose_integer_type(number: int) -> int:
    if -MAX_INT4 <= number <= MAX_INT4:
        return INT4
    return INT8 if -MAX_INT8 <= number <= MAX_INT8 else NUMERIC


def _format_array(values: Sequence[Any]) -> str:
    return f"{{{','.join(map(_format_element, values))}}}"


def _format_element(value: Any) -> str:
    return _ELEMENTS.get(value.__class__, _quote)(value)


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


PREPARE_AFTER_USES = 5  # uses of a statement, after which the server is to remember it
MAX_PREPARED = 250  # statements that it remembers for one connection
MAX_COUNTED = 2_000  # statements whose uses are counted

Row = tuple[Any, ...]
WaitCallback = Callable[[], None]
ResultCheck = Callable[["QueryResult"], None]
_StatementKey = tuple[bytes, tuple[int, ...]]

_OK_STATUSES = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)


class QueryResult:
    """What a statement gives; whoever looks at it waits until it is there."""

    def __init__(self, look: WaitCallback, check: ResultCheck | None = None) -> None:
        """`check` is called with it as soon as it is there, before anything that comes behind."""
        self._look = look
        self._check = check
        self._result: PGresult | None = None
        self._rows: list[Row] = []
        self._is_skipped = False
        self._taken = 0  # rows that were fetched one by one
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
        """Of rows that it gave or changed."""
        self._wait()
        assert self._result is not None
        return self._result.command_tuples or 0

    @property
    def status(self) -> bytes:
        """What the server calls it."""
        self._wait()
        assert self._result is not None
        return self._result.command_status or b""

    def _wait(self) -> None:
        if self._result is None and not self._is_skipped:
            self._look()
        if self._result is None:
            raise RuntimeError("a statement was not done: one before it had failed")

    def skip(self) -> None:
        """It was not done, for one before it has failed."""
        self._is_skipped = True

    def set_result(self, result: PGresult, transformer: abc.Transformer) -> None:
        """Raises what the server says against it, and what `check` does."""
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
    """Used by one thread at a time.

    `trips` counts how often something was sent and waited for.
    """

    def __init__(self, connection: Connection, *, remembers: bool = False) -> None:
        """A server that `remembers` keeps statements that come often ready for the next time."""
        self.connection = connection
        self.trips = 0
        self.has_answered = False  # since it was opened
        self._pgconn = connection.pgconn
        self._transformer: abc.Transformer = adapt.Transformer(connection)
        self._remembers = remembers
        self._uses: dict[_StatementKey, int] = {}
        self._names: dict[_StatementKey, bytes] = {}  # by which the server knows statements
        self._unsure: list[_StatementKey] = []  # of these it has not said yet that it does
        self._named = 0
        self._has_failed = False
        self._expected: deque[QueryResult | None] = deque()  # None: the end of what went out together
        self._selector: selectors.BaseSelector | None = None
        self._awaited = selectors.EVENT_READ

    @property
    def is_waiting(self) -> bool:
        """Whether something was asked that has no answer yet."""
        return bool(self._expected)

    def open(self) -> None:
        self.has_answered = False
        self._pgconn.enter_pipeline_mode()

    def send(self, statement: Statement, look: WaitCallback, check: ResultCheck | None = None) -> QueryResult:
        """It goes out with the next `synchronize`."""
        name = self._find_prepared_name(statement) if self._remembers else None
        if name is None:
            self._pgconn.send_query_params(statement.text, statement.values, statement.types)
        else:
            self._pgconn.send_query_prepared(name, statement.values)
        answer = QueryResult(look, check)
        self._expected.append(answer)
        return answer

    def synchronize(self) -> None:
        """Ends what goes out together: where one of it fails, the rest of it is not done."""
        self._pgconn.pipeline_sync()
        self._expected.append(None)

    def receive(self) -> None:
        """Waits for all answers. Raises the first failure; `close` leaves out what is behind it."""
        self.trips += bool(self._expected)
        while self._expected:
            answer = self._expected[0]
            result = self._read_result()
            if answer is None:
                self._expected.popleft()
                continue
            while self._read_result() is not None:  # None is the end of an answer
                pass
            self._expected.popleft()
            if self._has_failed or result is None:
                answer.skip()
                continue
            self._has_failed = True  # unless it can be taken
            answer.set_result(result, self._transformer)
            self._has_failed = False
            self.has_answered = True

    def close(self) -> None:
        """Leaves the connection as if nothing was under way on it, if it is still one."""
        with suppress(psycopg.Error):
            if self._expected:
                self._has_failed = True  # nobody looks at what is left
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
        """None while the server need not remember it."""
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
        self._expected.append(QueryResult(_ignore))
        self._names[key] = name
        self._unsure.append(key)
        return name


def _ignore() -> None:
    """Nobody looks at what the server says of a statement that it is to remember."""


class Cursor:
    """Statements go out when an answer is looked at, together with all that were asked before.

    What goes out together is a transaction of its own here; see `transactions.py` for longer ones.
    """

    def __init__(self, wire: StatementPipeline) -> None:
        self._wire = wire
        self.news: set[int | None] = set()  # what is to be told once the transaction is committed

    @property
    def server_version(self) -> int:
        return self._wire.connection.pgconn.server_version

    def ask(self, statement: str | bytes, values: Values | None = None) -> QueryResult:
        """Return an answer to look at later. The statement goes out with what comes next."""
        return self._send(build_statement(statement, values))

    def ask_last(self, statement: str | bytes, values: Values | None = None) -> QueryResult:
        """Ask what no other statement follows: the end of a question goes out with it."""
        return self.ask(statement, values)

    def execute(self, statement: str | bytes, values: Values | None = None) -> QueryResult:
        """Ask, and wait until it is done."""
        answer = self.ask(statement, values)
        self._receive()
        return answer

    def finish(self) -> None:
        """Ends the transaction. What was asked in it is done from then on."""
        if self._wire.is_waiting:
            self._receive()

    def _send(self, statement: Statement, check: ResultCheck | None = None) -> QueryResult:
        self._wire.open()
        return self._wire.send(statement, self._receive, check)

    def _receive(self) -> None:
        """Until all that was asked is answered."""
        try:
            self._exchange()
        finally:
            self._wire.close()

    def _exchange(self) -> None:
        self._wire.synchronize()
        self._wire.receive()


def open_cursor(connection: Connection) -> Cursor:
    """One for a connection that somebody else opened and closes."""
    return Cursor(StatementPipeline(connection))


MAX_INTEGER = 2**63 - 1  # number that the database knows


def ask(cursor: Cursor, statement: str, *values: Any) -> QueryResult:
    """It goes out with what comes next, or when its answer is looked at."""
    # Nothing that a caller gives is ever part of a statement: it is among the values.
    return cursor.ask(statement, values)


def ask_last(cursor: Cursor, statement: str, *values: Any) -> QueryResult:
    """Likewise, of a question that asks nothing behind it."""
    return cursor.ask_last(statement, values)


def ask_for(cursor: Cursor, statement: str, store: int, wanted: Sequence[Any]) -> QueryResult | None:
    """Of one store and some things in it; without any there is nothing to ask."""
    return ask(cursor, statement, store, wanted) if wanted else None


def fetch_rows(asked: QueryResult | None) -> list[tuple[Any, ...]]:
    return [] if asked is None else asked.fetchall()


def to_limit(limit: int | None) -> int | None:
    """What a statement takes as its limit."""
    return None if limit is None or limit < 0 else min(limit, MAX_INTEGER)
