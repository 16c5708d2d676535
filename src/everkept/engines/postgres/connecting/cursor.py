"""The statements of one transaction, in as few round trips as their answers are looked at."""

from everkept.engines.postgres.connecting.dialing import Connection
from everkept.engines.postgres.connecting.parameters import Statement, Values, build_statement
from everkept.engines.postgres.connecting.wire import Answer, Check, Wire


class Cursor:
    """Statements go out when an answer is looked at, together with all that were asked before.

    What goes out together is a transaction of its own here; see `transactions.py` for longer ones.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.news: set[int | None] = set()  # what is to be told once the transaction is committed

    @property
    def server_version(self) -> int:
        return self._wire.connection.pgconn.server_version

    def ask(self, statement: str | bytes, values: Values | None = None) -> Answer:
        """Return an answer to look at later. The statement goes out with what comes next."""
        return self._send(build_statement(statement, values))

    def ask_last(self, statement: str | bytes, values: Values | None = None) -> Answer:
        """Ask what no other statement follows: the end of a question goes out with it."""
        return self.ask(statement, values)

    def execute(self, statement: str | bytes, values: Values | None = None) -> Answer:
        """Ask, and wait until it is done."""
        answer = self.ask(statement, values)
        self._look()
        return answer

    def finish(self) -> None:
        """Ends the transaction. What was asked in it is done from then on."""
        if self._wire.is_waiting:
            self._look()

    def _send(self, statement: Statement, check: Check | None = None) -> Answer:
        self._wire.open()
        return self._wire.send(statement, self._look, check)

    def _look(self) -> None:
        """Until all that was asked is answered."""
        try:
            self._exchange()
        finally:
            self._wire.close()

    def _exchange(self) -> None:
        self._wire.synchronize()
        self._wire.receive()


def cursor_on(connection: Connection) -> Cursor:
    """One for a connection that somebody else opened and closes."""
    return Cursor(Wire(connection))
