"""Where a path of a folder is on its server, and whether it leads out of the folder."""

import asyncio
import posixpath
from collections.abc import Sequence
from contextlib import suppress

from asyncssh import SFTPAttrs
from asyncssh.constants import (
    FILEXFER_TYPE_DIRECTORY,
    FILEXFER_TYPE_REGULAR,
    FILEXFER_TYPE_SYMLINK,
)

from everkept.core.files import FileInfo
from everkept.errors import Refused
from everkept.filestores.ssh_session import MISSING, SftpSession
from everkept.values import Value

_SECOND = 1_000_000  # microseconds
_MOST_LINKS = 16  # one after the other; those in a circle have no end


class Spot(Value):
    """A place on a server, and what is there, if anything.

    `target` is its path inside the folder, where links led to it.
    """

    path: str
    attributes: SFTPAttrs | None = None
    target: str | None = None

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0] or "/"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_folder(self) -> bool:
        return self.attributes is not None and is_folder(self.attributes)


def is_folder(attributes: SFTPAttrs) -> bool:
    return attributes.type == FILEXFER_TYPE_DIRECTORY


def is_link(attributes: SFTPAttrs) -> bool:
    return attributes.type == FILEXFER_TYPE_SYMLINK


def is_file_or_folder(attributes: SFTPAttrs) -> bool:
    return attributes.type in (FILEXFER_TYPE_REGULAR, FILEXFER_TYPE_DIRECTORY)


def info_of(path: str, attributes: SFTPAttrs, target: str | None = None) -> FileInfo:
    """Version 3 of the protocol, which OpenSSH speaks, knows times to the second."""
    return FileInfo(
        path=path,
        size=0 if is_folder(attributes) else attributes.size or 0,
        modified_at=int(attributes.mtime or 0) * _SECOND,
        is_folder=is_folder(attributes),
        target=target,
    )


def joined(folder: str, *names: str) -> str:
    """The last of them that is absolute begins it."""
    return posixpath.join(folder, *names)


async def located(session: SftpSession, root: str, parts: Sequence[str]) -> Spot:
    """The place that the parts name, links followed; Refused where that is outside of `root`.

    The server resolves links, so whoever may write there could change one after it was looked at.
    """
    path = joined(root, *parts)
    folder, place, attributes = await asyncio.gather(
        _resolved(session, root, parts),
        _resolved(session, path, parts),
        session.attributes(path),
    )
    inside = f"{folder.rstrip('/')}/"
    if place != folder and not place.startswith(inside):
        raise leads_out(parts)
    reached = place.removeprefix(inside) if place != folder else ""
    return Spot(place, attributes, None if reached == "/".join(parts) else reached)


async def located_entry(session: SftpSession, root: str, parts: Sequence[str]) -> Spot:
    """As `located`, but a link that is the last part is itself meant, and not where it leads."""
    above = await located(session, root, parts[:-1])
    path = joined(above.path, parts[-1])
    return Spot(path, await session.attributes(path, follow=False))


def leads_out(parts: Sequence[str]) -> Refused:
    name = "/".join(parts)
    return Refused(
        f'"{name}" leads out of this folder through a symbolic link.',
        hint="Only what is inside the folder can be read and written.",
        name=name,
    )


async def _resolved(session: SftpSession, path: str, parts: Sequence[str]) -> str:
    """What is not there yet is resolved as far as there is something."""
    missing: list[str] = []
    links = 0
    while links <= _MOST_LINKS:
        with suppress(*MISSING):
            return joined(await session.real_path(path), *reversed(missing))
        found = await session.attributes(path, follow=False)
        above, slash, name = path.rpartition("/")
        above = above or slash or "."
        if found is None and name not in (".", ".."):
            missing.append(name)
            path = above
        elif found is not None and is_link(found):
            path = joined(above, await _target(session, path, parts))
            links += 1
        else:  # out of what the server shows
            break
    raise leads_out(parts)


async def _target(session: SftpSession, link: str, parts: Sequence[str]) -> str:
    """Of a link to what is not there."""
    try:
        return await session.link_target(link)
    except MISSING:
        raise leads_out(parts) from None
