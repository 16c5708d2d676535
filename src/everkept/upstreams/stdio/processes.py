"""A process that we have started: that it has begun, that it has ended, and how it is let go."""

import asyncio
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from asyncio import SubprocessTransport, WriteTransport

_PIPES = (0, 1, 2)


class Process(asyncio.SubprocessProtocol):
    """One process, started once."""

    def __init__(self) -> None:
        self.pid = 0  # before it has begun
        self.exited = asyncio.Event()
        self._transport: SubprocessTransport | None = None
        self._is_let_go = False

    async def start(self, *command: str, **options: Any) -> None:
        """OSError or ValueError where it cannot be. Whoever is cancelled meanwhile may find that
        it has begun: asyncio itself would let it go in its own way, see `let_go`."""
        loop = asyncio.get_running_loop()
        starting = asyncio.create_task(loop.subprocess_exec(lambda: self, *command, **options))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting})
            raise

    def let_go(self) -> None:
        """Closes its pipes now, and the rest once its end is known.

        A transport that is closed earlier asks the system for the status of the process, and takes
        it away from the watcher that waits for it.
        """
        self._is_let_go = True
        if self._transport is None:
            return
        if self.exited.is_set():
            self._transport.close()
            return
        for number in _PIPES:
            if pipe := self._transport.get_pipe_transport(number):
                pipe.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("SubprocessTransport", transport)
        self.pid = self._transport.get_pid()

    def process_exited(self) -> None:
        self.exited.set()
        if self._is_let_go:
            self.let_go()

    @property
    def _input(self) -> "WriteTransport | None":
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        return cast("WriteTransport | None", pipe)

    @property
    def _status(self) -> int | None:
        return None if self._transport is None else self._transport.get_returncode()
