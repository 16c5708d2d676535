"""What a program writes that is no message: in our log, within bounds and without secrets."""

import asyncio
import logging
from collections import deque

from everkept.core.lines import Lines, Overlong
from everkept.errors import visible
from everkept.upstreams.variables import Hide

LOGGED = 500  # characters of one line
MOST_LINES = 50  # in the log, within PERIOD
PERIOD = 1.0  # seconds

_LOOKED_AT = LOGGED * 8  # bytes of one line
_LAST_LINES = 3  # for the reason why it ended, or was not ready

log = logging.getLogger(__name__)


class Remarks:
    """Takes the bytes that one program writes to its standard error, and lines of its output."""

    def __init__(self, name: str, hide: Hide) -> None:
        self._name = name
        self._hide = hide
        self._lines = Lines(_LOOKED_AT)
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)
        self._has_strayed = False
        self._logged = 0  # within the period that runs
        self._left_out = 0
        self._period: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self._add(line.head if isinstance(line, Overlong) else line)

    def finish(self) -> None:
        """There is no more to come."""
        self.feed(b"\n")
        if self._period is not None:
            self._period.cancel()
            self._next_period()

    def stray(self, line: bytes) -> None:
        """A line of its output, where nothing but messages belongs."""
        self._last.append(line)
        if not self._has_strayed:  # once: a server that logs to its output would fill our log
            self._has_strayed = True
            shown = self._shown(line)
            log.warning("%s writes what is no message, and it is ignored: %s", self._name, shown)

    def last(self, output: bytes = b"") -> str:
        """What it wrote at last, lines without an end too: that of its output is given."""
        begun = (line for line in (self._lines.rest(), output) if line.strip())
        return " / ".join(map(self._shown, [*self._last, *begun][-_LAST_LINES:]))

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
        return visible(self._hide(line[:_LOOKED_AT].decode("utf-8", "replace").rstrip())[:LOGGED])
