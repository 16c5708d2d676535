"""Who may use the console: one-time codes, and the sessions that they begin."""

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from everkept.accounts.grants import hash_secret
from everkept.values import Value

CODE_SECONDS = 60.0  # an unused code is void afterwards
IDLE_SECONDS = 30 * 60.0
MAX_SECONDS = 12 * 3600.0  # of a session
MAX_CODES = 100  # unused at the same time; the oldest is dropped
MAX_SESSIONS = 100
LOOPBACK = "127.0.0.1"
TABLE = Path("/proc/net/tcp")  # the open connections, each with its user
_LOCAL, _USER = 1, 7  # columns


class _OpenSession(Value, frozen=False):
    ends_at: float
    idle_until: float


class ConsoleAccess:
    """Codes and sessions of one process. No file has them, so they end with it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, float] = {}  # hash, end
        self._sessions: dict[str, _OpenSession] = {}  # by hash

    def create_code(self) -> str:
        """Return a code that begins one session, for the fragment of an address."""
        now = self._clock()
        self._codes = {code: end for code, end in self._codes.items() if end > now}
        _drop_oldest(self._codes, MAX_CODES)
        code = secrets.token_urlsafe(32)
        self._codes[hash_secret(code)] = now + CODE_SECONDS
        return code

    def redeem_code(self, code: str) -> str | None:
        """Return the token of a new session, or None if the code is unknown, used or too old."""
        now = self._clock()
        if self._codes.pop(hash_secret(code), 0.0) <= now:
            return None
        self._sessions = {token: each for token, each in self._sessions.items() if _is_open(each, now)}
        _drop_oldest(self._sessions, MAX_SESSIONS)
        token = secrets.token_urlsafe(32)
        self._sessions[hash_secret(token)] = _OpenSession(now + MAX_SECONDS, now + IDLE_SECONDS)
        return token

    def check_token(self, token: str, *, is_use: bool = True) -> bool:
        """Return whether the token belongs to a session that has not ended. A use keeps it from ending."""
        session, now = self._sessions.get(hash_secret(token)), self._clock()
        if session is None or not _is_open(session, now):
            return False
        if is_use:
            session.idle_until = now + IDLE_SECONDS
        return True

    def end_session(self, token: str) -> None:
        """End the session of a token."""
        self._sessions.pop(hash_secret(token), None)


def _is_open(session: _OpenSession, now: float) -> bool:
    return now < min(session.ends_at, session.idle_until)


def _drop_oldest(kept: dict[str, float] | dict[str, _OpenSession], most: int) -> None:
    while len(kept) >= most:
        del kept[next(iter(kept))]


def is_stranger(client: tuple[str, int] | None) -> bool:
    """Return whether the connection of this address belongs to another user of this machine, but not to root.

    Linux shows other users the arguments of a browser, so also the code of the page. Elsewhere, the system hides them.
    """
    if client is None or client[0] != LOOPBACK or not hasattr(os, "geteuid"):
        return False
    user = _find_user(client[1])
    return user is not None and user not in (os.geteuid(), 0)


def _find_user(port: int) -> int | None:
    """Return the user of a connection from the loopback address, or None if the system does not tell."""
    try:
        lines = TABLE.read_text("ascii").splitlines()[1:]
    except OSError:
        return None
    own = f"0100007F:{port:04X}"
    rows = (line.split() for line in lines)
    return next((int(row[_USER]) for row in rows if row[_LOCAL] == own), None)
