"""What an SFTP server's errors mean to whoever works with a folder."""

import asyncssh

from everkept.errors import (
    Conflict,
    EverkeptError,
    NotFound,
    ReadOnly,
    Refused,
    StorageFull,
    Unavailable,
)
from everkept.filestores.ssh_session import MISSING

# Version 3 of the protocol, which OpenSSH speaks, has one code for most failures. Some servers
# add the reason in words; OpenSSH does not.
_REASONS: tuple[tuple[tuple[type[asyncssh.SFTPError], ...], tuple[str, ...], str], ...] = (
    (
        (asyncssh.SFTPNoSpaceOnFilesystem, asyncssh.SFTPQuotaExceeded),
        ("no space", "quota"),
        "full",
    ),
    ((asyncssh.SFTPPermissionDenied, asyncssh.SFTPWriteProtect), ("read-only",), "denied"),
    (
        (asyncssh.SFTPInvalidFilename, asyncssh.SFTPLinkLoop, asyncssh.SFTPBadMessage),
        ("name too long", "too many levels"),
        "refused",
    ),
    (
        (asyncssh.SFTPFileAlreadyExists, asyncssh.SFTPFileIsADirectory, asyncssh.SFTPDirNotEmpty),
        ("file exists", "is a directory", "not empty"),
        "taken",
    ),
)


def translated(
    error: asyncssh.SFTPError | FileExistsError, host: str, path: str, *, root: str, writing: bool
) -> EverkeptError:
    """The error to raise for an answer of the server; a lost connection is none.

    Without a path the root is what was asked for.
    """
    shown = path or root
    if isinstance(error, FileExistsError):
        return Conflict(f'"{shown}" cannot be written: a part of it is a file, not a folder.')
    if isinstance(error, MISSING):
        return NotFound("file", shown)
    if isinstance(error, asyncssh.SFTPOpUnsupported):
        return Refused(
            f'The SFTP server on {host} has no way to do this with "{shown}": {error.reason}.',
            hint="To replace a file in one step it has to offer posix-rename@openssh.com, as"
            " OpenSSH does.",
            host=host,
        )
    return _failed(error, host, shown, writing)


def _failed(error: asyncssh.SFTPError, host: str, shown: str, writing: bool) -> EverkeptError:
    verb = "written" if writing else "read"
    sentence = f'"{shown}" could not be {verb} on {host}: {error.reason}.'
    match reason_of(error):
        case "full":
            return StorageFull(sentence, hint="Make room there, then try again.", host=host)
        case "denied":
            kind = ReadOnly if writing else Refused
            return kind(sentence, hint="Look at its permissions there.", host=host)
        case "refused":
            return Refused(sentence, host=host)
        case "taken":
            return Conflict(sentence, host=host)
        case _:
            return Unavailable(sentence, host=host)


def reason_of(error: asyncssh.SFTPError) -> str | None:
    said = error.reason.lower()
    for kinds, words, reason in _REASONS:
        if isinstance(error, kinds) or any(word in said for word in words):
            return reason
    return None
