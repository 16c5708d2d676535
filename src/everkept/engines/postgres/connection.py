"""Connections to a PostgreSQL server: its address, our parameters, and our errors for its own."""

import logging
import os
import re
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import psycopg
from psycopg import pq

from everkept.errors import (
    Conflict,
    EverkeptError,
    InvalidInput,
    QueryTimeout,
    Refused,
    StorageFull,
    StoreDamaged,
    StoreUnreachable,
    Unavailable,
)
from everkept.values import Value, field

SCHEMES = ("postgresql", "postgres")
DEFAULT_PORT = 5432
SSL_MODES = ("disable", "require", "verify-ca", "verify-full")
ADDRESS_HINT = "An address looks like postgresql://db.example.org:5432/everkept."


class Credentials(Value):
    """Of a role of the server; one without a password may be let in by other means."""

    user: str
    password: str = field(default="", repr=False)


class Address(Value):
    """A database, and the server as messages show it."""

    host: str
    port: int
    database: str
    user: str = ""
    ssl_mode: str = ""  # where the address says one

    @property
    def display_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"postgresql://{host}:{self.port}/{self.database}"

    @property
    def is_local(self) -> bool:
        """Whether it is this machine that answers."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """Raises InvalidInput for what is no address of a database, or has a password in it."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise _build_address_error(text, "is no address") from None
    if parts.password is not None:
        raise InvalidInput(
            "The address of PostgreSQL holds a password.",
            hint="Give it apart from the address: it would be shown wherever that is.",
        )
    if parts.scheme not in SCHEMES:
        raise _build_address_error(text, "must begin with postgresql://")
    if not parts.hostname or "," in parts.netloc or parts.fragment or port == 0:
        raise _build_address_error(text, "must name one host, and have no #")
    name = unquote(parts.path.removeprefix("/"))
    if not name or "/" in name:
        raise _build_address_error(text, "must name a database")
    user = unquote(parts.username or "")
    mode = _parse_ssl_mode(text, parts)
    for value in (parts.hostname, name, user):
        if not value.isprintable():
            raise _build_address_error(text, "holds what cannot be printed")
    return Address(parts.hostname, port or DEFAULT_PORT, name, user, mode)


def _parse_ssl_mode(text: str, parts: SplitResult) -> str:
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    mode = given.pop("sslmode", "")
    if given or (parts.query and mode not in SSL_MODES):
        raise _build_address_error(text, f"may have nothing behind ? but sslmode={'|'.join(SSL_MODES)}")
    return mode


def _build_address_error(text: str, why: str) -> InvalidInput:
    shown = text.rpartition("@")[2]  # before it may stand a password
    return InvalidInput(f'The address of PostgreSQL "{shown}" {why}.', hint=ADDRESS_HINT)


UNREACHABLE_HINT = "Is it running, and the way to it open?"
OUTCOME_UNKNOWN_HINT = "Whether what was under way took effect is unknown."
CONTENTION_CODES = ("40001", "40P01")  # another transaction was in the way: once more may do
VALUE_START = re.compile(r"[`'\"\[{(<\d\n]")  # where a message may begin to tell what was stored
MAX_REASON_CHARACTERS = 80

_FATAL_REASON = re.compile(r"FATAL:\s*(.+)")


class TooManyConnections(StoreUnreachable):
    """The server has no connection left for us."""


class PoolerDetected(Unavailable):
    """Somebody stands between, who lends a connection for one transaction."""


def build_connect_error(address: Address, user: str, error: psycopg.Error) -> EverkeptError:
    """The error for what let us not in. Then libpq tells no code, only words."""
    words, at = str(error), f"PostgreSQL at {address.display_url}"
    names = {"at": at, "user": user, "database": address.database}
    for each in _REFUSAL_RULES:
        if each.signs.search(words):
            return Refused(each.message.format(**names), hint=each.hint)
    if _TOO_MANY_SIGNS.search(words):
        return _build_too_many_error(at, error)
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return StoreUnreachable(f"{at} did not answer in time.", hint=UNREACHABLE_HINT)
    fatal = _FATAL_REASON.search(words)
    why = extract_reason(fatal[1] if fatal else _extract_last_reason(words))
    return StoreUnreachable(f"{at} cannot be reached ({why}).", hint=UNREACHABLE_HINT)


def translate_error(error: psycopg.Error, place: str) -> Exception:
    """What is left out on purpose are our own mistakes: they are bugs, and surface as such."""
    code, at = error.sqlstate or "", f"PostgreSQL at {place}"
    known = _BUILDERS_BY_CODE.get(code) or _BUILDERS_BY_CLASS.get(code[:2])
    if known is not None:
        return known(at, error)
    if not code and isinstance(error, psycopg.OperationalError):
        return StoreUnreachable(f"The connection to {at} was lost.", hint=OUTCOME_UNKNOWN_HINT)
    if isinstance(error, psycopg.DataError) and "NUL" in str(error):
        return build_nul_error(at, error)
    told = extract_reason(error.diag.message_primary or str(error))
    of = ", ".join(filter(None, (code, error.diag.constraint_name, error.diag.table_name)))
    return RuntimeError(f"PostgreSQL refused a statement ({of or type(error).__name__}): {told}")


def extract_reason(message: str) -> str:
    """The words that come before anything that could be a value of ours."""
    found = VALUE_START.search(message)
    words = message[: found.start()] if found else message
    return " ".join(words.split())[:MAX_REASON_CHARACTERS].rstrip(" :") or "it gave no reason"


def build_lost_error(place: str) -> StoreUnreachable:
    return StoreUnreachable(f"PostgreSQL at {place} does not answer.", hint=OUTCOME_UNKNOWN_HINT)


def build_timeout_error(limit: float, place: str) -> QueryTimeout:
    return QueryTimeout(
        f"PostgreSQL at {place} took longer than {limit:g} s. Nothing of this call was stored.",
        hint="Try again, or ask for less at once.",
        time_limit=limit,
    )


def build_queue_timeout_error(limit: float, place: str) -> QueryTimeout:
    return QueryTimeout(
        f"Every connection to PostgreSQL at {place} was in use for {limit:g} s. Nothing of this call was stored.",
        hint="Try again.",
        time_limit=limit,
    )


def build_not_ready_error(limit: float, place: str) -> StoreUnreachable:
    return StoreUnreachable(
        f"PostgreSQL at {place} was not ready within {limit:g} s. Nothing of this call was stored.",
        hint="Its tables may be on their way to a new version.",
    )


def build_pooler_error(place: str) -> PoolerDetected:
    return PoolerDetected(
        f"There is a pooler before PostgreSQL at {place}: upkeep needs a connection of its own.",
        hint="Give the address of the server itself, to one of those who use it at least.",
    )


def build_nul_error(_at: str, _error: psycopg.Error) -> InvalidInput:
    return InvalidInput("A text holds the character NUL, which PostgreSQL cannot store.", hint="Remove it.")


def _extract_last_reason(words: str) -> str:
    """Of `connection to server at "1.2.3.4", port 5 failed: Connection refused` the end."""
    line = words.strip().splitlines()[0] if words.strip() else ""
    return line.rpartition("failed: ")[2]


def _build_disconnect_error(at: str, _error: psycopg.Error) -> StoreUnreachable:
    return StoreUnreachable(f"{at} ended the connection: it stops, or starts again.", hint=OUTCOME_UNKNOWN_HINT)


def _build_not_accepting_error(at: str, _error: psycopg.Error) -> StoreUnreachable:
    return StoreUnreachable(f"{at} lets nobody in just now.", hint="It starts, or stops: try again.")


def _build_too_many_error(at: str, _error: psycopg.Error) -> TooManyConnections:
    return TooManyConnections(
        f"{at} has too many connections.", hint="Raise its max_connections, or put a pooler before it."
    )


def _build_conflict(_at: str, _error: psycopg.Error) -> Conflict:
    return Conflict("There is such a thing already, or two would stand for the same.")


def _build_read_only_error(at: str, _error: psycopg.Error) -> StoreUnreachable:
    return StoreUnreachable(
        f"{at} can only be read: it is a replica, or was set so. Nothing of this call was stored.",
        hint="Give the address of the primary server.",
    )


def _build_storage_full(at: str, _error: psycopg.Error) -> StorageFull:
    return StorageFull(
        f"The disk of {at} is full. Nothing of this call was stored.",
        hint="Free some disk space on the server and call again. Its sizes are not known here.",
    )


def _build_resource_error(at: str, error: psycopg.Error) -> Unavailable:
    return Unavailable(
        f"{at} had not enough for this ({extract_reason(error.diag.message_primary or '')}).",
        hint="Try again; if it stays so, its memory or its limits are too small.",
    )


def _build_slow_error(at: str, _error: psycopg.Error) -> QueryTimeout:
    return QueryTimeout(
        f"{at} took longer over this than it may. Nothing of this call was stored.",
        hint="Try again, or ask for less at once.",
    )


def _build_contention_error(at: str, _error: psycopg.Error) -> QueryTimeout:
    return QueryTimeout(f"Others keep {at} from doing this. Nothing of this call was stored.", hint="Try again.")


def _build_permission_error(at: str, error: psycopg.Error) -> Refused:
    return Refused(
        f"{at} does not let this user do that ({extract_reason(error.diag.message_primary or '')}).",
        hint="The user needs the right to create a schema in the database (GRANT CREATE ON "
        "DATABASE), and must own the tables in it.",
    )


def _build_damage_error(at: str, error: psycopg.Error) -> StoreDamaged:
    return StoreDamaged(
        f"{at} cannot read what it has stored ({extract_reason(error.diag.message_primary or '')}).",
        hint="Look into the log of the server; restore a backup, or export what can be read.",
    )


def _build_system_error(at: str, error: psycopg.Error) -> Unavailable:
    return Unavailable(
        f"The system under {at} failed ({extract_reason(error.diag.message_primary or '')}).",
        hint=OUTCOME_UNKNOWN_HINT + " Look into the log of the server.",
    )


_ErrorBuilder = Callable[[str, psycopg.Error], EverkeptError]

_BUILDERS_BY_CODE: dict[str, _ErrorBuilder] = {
    "57P01": _build_disconnect_error,  # it was told to stop
    "57P02": _build_disconnect_error,  # another process of it crashed
    "57P03": _build_not_accepting_error,
    "57P04": _build_disconnect_error,  # the database was dropped
    "57P05": _build_disconnect_error,  # nobody used it for long
    "25P03": _build_disconnect_error,  # a transaction stood still for long
    "25P04": _build_slow_error,
    "53300": _build_too_many_error,
    "53100": _build_storage_full,
    "23505": _build_conflict,  # by whoever wrote it, or by the one who commits
    "25006": _build_read_only_error,
    "57014": _build_slow_error,
    "55P03": _build_contention_error,
    "40001": _build_contention_error,
    "40P01": _build_contention_error,
    "42501": _build_permission_error,
    "22021": build_nul_error,
    "22P05": build_nul_error,
    "XX001": _build_damage_error,
    "XX002": _build_damage_error,
}
_BUILDERS_BY_CLASS: dict[str, _ErrorBuilder] = {
    "08": _build_disconnect_error,
    "53": _build_resource_error,
    "54": _build_resource_error,
    "57": _build_disconnect_error,
    "58": _build_system_error,
    "XX": _build_system_error,
}


class _RefusalRule(NamedTuple):
    """What the words of a refusal mean; `at`, `user` and `database` are filled in."""

    signs: re.Pattern[str]
    message: str
    hint: str


def _compile_signs(signs: str) -> re.Pattern[str]:
    return re.compile(signs, re.IGNORECASE | re.DOTALL)


_TOO_MANY_SIGNS = _compile_signs(
    "too many clients already|remaining connection slots|too many connections for |no more connections allowed"
)

# The first that fits: names of users and databases may hold the words of later ones.
_REFUSAL_RULES = (
    _RefusalRule(
        _compile_signs("server does not support SSL"),
        "{at} does not encrypt its connections, and that is asked of it.",
        "Switch TLS on there, or say ?sslmode=disable in the address if the way is safe.",
    ),
    _RefusalRule(
        _compile_signs(r"no pg_hba\.conf entry.*no encryption"),
        "{at} lets nobody in whose connection is not encrypted.",
        "Say ?sslmode=verify-full in the address.",
    ),
    _RefusalRule(
        _compile_signs(r"no pg_hba\.conf entry|pg_hba\.conf rejects"),
        '{at} does not let the user "{user}" in from this machine.',
        "Its pg_hba.conf says who may come from where.",
    ),
    _RefusalRule(
        _compile_signs("authentication failed|no password supplied"),
        '{at} does not know the user "{user}", or the password is wrong.',
        "Check both in the settings.",
    ),
    _RefusalRule(
        _compile_signs('(?:database|role) ".*" does not exist'),
        '{at} has no database "{database}", or no user "{user}".',
        "Make it with createdb or createuser, or check the settings.",
    ),
    _RefusalRule(
        _compile_signs("permission denied|is not permitted to log in"),
        '{at} does not let the user "{user}" into the database "{database}".',
        "It needs LOGIN, and the right to CONNECT.",
    ),
    _RefusalRule(
        _compile_signs("definition of service"),
        "The environment variable PGSERVICE names a service that nobody has described.",
        "Remove the variable: Everkept does not use it.",
    ),
    _RefusalRule(
        _compile_signs("certificate|does not match host name"),
        "The certificate of {at} is not trusted.",
        "A file with the certificates to trust can be given in the settings (database_ca).",
    ),
    _RefusalRule(
        _compile_signs("invalid response to|unsupported (?:frontend )?protocol"),
        "What listens where {at} should is something else.",
        "Check the address.",
    ),
)


Connection = psycopg.Connection[tuple[Any, ...]]

MISSING_FILE = str(Path(os.devnull) / "none")  # a file that is not there: libpq would look at home
# Where a system keeps what it trusts, should Python not know; libpq wants one file.
CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
KEEPALIVE_PARAMETERS = {  # a connection that a firewall has forgotten is noticed within a minute
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}


class Connector:
    """One attempt per call. Shows the password nowhere: not in a picture of itself either."""

    def __init__(
        self, address: Address, credentials: Credentials | None, ca: Path | None, connect_limit: float
    ) -> None:
        """Raises InvalidInput where nobody can be let in by what is given."""
        # What it warns of is an error that we tell; by itself it would print it.
        logging.getLogger("psycopg").setLevel(logging.ERROR)
        given = credentials or Credentials("")
        self._address = address
        self._user = given.user or address.user
        self._password = given.password
        if not self._user:
            raise InvalidInput(
                f"Nobody is named who could be let in at {address.display_url}.",
                hint="Set database_user to a role of that PostgreSQL server.",
            )
        known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
        ours = {
            **_read_libpq_defaults(),
            **KEEPALIVE_PARAMETERS,
            **build_tls_parameters(address, ca),
            "host": address.host,
            "port": str(address.port),
            "dbname": address.database,
            "connect_timeout": str(max(2, round(connect_limit))),  # libpq takes no less
            "client_encoding": "UTF8",
            "application_name": "everkept",
            "passfile": MISSING_FILE,
            "sslcertmode": "disable",
            "sslcrl": MISSING_FILE,
            "gssencmode": "disable",
            "require_auth": "none,password,md5,scram-sha-256",
            "min_protocol_version": "3.0",
            "max_protocol_version": "3.0",
            "tcp_user_timeout": "30000",  # milliseconds
        }
        self._parameters = {name: value for name, value in ours.items() if name in known}

    def __call__(self) -> Connection:
        """Transactions are begun and ended by whoever uses it."""
        login = {"user": self._user, "password": self._password}
        given: dict[str, Any] = {**self._parameters, **login}
        try:
            return psycopg.connect("", autocommit=True, **given)
        except psycopg.Error as error:
            # Not as the cause: its frames hold the password.
            raise build_connect_error(self._address, self._user, error) from None


def _read_libpq_defaults() -> dict[str, str]:
    """What libpq would else take from the environment, as if there was none."""
    return {
        option.keyword.decode(): (option.compiled or b"").decode()
        for option in pq.Conninfo.get_defaults()
        if option.envvar and option.keyword != b"service"
    }


def build_tls_parameters(address: Address, ca: Path | None) -> dict[str, str]:
    """How much is asked of the server's certificate, and what it is checked by."""
    mode = address.ssl_mode
    if ca is not None and mode != "disable":
        return {"sslmode": mode if mode == "verify-ca" else "verify-full", "sslrootcert": _check_certificates(ca)}
    if not mode:
        mode = "prefer" if address.is_local else "verify-full"
    if mode == "verify-ca":  # anybody can have a certificate that a system trusts
        mode = "verify-full"
    is_checked = mode.startswith("verify")
    return {"sslmode": mode, "sslrootcert": _find_system_roots() if is_checked else MISSING_FILE}


def _check_certificates(ca: Path) -> str:
    try:
        ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"The certificates in {ca} cannot be read ({error.strerror or error}).",
            hint="It must be a file in PEM form.",
        ) from error
    return str(ca)


def _find_system_roots() -> str:
    """libpq's own idea of them is a folder of the machine that it was built on."""
    known = ssl.get_default_verify_paths()
    for place in (known.cafile, known.openssl_cafile, *CA_BUNDLES):
        if place and Path(place).is_file():
            return place
    raise Refused(
        "The certificates that this system trusts are not in a file that could be found.",
        hint="Set database_ca to a file with those that PostgreSQL's is to be checked by.",
    )
