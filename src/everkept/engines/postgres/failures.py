"""What PostgreSQL says where it failed, as an error that says what to do."""

import re
from collections.abc import Callable
from typing import NamedTuple

import psycopg

from everkept.engines.postgres.addresses import Address
from everkept.errors import (
    Conflict,
    EverkeptError,
    InvalidInput,
    QueryTimeout,
    Refused,
    StorageFull,
    StoreAway,
    StoreDamaged,
    Unavailable,
)

IS_RUNNING = "Is it running, and the way to it open?"
UNKNOWN = "Whether what was under way took effect is unknown."
CONTENDED = ("40001", "40P01")  # another transaction was in the way: once more may do
VALUES = re.compile(r"[`'\"\[{(<\d\n]")  # where a message may begin to tell what was stored
LONGEST_OPENING = 80  # characters

_FATAL = re.compile(r"FATAL:\s*(.+)")


class Crowded(StoreAway):
    """The server has no connection left for us."""


class Pooled(Unavailable):
    """Somebody stands between, who lends a connection for one transaction."""


def unreached(address: Address, user: str, error: psycopg.Error) -> EverkeptError:
    """The error for what let us not in. Then libpq tells no code, only words."""
    words, at = str(error), f"PostgreSQL at {address.shown}"
    names = {"at": at, "user": user, "database": address.database}
    for each in _UNWELCOME:
        if each.signs.search(words):
            return Refused(each.message.format(**names), hint=each.hint)
    if _CROWDED.search(words):
        return _crowded(at, error)
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return StoreAway(f"{at} did not answer in time.", hint=IS_RUNNING)
    fatal = _FATAL.search(words)
    why = opening(fatal[1] if fatal else _last_reason(words))
    return StoreAway(f"{at} cannot be reached ({why}).", hint=IS_RUNNING)


def failure(error: psycopg.Error, place: str) -> Exception:
    """What is left out on purpose are our own mistakes: they are bugs, and surface as such."""
    code, at = error.sqlstate or "", f"PostgreSQL at {place}"
    known = _BY_CODE.get(code) or _BY_CLASS.get(code[:2])
    if known is not None:
        return known(at, error)
    if not code and isinstance(error, psycopg.OperationalError):
        return StoreAway(f"The connection to {at} was lost.", hint=UNKNOWN)
    if isinstance(error, psycopg.DataError) and "NUL" in str(error):
        return nul(at, error)
    told = opening(error.diag.message_primary or str(error))
    of = ", ".join(filter(None, (code, error.diag.constraint_name, error.diag.table_name)))
    return RuntimeError(f"PostgreSQL refused a statement ({of or type(error).__name__}): {told}")


def opening(message: str) -> str:
    """The words that come before anything that could be a value of ours."""
    found = VALUES.search(message)
    words = message[: found.start()] if found else message
    return " ".join(words.split())[:LONGEST_OPENING].rstrip(" :") or "it gave no reason"


def lost(place: str) -> StoreAway:
    return StoreAway(f"PostgreSQL at {place} does not answer.", hint=UNKNOWN)


def too_slow(limit: float, place: str) -> QueryTimeout:
    return QueryTimeout(
        f"PostgreSQL at {place} took longer than {limit:g} s. Nothing of this call was stored.",
        hint="Try again, or ask for less at once.",
        time_limit=limit,
    )


def no_turn(limit: float, place: str) -> QueryTimeout:
    return QueryTimeout(
        f"Every connection to PostgreSQL at {place} was in use for {limit:g} s. Nothing of this "
        "call was stored.",
        hint="Try again.",
        time_limit=limit,
    )


def not_ready(limit: float, place: str) -> StoreAway:
    return StoreAway(
        f"PostgreSQL at {place} was not ready within {limit:g} s. Nothing of this call was stored.",
        hint="Its tables may be on their way to a new version.",
    )


def pooled(place: str) -> Pooled:
    return Pooled(
        f"There is a pooler before PostgreSQL at {place}: upkeep needs a connection of its own.",
        hint="Give the address of the server itself, to one of those who use it at least.",
    )


def nul(_at: str, _error: psycopg.Error) -> InvalidInput:
    return InvalidInput(
        "A text holds the character NUL, which PostgreSQL cannot store.", hint="Remove it."
    )


def _last_reason(words: str) -> str:
    """Of `connection to server at "1.2.3.4", port 5 failed: Connection refused` the end."""
    line = words.strip().splitlines()[0] if words.strip() else ""
    return line.rpartition("failed: ")[2]


def _ended(at: str, _error: psycopg.Error) -> StoreAway:
    return StoreAway(f"{at} ended the connection: it stops, or starts again.", hint=UNKNOWN)


def _not_now(at: str, _error: psycopg.Error) -> StoreAway:
    return StoreAway(f"{at} lets nobody in just now.", hint="It starts, or stops: try again.")


def _crowded(at: str, _error: psycopg.Error) -> Crowded:
    return Crowded(
        f"{at} has too many connections.",
        hint="Raise its max_connections, or put a pooler before it.",
    )


def _taken(_at: str, _error: psycopg.Error) -> Conflict:
    return Conflict("There is such a thing already, or two would stand for the same.")


def _replica(at: str, _error: psycopg.Error) -> StoreAway:
    return StoreAway(
        f"{at} can only be read: it is a replica, or was set so. Nothing of this call was stored.",
        hint="Give the address of the primary server.",
    )


def _full(at: str, _error: psycopg.Error) -> StorageFull:
    return StorageFull(
        f"The disk of {at} is full. Nothing of this call was stored.",
        hint="Free some disk space on the server and call again. Its sizes are not known here.",
    )


def _exhausted(at: str, error: psycopg.Error) -> Unavailable:
    return Unavailable(
        f"{at} had not enough for this ({opening(error.diag.message_primary or '')}).",
        hint="Try again; if it stays so, its memory or its limits are too small.",
    )


def _slow(at: str, _error: psycopg.Error) -> QueryTimeout:
    return QueryTimeout(
        f"{at} took longer over this than it may. Nothing of this call was stored.",
        hint="Try again, or ask for less at once.",
    )


def _busy(at: str, _error: psycopg.Error) -> QueryTimeout:
    return QueryTimeout(
        f"Others keep {at} from doing this. Nothing of this call was stored.", hint="Try again."
    )


def _denied(at: str, error: psycopg.Error) -> Refused:
    return Refused(
        f"{at} does not let this user do that ({opening(error.diag.message_primary or '')}).",
        hint="The user needs the right to create a schema in the database (GRANT CREATE ON "
        "DATABASE), and must own the tables in it.",
    )


def _broken(at: str, error: psycopg.Error) -> StoreDamaged:
    return StoreDamaged(
        f"{at} cannot read what it has stored ({opening(error.diag.message_primary or '')}).",
        hint="Look into the log of the server; restore a backup, or export what can be read.",
    )


def _disk(at: str, error: psycopg.Error) -> Unavailable:
    return Unavailable(
        f"The system under {at} failed ({opening(error.diag.message_primary or '')}).",
        hint=UNKNOWN + " Look into the log of the server.",
    )


_Answer = Callable[[str, psycopg.Error], EverkeptError]

_BY_CODE: dict[str, _Answer] = {
    "57P01": _ended,  # it was told to stop
    "57P02": _ended,  # another process of it crashed
    "57P03": _not_now,
    "57P04": _ended,  # the database was dropped
    "57P05": _ended,  # nobody used it for long
    "25P03": _ended,  # a transaction stood still for long
    "25P04": _slow,
    "53300": _crowded,
    "53100": _full,
    "23505": _taken,  # by whoever wrote it, or by the one who commits
    "25006": _replica,
    "57014": _slow,
    "55P03": _busy,
    "40001": _busy,
    "40P01": _busy,
    "42501": _denied,
    "22021": nul,
    "22P05": nul,
    "XX001": _broken,
    "XX002": _broken,
}
_BY_CLASS: dict[str, _Answer] = {
    "08": _ended,
    "53": _exhausted,
    "54": _exhausted,
    "57": _ended,
    "58": _disk,
    "XX": _disk,
}


class _Unwelcome(NamedTuple):
    """What the words of a refusal mean; `at`, `user` and `database` are filled in."""

    signs: re.Pattern[str]
    message: str
    hint: str


def _words(signs: str) -> re.Pattern[str]:
    return re.compile(signs, re.IGNORECASE | re.DOTALL)


_CROWDED = _words(
    "too many clients already|remaining connection slots|too many connections for "
    "|no more connections allowed"
)

# The first that fits: names of users and databases may hold the words of later ones.
_UNWELCOME = (
    _Unwelcome(
        _words("server does not support SSL"),
        "{at} does not encrypt its connections, and that is asked of it.",
        "Switch TLS on there, or say ?sslmode=disable in the address if the way is safe.",
    ),
    _Unwelcome(
        _words(r"no pg_hba\.conf entry.*no encryption"),
        "{at} lets nobody in whose connection is not encrypted.",
        "Say ?sslmode=verify-full in the address.",
    ),
    _Unwelcome(
        _words(r"no pg_hba\.conf entry|pg_hba\.conf rejects"),
        '{at} does not let the user "{user}" in from this machine.',
        "Its pg_hba.conf says who may come from where.",
    ),
    _Unwelcome(
        _words("authentication failed|no password supplied"),
        '{at} does not know the user "{user}", or the password is wrong.',
        "Check both in the settings.",
    ),
    _Unwelcome(
        _words('(?:database|role) ".*" does not exist'),
        '{at} has no database "{database}", or no user "{user}".',
        "Make it with createdb or createuser, or check the settings.",
    ),
    _Unwelcome(
        _words("permission denied|is not permitted to log in"),
        '{at} does not let the user "{user}" into the database "{database}".',
        "It needs LOGIN, and the right to CONNECT.",
    ),
    _Unwelcome(
        _words("definition of service"),
        "The environment variable PGSERVICE names a service that nobody has described.",
        "Remove the variable: Everkept does not use it.",
    ),
    _Unwelcome(
        _words("certificate|does not match host name"),
        "The certificate of {at} is not trusted.",
        "A file with the certificates to trust can be given in the settings (database_ca).",
    ),
    _Unwelcome(
        _words("invalid response to|unsupported (?:frontend )?protocol"),
        "What listens where {at} should is something else.",
        "Check the address.",
    ),
)
