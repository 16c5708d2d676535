"""Places: the config file, the data folder, and the database servers."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from everkept.errors import InvalidInput
from everkept.settings.setting_values import GivenSetting

if TYPE_CHECKING:
    from urllib.parse import SplitResult

CONFIG_NAME = "config.md"
GATEWAY_NAME = "tools.json"
NO_FILE = "none"  # in place of a path: do not read a file
CONFIG_VARIABLE = "EVERKEPT_CONFIG"
PLUGIN_CONFIG_VARIABLE = "MEMORY_CONFIG_PATH"
PLUGIN_FILE = Path(".claude", "surrealdb-memory.local.md")
PLUGIN_FOLDER = Path(".claude", "surrealdb-memory", "data")
OWN_SUFFIX = ".everkept"  # ends the name of our folder beside a database of another program


def find_own_path(environment: Mapping[str, str]) -> Path | None:
    """Return the place of our config file, or None without a home folder.

    It is the folder of platformdirs, which is slow to import.
    """
    home = environment.get("HOME") or environment.get("USERPROFILE")
    if sys.platform == "win32":
        base = environment.get("LOCALAPPDATA") or (home and Path(home, "AppData", "Local"))
    elif environment.get("XDG_CONFIG_HOME", "").strip():
        base = environment["XDG_CONFIG_HOME"]
    elif sys.platform == "darwin":
        base = home and Path(home, "Library", "Application Support")
    else:
        base = home and Path(home, ".config")
    return Path(base, "everkept", CONFIG_NAME) if base else None


def find_gateway_path(environment: Mapping[str, str]) -> Path | None:
    """Return the place of the gateway's file, next to ours."""
    own = find_own_path(environment)
    return None if own is None else own.with_name(GATEWAY_NAME)


def get_default_data_dir(environment: Mapping[str, str]) -> Path:
    """Return the platform's folder for our data, the same as platformdirs has.

    Usually it is known without that package, which is too slow to import for a hook.
    """
    home, named = environment.get("HOME", ""), environment.get("XDG_DATA_HOME", "")
    is_plain = home.startswith("/") and "ANDROID_DATA" not in environment
    if is_plain and not named and sys.platform == "darwin":
        return Path(home, "Library", "Application Support", "everkept")
    if is_plain and not named and sys.platform == "linux":
        return Path(home, ".local", "share", "everkept")
    from platformdirs import user_data_path

    return user_data_path("everkept", appauthor=False)


def find_config(explicit: str | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file to read: the named one, otherwise ours, otherwise that of surrealdb-memory."""
    named = explicit or environment.get(CONFIG_VARIABLE)
    if named == NO_FILE:
        return None
    if named:
        return _require_file(Path(named).expanduser(), "--config" if explicit else CONFIG_VARIABLE)
    own = find_own_path(environment)
    if own is not None and is_existing(own):
        return own
    return _find_plugin_file(environment)


def list_config_candidates(environment: Mapping[str, str]) -> list[Path]:
    """Return the files that are read if they exist, although no flag names them."""
    named = environment.get(PLUGIN_CONFIG_VARIABLE)
    home = environment.get("HOME") or environment.get("USERPROFILE")
    files = (
        find_own_path(environment),
        find_gateway_path(environment),
        Path(home, PLUGIN_FILE) if home else None,
        Path(named).expanduser() if named else None,
    )
    return [path for path in files if path is not None]


def find_target(explicit: str | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file to write: the named one, otherwise ours."""
    named = explicit or environment.get(CONFIG_VARIABLE)
    return find_own_path(environment) if named in (None, "", NO_FILE) else Path(named).expanduser()


def is_database_folder(path: Path) -> bool:
    """Return whether a SurrealDB has its files directly in this folder, in any of its formats."""
    try:
        names = {each.name for each in path.iterdir()}
    except OSError:
        return False
    return "clog" in names or {"manifest", "wal"} <= names or {"CURRENT", "IDENTITY"} <= names


def is_foreign_folder(path: Path) -> bool:
    """Return whether the folder is another program's database without any file of ours."""
    try:
        if not is_database_folder(path):
            return False
        ours = any((path / name).is_dir() for name in ("surreal", "standby", "projects"))
        return not ours and not any(path.glob("*.db"))
    except OSError:
        return False


def _find_plugin_file(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("HOME") or environment.get("USERPROFILE")
    usual = Path(home, PLUGIN_FILE) if home else None
    if named := environment.get(PLUGIN_CONFIG_VARIABLE):
        path = Path(named).expanduser()
        # The plugin names the usual place, whether a file exists or not.
        if path != usual:
            return _require_file(path, PLUGIN_CONFIG_VARIABLE)
    return usual if usual is not None and is_existing(usual) else None


def is_existing(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder without permission to list
        return False


def _require_file(path: Path, named_by: str) -> Path:
    if not is_existing(path):
        raise InvalidInput(
            f"Cannot find the config file {path}.",
            hint=f"`{named_by}` names it. To create it, run `everkept config init`.",
            argument=named_by,
            value=str(path),
        )
    return path


LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")  # all names of one server
PASSWORD_PLACES = "EVERKEPT_DATABASE_PASSWORD, or `remote_pass` in the config file"

_ENCRYPTED = ("wss", "https")
# The modes of PostgreSQL's own programs for encryption.
_SSL_MODES = ("disable", "require", "verify-ca", "verify-full")
_UNCHECKED_MODES = ("require",)  # encrypted, but the server is not verified
_SCHEME = "postgresql"
_MAX_NAME_BYTES = 63  # PostgreSQL cuts longer names


class ServerKind(NamedTuple):
    """Kind of database server."""

    engine: str
    title: str
    ports: Mapping[str, int]  # the default port of each scheme
    examples: tuple[str, ...]
    local: str | None = None  # its default address


SURREAL = ServerKind(
    "surreal",
    "SurrealDB",
    {"ws": 80, "wss": 443, "http": 80, "https": 443},
    ("ws://127.0.0.1:8000", "wss://db.example.com"),
    local="ws://127.0.0.1:8000",
)
POSTGRES = ServerKind(
    "postgres", "PostgreSQL", {_SCHEME: 5432, "postgres": 5432}, ("postgresql://127.0.0.1:5432/everkept",)
)
SERVER_KINDS = (SURREAL, POSTGRES)


def find_kind(scheme: str) -> ServerKind | None:
    return next((kind for kind in SERVER_KINDS if scheme.lower() in kind.ports), None)


def get_title(engine: str) -> str:
    """Return its name for people."""
    return next((kind.title for kind in SERVER_KINDS if kind.engine == engine), "SQLite")


def parse_server_kind(address: GivenSetting) -> ServerKind:
    """Return the kind of a server address. Raise InvalidInput for any other text."""
    kind = find_kind(str(address.value).partition(":")[0])
    if kind is None:
        raise address.build_invalid(_format_examples(*SERVER_KINDS))
    return kind


def split_address(address: GivenSetting) -> "SplitResult":
    """Split a server address. Raise InvalidInput for any other text or extra parts."""
    from urllib.parse import urlsplit

    from everkept.settings.server_addresses import get_socket_folder, normalize_socket

    text, kind = str(address.value), parse_server_kind(address)
    try:
        parts = urlsplit(text)
        if kind is POSTGRES:
            parts = normalize_socket(parts)
        is_address = bool(parts.hostname or (kind is POSTGRES and get_socket_folder(parts))) and parts.port != 0
    except ValueError:
        raise address.build_invalid(_format_examples(kind)) from None
    if "@" in parts.netloc:
        raise address.build_invalid(
            "it must not contain a user or a password. Use `database_user` for the user, "
            f"{PASSWORD_PLACES}, for the password."
        )
    # `urlsplit` drops line breaks and tabs silently.
    if not is_address or not text.isprintable() or " " in text or parts.fragment:
        raise address.build_invalid(_format_examples(kind))
    if kind is POSTGRES:
        return _split_postgres(address, parts)
    if parts.query:
        raise address.build_invalid(_format_examples(kind))
    return parts


def _split_postgres(address: GivenSetting, parts: "SplitResult") -> "SplitResult":
    from everkept.settings.server_addresses import get_socket_folder

    if "," in parts.netloc:
        raise address.build_invalid("it must name one server, not several.")
    allowed = {"sslmode": "|".join(_SSL_MODES)}
    if (folder := get_socket_folder(parts)) is not None:
        if not folder.startswith("/"):
            raise address.build_invalid("the `host` after `?` must be the folder of a socket, such as /run/postgresql.")
        allowed |= {"host": r"[^&#]+", "port": r"[1-9]\d{0,4}"}
    for part in parts.query.split("&") if parts.query else ():
        name, _, value = part.partition("=")
        if name not in allowed or not re.fullmatch(allowed[name], value):
            modes = ", ".join(_SSL_MODES)
            raise address.build_invalid(f"after `?`, only sslmode is allowed, as one of {modes}.")
    return parts._replace(scheme=_SCHEME)


def with_database(given: Mapping[str, GivenSetting], address: GivenSetting) -> dict[str, GivenSetting]:
    """Return the address of a PostgreSQL server with its database, and that database.

    Raise InvalidInput if none is named, and Refused if two are.
    """
    from urllib.parse import quote, unquote

    from everkept.settings.server_addresses import format_address

    parts, named = split_address(address), given.get("database")
    name = unquote(parts.path.removeprefix("/"))
    if not name and named is None:
        raise address.build_invalid(f"it names no database: {_format_examples(POSTGRES)}")
    if named is not None and name not in ("", named.value) and not _is_for_this_run(address, named):
        raise named.build_refusal(f"`{address.key}` names the database {name!r}. Remove one of them.")
    if named is None or name:
        named = GivenSetting("database", name, address.key, f"follows from {address.key}")
        _check_database(address, name)
    else:
        _check_database(named, str(named.value))
    path = f"/{quote(str(named.value), safe='')}"
    return {"database_url": address._replace(value=format_address(parts._replace(path=path))), "database": named}


def _check_database(given: GivenSetting, name: str) -> None:
    is_one = bool(name) and "/" not in name and name.isprintable()
    if not is_one or len(name.encode("utf-8")) > _MAX_NAME_BYTES:
        raise given.build_invalid(f"the name of a database must have 1 to {_MAX_NAME_BYTES} bytes without a slash.")


def check_schema(namespace: GivenSetting) -> None:
    """Check the name of a schema. PostgreSQL reserves some names, and would silently cut a long one."""
    name = str(namespace.value)
    if len(name) > _MAX_NAME_BYTES:
        raise namespace.build_invalid(f"a schema of PostgreSQL must have at most {_MAX_NAME_BYTES} characters.")
    if re.match(r"(?i)pg_|information_schema$", name):
        raise namespace.build_refusal("PostgreSQL reserves such names. Use another one.")


def list_wire_warnings(address: str, password: str | None, ca: Path | None) -> list[str]:
    """Return warnings about the connection to a server."""
    from urllib.parse import parse_qsl, urlsplit

    parts = urlsplit(address)
    is_near = is_near_server(parts)
    if find_kind(parts.scheme) is POSTGRES:
        mode = dict(parse_qsl(parts.query)).get("sslmode", "")
        is_open, better = mode == "disable", "remove ?sslmode=disable"
        if mode in _UNCHECKED_MODES and ca is None and not is_near:
            return [
                f"The connection does not verify that it is {parts.hostname} that answers. An attacker "
                "in between can read and change everything. Use ?sslmode=verify-full."
            ]
    else:
        is_open, better = parts.scheme not in _ENCRYPTED, "use wss:// or https://"
    told: list[str] = []
    if is_open and password and not is_near:
        told.append(f"The password for {address} and all memories travel unencrypted: {better}.")
    if is_open and ca is not None:
        told.append(f"database_ca is not used: the way to {address} is not encrypted.")
    return told


def compute_database_key(address: str, namespace: str, database: str) -> str:
    """Return a short key of a database, the same for every spelling of its address."""
    from hashlib import sha256
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    kind = find_kind(parts.scheme) or SURREAL
    port = str(parts.port or kind.ports.get(parts.scheme, 0))
    host = parts.hostname or parts.query  # a socket has its folder there
    host = LOOPBACK_HOSTS[0] if host in LOOPBACK_HOSTS else host
    if kind is POSTGRES:
        named = (kind.engine, host, port, parts.path, namespace)
    else:
        named = (host, port, parts.path.rstrip("/").removesuffix("/rpc"), namespace, database)
    return sha256("\n".join(named).encode("utf-8")).hexdigest()[:16]


def is_near_server(parts: "SplitResult") -> bool:
    """Return whether a server's address leads to this machine."""
    from everkept.settings.server_addresses import get_socket_folder

    return get_socket_folder(parts) is not None or is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _format_examples(*kinds: ServerKind) -> str:
    *first, last = (example for kind in kinds for example in kind.examples)
    shown = f"{', '.join(first)} or {last}" if first else last
    return f"it must be an address like {shown}."


def _is_for_this_run(address: GivenSetting, other: GivenSetting) -> bool:
    return address.is_flag and not other.is_flag
