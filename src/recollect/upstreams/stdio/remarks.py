"""What a program writes to its standard error: in our log, within bounds and without secrets."""

import asyncio
import logging
from collections import deque

from recollect.errors import visible
from recollect.upstreams.stdio.lines import Lines, Overlong
from recollect.upstreams.variables import Hide

LOGGED = 500  # characters of one line
MOST_LINES = 50  # in the log, within PERIOD
PERIOD = 1.0  # seconds

_LAST_LINES = 3  # for the reason why it ended

log = logging.getLogger(__name__)


class Remarks:
    """Takes the bytes of one program; `last` is what it said at the end."""

    def __init__(self, name: str, hide: Hide) -> None:
        self._name = name
        self._hide = hide
        self._lines = Lines(LOGGED * 8)
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)
        self._logged = 0  # within the period that runs
        self._left_out = 0
        self._period: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self._add(line.head if isinstance(line, Overlong) else line)

    def finish(self) -> None:
        """There is no more to come."""
        self._add(self._lines.rest())
        if self._period is not None:
            self._period.cancel()
            self._next_period()

    @property
    def last(self) -> str:
        return " / ".join(map(self._shown, self._last))

    def _add(self, line: bytes) -> None:
        if not line.strip():
            return
        self._last.append(line)
        if self._period is None:
            self._period = asyncio.get_running_loop().call_later(PERIOD, self._next_period)
        if self._logged < MOST_LINES:
            self._logged += 1
            log.info("%s: %s", self._name, self._shown(line))
        else:
            self._left_out += 1

    def _next_period(self) -> None:
        if self._left_out:
            log.info("%s: %d more lines within a second are left out", self._name, self._left_out)
        self._logged = self._left_out = 0
        self._period = None

    def _shown(self, line: bytes) -> str:
        # Masked before it is cut: half a secret looks like none.
        return visible(self._hide(line.decode("utf-8", "replace").rstrip())[:LOGGED])
