"""The socket of the HTTP server: which connections it accepts, and which it ends to accept others."""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Literal, cast

from everkept.core.text import format_count
from everkept.transports.guard import get_network
from everkept.transports.http_protocol import ClosedReason, ConnectionLimits, ConnectionWatch, HttpProtocol

FALLBACK_DESCRIPTORS = 4096  # for systems without a limit
MAX_CONNECTIONS = 4096
MIN_CONNECTIONS = 16
ADDRESS_SHARE = 4  # one address may use a fourth of the connections
PAUSE_SECONDS = 1.0  # after the system had no descriptors left
REPORT_SECONDS = 60.0
QUEUED_CONNECTIONS = 1024  # that the system completes before they are accepted
NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

#: Why a connection was not accepted, or made place for another.
RefusedReason = Literal["total", "address", "descriptors", "evicted", "tls"]

CreateProtocol = Callable[[ConnectionWatch], HttpProtocol]
IsProxy = Callable[[str], bool]

log = logging.getLogger(__name__)


def derive_connections() -> int:
    """Return how many connections the limit of descriptors allows: half, because databases need some too."""
    if os.name != "posix":
        return FALLBACK_DESCRIPTORS // 2
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = FALLBACK_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    return max(MIN_CONNECTIONS, min(descriptors // 2, MAX_CONNECTIONS))


def derive_per_address(connections: int) -> int:
    return max(connections // ADDRESS_SHARE, min(connections, MIN_CONNECTIONS))


class ConnectionCounts:
    """Counts of a listener for the metrics, and one log line a minute about connections that it refused."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.open = 0
        self.refused: Counter[RefusedReason] = Counter()
        self.closed: Counter[ClosedReason] = Counter()
        self._reported: Counter[RefusedReason] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def add_refused(self, reason: RefusedReason) -> None:
        self.refused[reason] += 1
        if self._timer is None:
            self._report()

    def add_closed(self, reason: ClosedReason) -> None:
        self.closed[reason] += 1

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _report(self) -> None:
        """Log what came since the last report. While something comes, look again in a minute."""
        self._timer = None
        new = self.refused - self._reported
        if not new:
            return
        self._reported = self.refused.copy()
        details = ", ".join(f"{reason} {count:,}" for reason, count in new.items())
        log.warning("refused or ended %s (%s)", format_count(new.total(), "connection"), details)
        self._timer = asyncio.get_running_loop().call_later(REPORT_SECONDS, self._report)


class _Connection:
    """An accepted connection. Until the handshake of TLS is done, only its task can end it."""

    def __init__(self, address: str, task: asyncio.Task[Any]) -> None:
        self.address = address
        self.protocol: HttpProtocol | None = None
        self._task = task

    def end(self) -> None:
        if self.protocol is None or not self.protocol.end():
            self._task.cancel()


class HttpListener:
    """Accepts connections within the limits.

    At a limit a new connection takes the place of the one that waited longest without a request. If all are busy, the
    new one is refused. Trusted proxies have no limit per address, because many clients share them.
    """

    def __init__(
        self,
        listening: socket.socket,
        create: CreateProtocol,
        limits: ConnectionLimits,
        *,
        tls: ssl.SSLContext | None,
        is_proxy: IsProxy,
        counts: ConnectionCounts,
    ) -> None:
        self._listening = listening
        self._create = create
        self._limits = limits
        self._tls = tls
        self._is_proxy = is_proxy
        self._counts = counts
        self._held: set[_Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._waiting: OrderedDict[_Connection, None] = OrderedDict()  # without a request, longest first
        self._starting: set[asyncio.Task[None]] = set()
        listening.setblocking(False)
        listening.listen(QUEUED_CONNECTIONS)
        self._accepting = asyncio.create_task(self._accept(), name="accept connections")

    def close(self) -> None:
        self._counts.stop()
        self._accepting.cancel()
        for task in self._starting:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait({self._accepting, *self._starting})

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(self._listening)
            except OSError as error:
                if error.errno in NO_RESOURCES:
                    self._counts.add_refused("descriptors")
                    await asyncio.sleep(PAUSE_SECONDS)
                else:  # the client left before it was accepted
                    await asyncio.sleep(0)
                continue
            self._admit(accepted, str(peer[0]) if peer else "")
            # While many connections wait, sock_accept returns without giving others a turn.
            await asyncio.sleep(0)

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        limits, address = self._limits, get_network(peer)
        is_crowded = self._by_address[address] >= limits.per_address and not self._is_proxy(peer)
        if is_crowded and not self._evict(address):
            self._refuse(accepted, "address")
        elif len(self._held) >= limits.connections and not self._evict():
            self._refuse(accepted, "total")
        else:
            task = asyncio.create_task(self._start(accepted, address), name="connection")
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    def _evict(self, address: str | None = None) -> bool:
        """End the connection that waited longest, of this address if one is given. Return whether there is one."""
        found = next((each for each in self._waiting if address in (None, each.address)), None)
        if found is None:
            return False
        self._counts.add_refused("evicted")
        self._release(found)
        found.end()
        return True

    def _refuse(self, accepted: socket.socket, reason: RefusedReason) -> None:
        self._counts.add_refused(reason)
        with accepted:
            if self._tls is None:
                body = b"Too many connections are open. Try again later."
                head = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: %d"
                try:
                    accepted.setblocking(False)
                    accepted.send(head % len(body) + b"\r\nContent-Type: text/plain\r\n\r\n" + body)
                except OSError:
                    return

    async def _start(self, accepted: socket.socket, address: str) -> None:
        """Begin to serve a connection. The handshake of TLS has the deadline of headers."""
        loop = asyncio.get_running_loop()
        connection = _Connection(address, cast("asyncio.Task[Any]", asyncio.current_task()))
        self._hold(connection)

        def create() -> HttpProtocol:
            connection.protocol = self._create(
                ConnectionWatch(
                    on_busy=lambda: self._note_busy(connection),
                    on_waiting=lambda: self._note_waiting(connection),
                    on_lost=lambda: self._release(connection),
                    on_closed=self._counts.add_closed,
                )
            )
            return connection.protocol

        deadline = None if self._tls is None else self._limits.header_seconds
        try:
            accepted.setblocking(False)
            await loop.connect_accepted_socket(create, accepted, ssl=self._tls, ssl_handshake_timeout=deadline)
        except OSError as error:  # includes the errors of TLS
            self._counts.add_refused("tls")
            log.debug("connection from %s failed: %s", address, error)
            self._release(connection)
            accepted.close()
        except BaseException:
            self._release(connection)
            accepted.close()
            raise

    def _hold(self, connection: _Connection) -> None:
        self._held.add(connection)
        self._by_address[connection.address] += 1
        self._waiting[connection] = None
        self._counts.open = len(self._held)

    def _release(self, connection: _Connection) -> None:
        if connection not in self._held:
            return  # it made place for another before it was lost
        self._held.remove(connection)
        self._waiting.pop(connection, None)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]
        self._counts.open = len(self._held)

    def _note_busy(self, connection: _Connection) -> None:
        self._waiting.pop(connection, None)

    def _note_waiting(self, connection: _Connection) -> None:
        if connection in self._held and connection not in self._waiting:
            self._waiting[connection] = None
