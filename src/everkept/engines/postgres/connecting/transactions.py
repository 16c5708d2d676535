"""How a transaction begins and ends, in the same round trips as what is done in it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg

from everkept.engines.postgres.connecting.cursor import Cursor
from everkept.engines.postgres.connecting.lines import Line
from everkept.engines.postgres.connecting.migrating import (
    Layout,
    check_version,
    lock_number,
    placed_version_query,
)
from everkept.engines.postgres.connecting.parameters import Statement, Values, build_statement
from everkept.engines.postgres.connecting.wire import Answer, Check, Wire

T = TypeVar("T")
Work = Callable[[Cursor], T]

_READING = Statement(b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
_WRITING = Statement(b"BEGIN ISOLATION LEVEL READ COMMITTED")
_COMMIT = Statement(b"COMMIT")
_WENT_ON = "a transaction went on after one of its statements had failed"
# A program that is frozen must not hold its locks for ever.
_LIMITS = "statement_timeout", "idle_in_transaction_session_timeout"


class Outdated(Exception):
    """The tables are not there any more, or older than when the connection was opened."""


class Misplaced(Exception):
    """The session has lost its search path, so a statement might reach another schema."""


class Transaction(Cursor):
    """One that fails as a whole."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._has_failed = False
        self._is_finished = False
        wire.open()

    def _send(self, statement: Statement, check: Check | None = None) -> Answer:
        return self._wire.send(statement, self._look, check)

    def _look(self) -> None:
        try:
            self._exchange()
        except BaseException:
            self._has_failed = True
            raise

    def finish(self) -> None:
        """Raises RuntimeError if a failure in it was passed over."""
        if self._has_failed:
            raise RuntimeError(_WENT_ON)
        if not self._is_finished:
            self._is_finished = True
            self._end()

    def _end(self) -> None:
        raise NotImplementedError


class Question(Transaction):
    """In one snapshot; where it is more than one statement, nothing can be written in it.

    A question of one statement, asked with `ask_last`, takes one round trip. On a connection whose
    session is ours it needs no BEGIN: what goes out together is a transaction.
    """

    def __init__(self, wire: Wire, settings: Statement | None, version: Statement, check: Check):
        """`settings` are for this transaction; None if the session has them."""
        super().__init__(wire)
        self._settings = settings
        self._version = version
        self._check = check
        self._is_begun = False
        self._needs_commit = False
        self._is_over = False

    def ask_last(self, statement: str | bytes, values: Values | None = None) -> Answer:
        built = build_statement(statement, values)
        self._begin(is_explicit=self._settings is not None)
        answer = self._send(built)
        self._send_end()
        return answer

    def ask(self, statement: str | bytes, values: Values | None = None) -> Answer:
        if self._is_over:
            raise RuntimeError("a question went on after its last statement")
        built = build_statement(statement, values)
        self._begin(is_explicit=True)
        return self._send(built)

    def _end(self) -> None:
        if self._is_begun and not self._is_over:
            self._send_end()
        if self._wire.is_waiting:
            self._exchange()

    def _begin(self, *, is_explicit: bool) -> None:
        if self._is_begun:
            return
        self._is_begun, self._needs_commit = True, is_explicit
        if is_explicit:
            self._send(_READING)
        if self._settings is not None:
            self._send(self._settings)
        self._send(self._version, self._check)

    def _send_end(self) -> None:
        self._is_over = True
        if self._needs_commit:
            self._send(_COMMIT)


class Writing(Transaction):
    """One that changes something. It is committed once the tables are known to be as expected."""

    def __init__(self, wire: Wire, opening: Sequence[Statement], version: Statement, check: Check):
        super().__init__(wire)
        for statement in (_WRITING, *opening):
            self._send(statement)
        self._send(version, check)

    def _end(self) -> None:
        if not self._wire.has_answered:
            self._exchange()
        committed = self._send(_COMMIT)
        self._exchange()
        if committed.status != b"COMMIT":
            raise RuntimeError(_WENT_ON)


class Form:
    """How transactions in one schema are begun."""

    def __init__(self, schema: str, layout: Layout, place: str) -> None:
        self._layout = layout
        self._place = place
        self._version = Statement(placed_version_query(schema).encode())
        # Whoever writes shares it: so nobody changes the tables under a transaction.
        lock = f"SELECT pg_advisory_xact_lock_shared({lock_number(schema)})"
        self._lock = Statement(lock.encode())

    def settings(self, search_path: str, limit: float) -> str:
        """What a session is set to which is ours alone; a transaction says what else it is."""
        return "; ".join(
            f"SET {name} = {value}"
            for name, value in (
                ("search_path", search_path),
                *((name, f"'{value}'") for name, value in _settings(limit).items()),
                ("default_transaction_isolation", "'repeatable read'"),
            )
        )

    def question(self, line: Line, search_path: str, limit: float) -> Question:
        """One whose first answer raises StoreTooNew, Outdated or Misplaced if the tables differ."""
        settings = None
        if line.is_pooled:
            settings = _set_locally({"search_path": search_path, **_settings(limit)})
        return Question(line.wire, settings, self._version, self._check)

    def writing(self, line: Line, search_path: str, limit: float) -> Writing:
        """Likewise."""
        settings = {"search_path": search_path, **_settings(limit)}
        if not line.is_pooled:
            settings = {name: settings[name] for name in _LIMITS}
        opening = (_set_locally(settings), self._lock)
        return Writing(line.wire, opening, self._version, self._check)

    def _check(self, answer: Answer) -> None:
        if isinstance(answer.error, psycopg.errors.UndefinedTable):
            raise Outdated from answer.error
        if answer.error is not None:
            return
        row = answer.fetchone()
        if row is not None and not row[1]:
            raise Misplaced
        version = int(row[0]) if row is not None else 0
        check_version(version, self._layout, self._place)
        if version < self._layout.version:
            raise Outdated


def _settings(limit: float) -> dict[str, str]:
    milliseconds = str(max(1, round(limit * 1000)))
    return {
        **dict.fromkeys(_LIMITS, milliseconds),
        # Stores are of unequal size: a plan for all of them is a bad one for most.
        "plan_cache_mode": "force_custom_plan",
    }


def _set_locally(settings: dict[str, str]) -> Statement:
    calls = ", ".join(f"set_config('{name}', %s, true)" for name in settings)
    return build_statement(f"SELECT {calls}", list(settings.values()))
