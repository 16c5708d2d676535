"""One transaction from when it is asked for: where it stands, and how it is stopped."""

import threading

from everkept.engines.postgres.connecting.lines import Line
from everkept.errors import EverkeptError


class Call:
    """Seen by the thread that does it, and by whoever waits for it."""

    def __init__(self, *, alters: bool, limit: float) -> None:
        self.alters = alters
        self.limit = limit  # seconds
        self.why: EverkeptError | None = None  # it was stopped
        self.news: set[int | None] = set()  # what it has changed, once it is committed
        self._line: Line | None = None
        self._is_ready = False
        self._was_ready = False
        self._lock = threading.Lock()  # a line that was left is somebody else's

    @property
    def is_reached(self) -> bool:
        """Whether it has a connection: from then on a server that says nothing is away."""
        return self._line is not None

    @property
    def is_ready(self) -> bool:
        """Whether the tables are: what makes them so is not left half way."""
        return self._is_ready

    @property
    def may_have_stored(self) -> bool:
        """Whether it has come so far that a transaction of it may be committed."""
        return self.alters and self._was_ready

    def take(self, line: Line, *, is_ready: bool) -> None:
        """Raises what it was stopped for, should that have come first."""
        with self._lock:
            self._line, self._is_ready = line, is_ready
            self._was_ready |= is_ready
            if self.why is not None:
                raise self.why

    def leave(self) -> None:
        with self._lock:
            self._line, self._is_ready = None, False

    def stop(self, why: EverkeptError) -> None:
        """It ends at its next step, and the step that it is in is ended by the server."""
        with self._lock:
            self.why = self.why or why
            if self._line is not None and self._is_ready:
                self._line.stop()

    def cut(self, why: EverkeptError) -> None:
        """It ends now, if it has a connection; else when it would have one."""
        with self._lock:
            self.why = why
            if self._line is not None:
                self._line.cut()
