"""Where a PostgreSQL server listens and which database is meant, and who we are there."""

from ipaddress import ip_address
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from everkept.errors import InvalidInput
from everkept.values import Value, field

SCHEMES = ("postgresql", "postgres")
USUAL_PORT = 5432
SSL_MODES = ("disable", "require", "verify-ca", "verify-full")
EXAMPLE = "An address looks like postgresql://db.example.org:5432/everkept."


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
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"postgresql://{host}:{self.port}/{self.database}"

    @property
    def is_near(self) -> bool:
        """Whether it is this machine that answers."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parsed(text: str) -> Address:
    """Raises InvalidInput for what is no address of a database, or has a password in it."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise _wrong(text, "is no address") from None
    if parts.password is not None:
        raise InvalidInput(
            "The address of PostgreSQL holds a password.",
            hint="Give it apart from the address: it would be shown wherever that is.",
        )
    if parts.scheme not in SCHEMES:
        raise _wrong(text, "must begin with postgresql://")
    if not parts.hostname or "," in parts.netloc or parts.fragment or port == 0:
        raise _wrong(text, "must name one host, and have no #")
    name = unquote(parts.path.removeprefix("/"))
    if not name or "/" in name:
        raise _wrong(text, "must name a database")
    user = unquote(parts.username or "")
    mode = _ssl_mode(text, parts)
    for value in (parts.hostname, name, user):
        if not value.isprintable():
            raise _wrong(text, "holds what cannot be printed")
    return Address(parts.hostname, port or USUAL_PORT, name, user, mode)


def _ssl_mode(text: str, parts: SplitResult) -> str:
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    mode = given.pop("sslmode", "")
    if given or (parts.query and mode not in SSL_MODES):
        raise _wrong(text, f"may have nothing behind ? but sslmode={'|'.join(SSL_MODES)}")
    return mode


def _wrong(text: str, why: str) -> InvalidInput:
    shown = text.rpartition("@")[2]  # before it may stand a password
    return InvalidInput(f'The address of PostgreSQL "{shown}" {why}.', hint=EXAMPLE)
