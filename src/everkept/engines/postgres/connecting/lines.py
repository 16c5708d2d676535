"""One open connection, which can be stopped and cut from another thread than its own."""

import selectors
import socket
import time
from contextlib import suppress

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from everkept.engines.postgres.connecting.dialing import Connection
from everkept.engines.postgres.connecting.wire import Wire

CANCEL_LIMIT = 0.5  # seconds to ask a server to leave off


class Line:
    """Used by one thread at a time. What was stopped or cut is not used again."""

    def __init__(self, connection: Connection, epoch: int) -> None:
        self.connection = connection
        self.epoch = epoch  # of the pool that it belongs to
        self.is_pooled = True  # until it is known that the session is ours alone
        self.wire = Wire(connection)
        self._is_spent = False
        self._used_at = time.monotonic()

    @property
    def is_usable(self) -> bool:
        return not self._is_spent and not self.connection.closed

    @property
    def idle_for(self) -> float:
        """Seconds since it was settled."""
        return time.monotonic() - self._used_at

    def answers(self, limit: float) -> bool:
        """Whether the other side does, within so many seconds."""
        connection, deadline = self.connection.pgconn, time.monotonic() + limit
        try:
            connection.send_query(b"SELECT 1")
            with selectors.DefaultSelector() as selector:
                selector.register(connection.socket, selectors.EVENT_READ)
                while connection.is_busy():
                    if not selector.select(max(0, deadline - time.monotonic())):
                        return False
                    connection.consume_input()
            while connection.get_result() is not None:
                pass
        except (psycopg.Error, OSError):
            return False
        return True

    def stop(self) -> None:
        """Asks the server to leave off what it does for us.

        It asks by a way of its own, and might hit what the connection is used for next.
        """
        self._is_spent = True
        with suppress(psycopg.Error):
            self.connection.cancel_safe(timeout=CANCEL_LIMIT)

    def cut(self) -> None:
        """Whoever waits for an answer by it learns at once that none will come."""
        self._is_spent = True
        cut(self.connection)

    def own(self, settings: str) -> None:
        """Nobody else uses the session: what is set there stays, and statements too."""
        self.connection.execute(settings.encode(), prepare=False)
        self.is_pooled = False
        self.wire = Wire(self.connection, remembers=True)

    def settle(self) -> None:
        """Undoes what was not committed."""
        self._used_at = time.monotonic()
        self.wire.close()
        pgconn = self.connection.pgconn
        if pgconn.transaction_status == TransactionStatus.INERROR or (
            pgconn.transaction_status == TransactionStatus.INTRANS
        ):
            with suppress(psycopg.Error):
                self.connection.execute("ROLLBACK", prepare=False)
        self._is_spent |= (
            pgconn.transaction_status != TransactionStatus.IDLE
            or pgconn.pipeline_status != PipelineStatus.OFF
        )

    def close(self) -> None:
        self.connection.close()


def cut(connection: Connection) -> None:
    """Closing it would free what the thread that waits on it still uses."""
    with suppress(OSError, psycopg.Error):
        number = connection.fileno()
        with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as twin:
            twin.shutdown(socket.SHUT_RDWR)
