"""Connections to a PostgreSQL server: its address, our parameters, and our errors for its errors."""

import logging
import os
import re
import ssl
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import psycopg
from psycopg import pq

from everkept.core.text import is_loopback
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
ADDRESS_HINT = "Use the form postgresql://db.example.org:5432/everkept."


class Credentials(Value):
    """User and password of a role. The server may accept a role without a password."""

    user: str
    password: str = field(default="", repr=False)


class Address(Value):
    """Database address. `display_url` is the form that messages show."""

    host: str
    port: int
    database: str
    user: str = ""
    ssl_mode: str = ""  # empty if the address has no sslmode

    @property
    def is_socket(self) -> bool:
        """Return whether the host is the folder of a socket."""
        return self.host.startswith("/")

    @property
    def display_url(self) -> str:
        if self.is_socket:
            port = "" if self.port == DEFAULT_PORT else f"&port={self.port}"
            return f"postgresql:///{self.database}?host={self.host}{port}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"postgresql://{host}:{self.port}/{self.database}"

    @property
    def is_local(self) -> bool:
        """Return whether the server is on this machine."""
        return self.is_socket or is_loopback(self.host)


def parse_address(text: str) -> Address:
    """Parse a database address. Raise InvalidInput if it is not valid, or if it contains a password."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise _build_address_error(text, "is not an address") from None
    if parts.password is not None:
        raise InvalidInput(
            "The PostgreSQL address contains a password, which messages and logs would show.",
            hint="Remove it from the address and set `database_password` instead.",
        )
    if parts.scheme not in SCHEMES:
        raise _build_address_error(text, "must begin with postgresql://")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    host = parts.hostname or given.pop("host", "")
    if not parts.hostname and host.startswith("/"):
        number = given.pop("port", str(DEFAULT_PORT))
        port = int(number) if _PORT.fullmatch(number) else 0
    if not host or "," in parts.netloc or parts.fragment or port == 0:
        raise _build_address_error(text, "must name one host and have no #")
    name = unquote(parts.path.removeprefix("/"))
    if not name or "/" in name:
        raise _build_address_error(text, "must name a database")
    user = unquote(parts.username or "")
    mode = _parse_ssl_mode(text, given)
    for value in (host, name, user):
        if not value.isprintable():
            raise _build_address_error(text, "contains a character that cannot be printed")
    return Address(host, port or DEFAULT_PORT, name, user, mode)


def _parse_ssl_mode(text: str, given: dict[str, str]) -> str:
    is_given, mode = "sslmode" in given, given.pop("sslmode", "")
    if given or (is_given and mode not in SSL_MODES):
        raise _build_address_error(text, f"can have only sslmode={'|'.join(SSL_MODES)} after the ?")
    return mode


def _build_address_error(text: str, why: str) -> InvalidInput:
    shown = text.rpartition("@")[2].partition("?")[0]  # the parts before @ and after ? may contain a password
    return InvalidInput(f'The PostgreSQL address "{shown}" {why}.', hint=ADDRESS_HINT)


UNREACHABLE_HINT = "Check that the server is running and that the network allows the connection."
OUTCOME_UNKNOWN_HINT = "The outcome of the interrupted write is unknown. Check before you repeat it."
CONTENTION_CODES = ("40001", "40P01")  # another transaction was in the way; a retry may succeed
VALUE_START = re.compile(r"[`'\"\[{(<\d\n]")  # a message may quote stored values from here on
MAX_REASON_CHARACTERS = 80

_FATAL_REASON = re.compile(r"FATAL:\s*(.+)")


_PORT = re.compile(r"[1-9][0-9]{0,4}")


class TooManyConnections(StoreUnreachable):
    """The server has no free connection."""


class PoolerDetected(Unavailable):
    """A pooler in front of the server lends a connection for one transaction only."""


def build_connect_error(address: Address, user: str, error: psycopg.Error) -> EverkeptError:
    """Build the error for a failed login. libpq gives no code in this case, only a message."""
    words, at = str(error), f"PostgreSQL at {address.display_url}"
    names = {"at": at, "user": user, "database": address.database}
    for each in _REFUSAL_RULES:
        if each.signs.search(words):
            return Refused(each.message.format(**names), hint=each.hint)
    if _TOO_MANY_SIGNS.search(words):
        return _TOO_MANY.build(at, error)
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return StoreUnreachable(f"{at} did not answer in time.", hint=UNREACHABLE_HINT)
    fatal = _FATAL_REASON.search(words)
    # Otherwise `connection to server at "1.2.3.4", port 5 failed: Connection refused`.
    line = next(iter(words.strip().splitlines()), "")
    why = extract_reason(fatal[1] if fatal else line.rpartition("failed: ")[2])
    return StoreUnreachable(f"Cannot reach {at}: {why}.", hint=UNREACHABLE_HINT)


def translate_error(error: psycopg.Error, place: str) -> Exception:
    """Return our error for an error of the server. A mistake in our SQL becomes a RuntimeError, because it is a bug."""
    code, at = error.sqlstate or "", f"PostgreSQL at {place}"
    known = _RULES_BY_CODE.get(code) or _RULES_BY_CLASS.get(code[:2])
    if known is not None:
        return known.build(at, error)
    if not code and isinstance(error, psycopg.OperationalError):
        return StoreUnreachable(f"The connection to {at} was lost.", hint=OUTCOME_UNKNOWN_HINT)
    if not code and type(error) is psycopg.DatabaseError:  # libpq cannot read the bytes
        return StoreUnreachable(f"{at} sent a response that Everkept does not understand.", hint=OUTCOME_UNKNOWN_HINT)
    if isinstance(error, psycopg.DataError) and "NUL" in str(error):
        return _NUL.build(at, error)
    told = extract_reason(error.diag.message_primary or str(error))
    of = ", ".join(filter(None, (code, error.diag.constraint_name, error.diag.table_name)))
    return RuntimeError(f"PostgreSQL refused a statement ({of or type(error).__name__}): {told}")


def extract_reason(message: str) -> str:
    """Return the part of a message before anything that could be a stored value."""
    found = VALUE_START.search(message)
    words = message[: found.start()] if found else message
    return " ".join(words.split())[:MAX_REASON_CHARACTERS].rstrip(" :") or "no reason given"


def build_lost_error(place: str) -> StoreUnreachable:
    return StoreUnreachable(f"PostgreSQL at {place} does not answer.", hint=OUTCOME_UNKNOWN_HINT)


def build_timeout_error(limit: float, place: str) -> QueryTimeout:
    return QueryTimeout(
        f"PostgreSQL at {place} took longer than {limit:g} s. Nothing was stored.",
        hint="Try again, or request less data.",
        time_limit=limit,
    )


def build_queue_timeout_error(limit: float, place: str) -> QueryTimeout:
    return QueryTimeout(
        f"All connections to PostgreSQL at {place} were in use for {limit:g} s. Nothing was stored.",
        hint="Try again in a moment.",
        time_limit=limit,
    )


def build_not_ready_error(limit: float, place: str) -> StoreUnreachable:
    return StoreUnreachable(
        f"PostgreSQL at {place} was not ready within {limit:g} s. Nothing was stored.",
        hint="Try again in a moment. Its tables may be migrating to a new version.",
    )


def build_pooler_error(place: str) -> PoolerDetected:
    return PoolerDetected(
        f"A pooler is in front of PostgreSQL at {place}. Maintenance needs a direct connection.",
        hint="On at least one machine, set `database_url` to the address of the server itself.",
    )


class _ErrorRule(NamedTuple):
    """Our error for a code of the server. `at` and `reason` are filled in."""

    kind: type[EverkeptError]
    message: str
    hint: str

    def build(self, at: str, error: psycopg.Error) -> EverkeptError:
        reason = extract_reason(error.diag.message_primary or "")
        return self.kind(self.message.format(at=at, reason=reason), hint=self.hint)


_TOO_MANY = _ErrorRule(
    TooManyConnections, "{at} has too many connections.", "Raise its max_connections, or put a pooler in front of it."
)
_NUL = _ErrorRule(InvalidInput, "The text contains the character NUL, which PostgreSQL cannot store.", "Remove it.")
_DISCONNECTED = _ErrorRule(
    StoreUnreachable, "{at} closed the connection: it is stopping or restarting.", OUTCOME_UNKNOWN_HINT
)
_NOT_ACCEPTING = _ErrorRule(StoreUnreachable, "{at} is starting up or shutting down.", "Try again in a moment.")
_CONFLICT = _ErrorRule(Conflict, "Two records or two links would be the same.", "Delete or rename one of them first.")
_READ_ONLY = _ErrorRule(
    StoreUnreachable,
    "{at} is read-only: it is a replica, or is configured as read-only. Nothing was stored.",
    "Set `database_url` to the address of the primary server.",
)
_FULL = _ErrorRule(
    StorageFull, "The disk of {at} is full. Nothing was stored.", "Free some disk space on the server and try again."
)
_OUT_OF_RESOURCES = _ErrorRule(
    Unavailable,
    "{at} ran out of a resource: {reason}.",
    "Try again. If this continues, give the server more memory or raise its limits.",
)
_SLOW = _ErrorRule(QueryTimeout, "{at} timed out. Nothing was stored.", "Try again, or request less data.")
_BLOCKED = _ErrorRule(
    QueryTimeout, "{at} is blocked by other transactions. Nothing was stored.", "Try again in a moment."
)
_DENIED = _ErrorRule(
    Refused,
    "{at} denied permission: {reason}.",
    "Run GRANT CREATE ON DATABASE for this user, and make it the owner of the tables.",
)
_DAMAGED = _ErrorRule(
    StoreDamaged,
    "{at} cannot read its stored data: {reason}.",
    "Check the server's log. Restore a backup, or export what is still readable.",
)
_SYSTEM_ERROR = _ErrorRule(
    Unavailable, "{at} reported a system error: {reason}.", f"{OUTCOME_UNKNOWN_HINT} See the server's log."
)

_RULES_BY_CODE = {
    "57P01": _DISCONNECTED,  # the server was told to stop
    "57P02": _DISCONNECTED,  # another server process crashed
    "57P03": _NOT_ACCEPTING,
    "57P04": _DISCONNECTED,  # the database was dropped
    "57P05": _DISCONNECTED,  # the session was idle for too long
    "25P03": _DISCONNECTED,  # a transaction was idle for too long
    "25P04": _SLOW,
    "53300": _TOO_MANY,
    "53100": _FULL,
    "23505": _CONFLICT,  # raised by the statement, or by the commit
    "25006": _READ_ONLY,
    "57014": _SLOW,
    "55P03": _BLOCKED,
    "40001": _BLOCKED,
    "40P01": _BLOCKED,
    "42501": _DENIED,
    "22021": _NUL,
    "22P05": _NUL,
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
}
_RULES_BY_CLASS = {
    "08": _DISCONNECTED,
    "53": _OUT_OF_RESOURCES,
    "54": _OUT_OF_RESOURCES,
    "57": _DISCONNECTED,
    "58": _SYSTEM_ERROR,
    "XX": _SYSTEM_ERROR,
}


class _RefusalRule(NamedTuple):
    """Our error for a login refusal that matches `signs`. `at`, `user` and `database` are filled in."""

    signs: re.Pattern[str]
    message: str
    hint: str


def _compile_signs(signs: str) -> re.Pattern[str]:
    return re.compile(signs, re.IGNORECASE | re.DOTALL)


_TOO_MANY_SIGNS = _compile_signs(
    "too many clients already|remaining connection slots|too many connections for |no more connections allowed"
)

# The first match wins: names of users and databases may contain the words of later rules.
_REFUSAL_RULES = (
    _RefusalRule(
        _compile_signs("server does not support SSL"),
        "{at} does not offer encrypted connections, and the settings require them.",
        "Enable TLS on the server, or add ?sslmode=disable to the address if the network is trusted.",
    ),
    _RefusalRule(
        _compile_signs(r"no pg_hba\.conf entry[^\n]{0,500}no encryption"),
        "{at} accepts only encrypted connections.",
        "Add ?sslmode=verify-full to the address.",
    ),
    _RefusalRule(
        _compile_signs(r"no pg_hba\.conf entry|pg_hba\.conf rejects"),
        '{at} does not accept the user "{user}" from this machine.',
        "Allow the user and this machine in the server's pg_hba.conf.",
    ),
    _RefusalRule(
        _compile_signs("authentication failed|no password supplied"),
        '{at} rejected the user "{user}" or the password.',
        "Check `database_user` and `database_password`.",
    ),
    _RefusalRule(
        _compile_signs('(?:database|role) "[^"\n]*" does not exist'),
        '{at} has no database "{database}", or no user "{user}".',
        "Create it with createdb or createuser, or check the settings.",
    ),
    _RefusalRule(
        _compile_signs("permission denied|is not permitted to log in"),
        '{at} does not allow the user "{user}" to use the database "{database}".',
        "Grant the user LOGIN, and CONNECT on the database.",
    ),
    _RefusalRule(
        _compile_signs("definition of service"),
        "The environment variable PGSERVICE names a service that is not defined.",
        "Unset the variable. Everkept does not use it.",
    ),
    _RefusalRule(
        _compile_signs("certificate|does not match host name"),
        "The certificate of {at} is not trusted.",
        "Set `database_ca` to a file with the certificates to trust.",
    ),
    _RefusalRule(
        _compile_signs("invalid response to|unsupported (?:frontend )?protocol"),
        "{at} did not answer like a PostgreSQL server.",
        "Check the address.",
    ),
)


Connection = psycopg.Connection[tuple[Any, ...]]

MISSING_FILE = str(Path(os.devnull) / "none")  # a file that does not exist: libpq would look in the home folder
# Where systems keep trusted certificates, if Python does not know. libpq needs a single file.
CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
KEEPALIVE_PARAMETERS = {  # detect within a minute that a firewall dropped the connection
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}


class Connector:
    """Callable that tries once to open a connection. It never shows the password, not even in its repr."""

    def __init__(
        self, address: Address, credentials: Credentials | None, ca: Path | None, connect_limit: float
    ) -> None:
        """Store the parameters. Raise InvalidInput if neither the credentials nor the address name a user."""
        # psycopg would print its warnings to stderr; we raise them as errors.
        logging.getLogger("psycopg").setLevel(logging.ERROR)
        given = credentials or Credentials("")
        self._address = address
        self._user = given.user or address.user
        self._password = given.password
        if not self._user:
            raise InvalidInput(
                f"No user is given for {address.display_url}.",
                hint="Set `database_user` to a role of that PostgreSQL server.",
            )
        known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
        ours = {
            **_read_libpq_defaults(),
            **KEEPALIVE_PARAMETERS,
            **build_tls_parameters(address, ca),
            "host": address.host,
            "port": str(address.port),
            "dbname": address.database,
            "connect_timeout": str(max(2, round(connect_limit))),  # minimum of libpq
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
        """Open a connection. The caller begins and ends its transactions."""
        login = {"user": self._user, "password": self._password}
        given: dict[str, Any] = {**self._parameters, **login}
        try:
            return psycopg.connect("", autocommit=True, **given)
        except psycopg.Error as error:
            # Not as the cause: the frames of that error contain the password.
            raise build_connect_error(self._address, self._user, error) from None


def _read_libpq_defaults() -> dict[str, str]:
    """Return the compiled-in defaults of libpq, so that environment variables have no effect."""
    return {
        option.keyword.decode(): (option.compiled or b"").decode()
        for option in pq.Conninfo.get_defaults()
        if option.envvar and option.keyword != b"service"
    }


def build_tls_parameters(address: Address, ca: Path | None) -> dict[str, str]:
    """Return how strictly to check the server's certificate, and the file of trusted certificates."""
    mode = address.ssl_mode
    if ca is not None and mode != "disable":
        return {"sslmode": mode if mode == "verify-ca" else "verify-full", "sslrootcert": _check_certificates(ca)}
    if not mode:
        mode = "prefer" if address.is_local else "verify-full"
    if mode == "verify-ca":  # anyone can get a certificate that the system trusts
        mode = "verify-full"
    is_checked = mode.startswith("verify")
    return {"sslmode": mode, "sslrootcert": _find_system_roots() if is_checked else MISSING_FILE}


def _check_certificates(ca: Path) -> str:
    try:
        ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"Cannot read the certificates in {ca}: {error.strerror or error}.",
            hint="Set `database_ca` to a file in PEM format.",
        ) from error
    return str(ca)


def _find_system_roots() -> str:
    """Return the system's certificate file. libpq's own default is a path of the machine that built it."""
    known = ssl.get_default_verify_paths()
    for place in (known.cafile, known.openssl_cafile, *CA_BUNDLES):
        if place and Path(place).is_file():
            return place
    raise Refused(
        "No file with the certificates that this system trusts was found.",
        hint="Set `database_ca` to a file with the certificates to trust.",
    )
