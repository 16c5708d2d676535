"""The store of an address: a path of this machine, or `ssh://user@host/path`."""

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from everkept.core.files import FileStore
from everkept.core.text import clip_text, has_control_characters
from everkept.errors import InvalidInput
from everkept.files.lease_lock import LockTerms
from everkept.files.local import LocalFiles
from everkept.files.local_disk import run_in_thread
from everkept.files.ssh_server import SshOptions, SshTarget
from everkept.values import Value

if TYPE_CHECKING:
    from everkept.files.ssh_connection import SshConnection
    from everkept.files.ssh_files import SshFiles


class SshConnections:
    """Opens a connection when a folder is first used, and closes all of them at the end."""

    def __init__(self, options: SshOptions, *, terms: LockTerms = LockTerms()) -> None:  # noqa: B008 (frozen)
        self._options = options
        self._terms = terms
        self._connections: dict[SshTarget, SshConnection] = {}
        self._folders: dict[tuple[SshTarget, str], SshFiles] = {}

    async def open_folder(self, user: str, host: str, port: int | None, path: str) -> FileStore:
        """Return the folder, absolute or below the user's home folder with `/~/`. Nothing is sent yet."""
        place = SshTarget(user, host, port)
        folder = _normalize_folder(path)
        await asyncio.to_thread(_load_library)
        from everkept.files.ssh_connection import SshConnection
        from everkept.files.ssh_files import SshFiles

        if place not in self._connections:
            self._connections[place] = SshConnection(place, self._options)
        if (place, folder) not in self._folders:
            connection = self._connections[place]
            self._folders[place, folder] = SshFiles(connection, folder, self._terms)
        return self._folders[place, folder]

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()


def _load_library() -> None:
    """Import asyncssh, which takes a third of a second, only if a folder is on another machine."""
    import everkept.files.ssh_files  # noqa: F401  # pyright: ignore[reportUnusedImport]


def _normalize_folder(path: str) -> str:
    """Return the path with a leading slash and no trailing one. A relative path starts in the user's home folder."""
    if not path or has_control_characters(path):
        shown = ascii(clip_text(path, 120))[1:-1]
        raise InvalidInput(
            f'The SSH path "{shown}" is empty or contains a control character.',
            hint="Write the address as ssh://user@host/path or ssh://user@host/~/path.",
            path=shown,
        )
    whole = path if path[0] in "/~" else f"~/{path}"
    return "/" + "/".join(part for part in whole.split("/") if part)


_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?", re.IGNORECASE)
_BRACKETED = re.compile(r"\[([0-9a-f:.]+(?:%[a-z0-9_.-]+)?)\](?::(.*))?", re.IGNORECASE)
_BAD_PERCENT = re.compile(r"%(?![0-9a-f]{2})", re.IGNORECASE)


class SshAddress(Value):
    """Parts of an address. `port` is None if the address has none; `path` is absolute."""

    user: str
    host: str
    port: int | None
    path: str


class FileStoreResolver:
    """FileStores for local and SSH addresses. Each folder has one store, so that its users wait for each other."""

    def __init__(self, ssh: "SshOptions | None" = None) -> None:
        self._options = ssh
        self._local: dict[str, LocalFiles] = {}
        self._known: dict[str, LocalFiles] = {}  # by address, so that its real path is looked up only once
        self._connections: SshConnections | None = None

    async def open_folder(self, address: str) -> FileStore:
        if known := self._known.get(address):
            return known
        found = parse_address(address)
        if isinstance(found, SshAddress):
            connections = self._get_connections()
            return await connections.open_folder(found.user, found.host, found.port, found.path)
        key = await run_in_thread(_compute_identity, found)
        if key not in self._local:
            self._local[key] = LocalFiles(found)
        return self._known.setdefault(address, self._local[key])

    async def close(self) -> None:
        if self._connections is not None:
            connections, self._connections = self._connections, None
            await connections.close()

    def _get_connections(self) -> "SshConnections":
        if self._connections is None:
            from everkept.core.extras import expect_installed

            expect_installed("ssh", "A folder on another machine")
            self._connections = SshConnections(self._options or SshOptions())
        return self._connections


def _compute_identity(path: Path) -> str:
    """Return a key that is equal for two paths to one folder, for example through a link."""
    return os.path.normcase(os.path.realpath(path))


def parse_address(address: str) -> Path | SshAddress:
    """Raise InvalidInput for anything but an absolute path or an SSH address."""
    if not address.strip():
        raise _build_address_error("is empty", address)
    if has_control_characters(address):
        raise _build_address_error("contains a control character", address)
    scheme = _SCHEME.match(address)
    if scheme is None:
        return _parse_local_path(address)
    if scheme[1].lower() != "ssh" or not address[scheme.end() :].startswith("/"):
        raise _build_address_error("is not a supported address", _strip_secrets(address))
    return _parse_ssh_address(address, address[scheme.end() + 1 :])


def _parse_local_path(address: str) -> Path:
    try:
        path = Path(address).expanduser()
    except RuntimeError:
        raise _build_address_error("names a user whose home folder is unknown", address) from None
    if not path.is_absolute():
        raise _build_address_error("is relative", address)
    return Path(os.path.normpath(path))


def _parse_ssh_address(address: str, rest: str) -> SshAddress:
    authority, slash, path = rest.partition("/")
    user, at, place = authority.rpartition("@")
    shown = _strip_secrets(address)
    if ":" in user or "@" in user:
        raise _build_address_error("contains a password; use an SSH key instead", shown)
    if not at or not user:
        raise _build_address_error("has no user", shown)
    if not slash:
        raise _build_address_error("has no path", shown)
    host, port = _split_host_port(place, shown)
    return SshAddress(_decode_path(user, shown), host, port, "/" + _decode_path(path, shown).strip("/"))


def _split_host_port(place: str, shown: str) -> tuple[str, int | None]:
    if bracketed := _BRACKETED.fullmatch(place):
        host, port = bracketed[1], bracketed[2]
    else:
        host, colon, port = place.partition(":")
        port = port if colon else None
        if not _HOST.fullmatch(host):
            raise _build_address_error("has no valid host", shown)
    if port is None:
        return host, None
    if not port.isascii() or not port.isdigit() or not 1 <= int(port[:6]) <= 65_535:
        raise _build_address_error("has an invalid port; it must be between 1 and 65535", shown)
    return host, int(port)


def _decode_path(text: str, shown: str) -> str:
    try:
        plain = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise _build_address_error("contains percent escapes that are not valid UTF-8", shown) from None
    if _BAD_PERCENT.search(text):
        raise _build_address_error("contains a percent sign without two digits; write it as %25", shown)
    if has_control_characters(plain):
        raise _build_address_error("contains a control character", shown)
    return plain


def _strip_secrets(address: str) -> str:
    """Remove everything between the scheme and the last @, which may be a password."""
    scheme, slashes, rest = address.partition("//")
    authority, slash, path = rest.partition("/")
    if "@" not in authority:
        # A password with a slash in it moves the @ into what looks like the path.
        before, at, after = rest.rpartition("@")
        return f"{scheme}{slashes}…@{after}" if at and ":" in before else address
    return f"{scheme}{slashes}…@{authority.rpartition('@')[2]}{slash}{path}"


def _build_address_error(reason: str, shown: str) -> InvalidInput:
    plain = ascii(clip_text(shown, 200))[1:-1] if has_control_characters(shown) else shown[:200]
    return InvalidInput(
        f'The address "{plain}" {reason}.',
        hint="Use an absolute path, one that begins with ~, or ssh://user@host/path.",
        argument="address",
    )
