"""Who may use the console: one-time codes, and the sessions that they begin."""

import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path

from everkept.accounts.grants import hash_secret
from everkept.transports.guard import is_loopback
from everkept.transports.trusted_proxies import parse_ip_address
from everkept.values import Value

CODE_SECONDS = 60.0  # an unused code is void afterwards
IDLE_SECONDS = 30 * 60.0
MAX_SECONDS = 12 * 3600.0  # of a session
MAX_CODES = 100  # unused at the same time; the oldest is dropped
MAX_SESSIONS = 100
TABLES = {Path("/proc/net/tcp"): 4, Path("/proc/net/tcp6"): 6}  # the open connections, each with its user
MAPPED_PREFIX = bytes(10) + b"\xff\xff"  # of an IPv4 address in IPv6 form
_STATE, _USER = 3, 7  # columns
_ESTABLISHED = "01"


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


def is_stranger(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> bool:
    """Return whether the connection between these ends belongs to another user of this machine, but not to root.

    Linux shows other users the arguments of a browser, so also the code of the page. Elsewhere, the system hides them.
    """
    if client is None or server is None or not hasattr(os, "geteuid"):
        return False
    theirs = _find_connection(client, server)
    if theirs is None:
        # Another machine's, a proxy's, or one whose client has left; or the system does not tell.
        return is_loopback(client[0]) and _find_connection(server, client) is not None
    user = int(theirs[_USER])
    # Once its program has left, a connection is shown as root's.
    return theirs[_STATE] != _ESTABLISHED or user not in (os.geteuid(), 0)


def _find_connection(end: tuple[str, int | None], other: tuple[str, int | None]) -> list[str] | None:
    """Return the columns of a connection that a program of this machine has open at `end`."""
    for table, version in TABLES.items():
        ends = " ".join(_format_end(address, port or 0, version) for address, port in (end, other))
        try:
            found = next((line for line in table.read_text("ascii").splitlines() if f" {ends} " in line), None)
        except OSError:
            continue
        if found is not None:
            return found.split()
    return None


def _format_end(address: str, port: int, version: int) -> str:
    """Return one end in the form of the tables. A program may use a socket of IPv6 for an address of IPv4."""
    parsed = parse_ip_address(address.partition("%")[0])
    if parsed is None or (parsed.version, version) == (6, 4):
        return "none"
    packed = parsed.packed if parsed.version == version else MAPPED_PREFIX + parsed.packed
    words = (int.from_bytes(packed[start : start + 4], sys.byteorder) for start in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
