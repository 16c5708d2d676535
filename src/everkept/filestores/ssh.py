"""Folders on other machines, over SSH: one connection for each user on each server."""

import asyncio
from typing import TYPE_CHECKING

from everkept.core.files import FileStore
from everkept.core.text import clipped, has_control_characters
from everkept.errors import InvalidInput
from everkept.filestores.locking import Terms
from everkept.filestores.ssh_place import SshOptions, SshPlace

if TYPE_CHECKING:
    from everkept.filestores.ssh_connection import SshConnection
    from everkept.filestores.ssh_files import SshFiles

__all__ = ["SshConnections", "SshOptions"]


class SshConnections:
    """Opens a connection when a folder is first used, and closes them all at the end."""

    def __init__(self, options: SshOptions, *, terms: Terms = Terms()) -> None:  # noqa: B008 (frozen)
        self._options = options
        self._terms = terms
        self._connections: dict[SshPlace, SshConnection] = {}
        self._folders: dict[tuple[SshPlace, str], SshFiles] = {}

    async def at(self, user: str, host: str, port: int | None, path: str) -> FileStore:
        """The folder there, absolute, or below the user's own with `/~/`; nothing is asked yet."""
        place = SshPlace(user, host, port)
        folder = _folder(path)
        await asyncio.to_thread(_load)
        from everkept.filestores.ssh_connection import SshConnection
        from everkept.filestores.ssh_files import SshFiles

        if place not in self._connections:
            self._connections[place] = SshConnection(place, self._options)
        if (place, folder) not in self._folders:
            connection = self._connections[place]
            self._folders[place, folder] = SshFiles(connection, folder, self._terms)
        return self._folders[place, folder]

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()


def _load() -> None:
    """Takes a third of a second, which only those pay who have a folder elsewhere."""
    import everkept.filestores.ssh_files  # noqa: F401  # pyright: ignore[reportUnusedImport]


def _folder(path: str) -> str:
    """With one slash before it and none at its end; what is relative begins at the user's own."""
    if not path or has_control_characters(path):
        shown = ascii(clipped(path, 120))[1:-1]
        raise InvalidInput(
            f'The SSH path "{shown}" names no folder.',
            hint="An address reads ssh://user@host/path, or ssh://user@host/~/path.",
            path=shown,
        )
    whole = path if path[0] in "/~" else f"~/{path}"
    return "/" + "/".join(part for part in whole.split("/") if part)
