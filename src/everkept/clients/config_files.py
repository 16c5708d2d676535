"""Reading and replacing the configuration files of other programs, with a copy of each."""

import errno
import hashlib
import os
import stat
from pathlib import Path

from everkept.core import disk
from everkept.errors import EverkeptError, ReadOnly, Refused, StorageFull, Unavailable, visible
from everkept.values import Value

BACKUP = ".everkept-backup-"
_ANYONE_READS = 0o644
_MARK = "\ufeff"  # which some editors of Windows put before a text


class Held(Value):
    """What a file holds; `text` without the mark that may stand before it."""

    raw: bytes
    text: str
    has_mark: bool

    def with_text(self, text: str) -> bytes:
        return (_MARK if self.has_mark else "").encode("utf-8") + text.encode("utf-8")


NOTHING = Held(b"", "", has_mark=False)


def read(file: Path) -> Held | None:
    """None where there is no file. Refused for what is no file of text, and may not be read."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise Refused(f"{_shown(file)} is no file.", hint="Move it away, then try again.")
        raw = file.read_bytes()
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise Refused(f"{_shown(file)} cannot be there: a folder above it is a file.") from error
    except OSError as error:
        raise _failure(error, file, "read") from error
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(
            f"{_shown(file)} is no text in UTF-8.", hint="Store it as UTF-8, then try again."
        ) from error
    return Held(raw, text.removeprefix(_MARK), text.startswith(_MARK))


def replace(file: Path, content: bytes, *, is_shared: bool = False) -> None:
    """In one step, through links, with the permissions that it has.

    A new file is its owner's alone unless it `is_shared`, and so is a folder for it.
    """
    try:
        target = Path(os.path.realpath(file))
        about = _about(target)
        if about is not None and not about.st_mode & stat.S_IWUSR:
            raise ReadOnly(
                f"{_shown(file)} may not be changed: it is read-only.",
                hint="Look at its permissions.",
            )
        if is_shared:
            target.parent.mkdir(parents=True, exist_ok=True)
        else:
            disk.make_folder(target.parent)
        if about is None:
            mode = _ANYONE_READS if is_shared else disk.PRIVATE_FILE
            disk.replace(target, content, mode=mode)
        else:
            # Under sudo the file would belong to root, and its client could not write it again.
            owner = about.st_uid, about.st_gid
            disk.replace(target, content, mode=stat.S_IMODE(about.st_mode), owner=owner)
    except OSError as error:
        raise _failure(error, file, "written") from error


def remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise _failure(error, file, "removed") from error


def back_up(file: Path, content: bytes, moment: str, copies: Path | None = None) -> Path:
    """A copy beside the file, with its permissions; `moment` tells copies apart.

    In the folder `copies` where one is given, and its owner's alone then: what lies in a project
    is committed easily, and a configuration may hold others' passwords.
    """
    folder = _folder_of_copies(file, copies)
    try:
        mode = disk.PRIVATE_FILE if copies else stat.S_IMODE(file.stat().st_mode)
        disk.make_folder(folder)
        number = 1
        while True:
            name = f"{file.name}{BACKUP}{moment}" + (f"-{number}" if number > 1 else "")
            copy = folder / name
            try:
                disk.create(copy, content, mode=mode)
            except FileExistsError:
                number += 1
            else:
                return copy
    except OSError as error:
        raise _failure(error, file, "copied") from error


def backups(file: Path, copies: Path | None = None) -> list[Path]:
    """The copies that were made of a file, the newest first."""
    folder = _folder_of_copies(file, copies)
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return []
    ours = sorted(name for name in names if name.startswith(f"{file.name}{BACKUP}"))
    return [folder / name for name in reversed(ours)]


def _folder_of_copies(file: Path, copies: Path | None) -> Path:
    """One for each folder that files are copied from: many files have the same name."""
    if copies is None:
        return file.parent
    origin = os.path.realpath(file.parent)
    digest = hashlib.sha256(os.fsencode(origin)).hexdigest()[:12]
    return copies / f"{Path(origin).name.strip('.')[:40]}-{digest}"


def _about(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _failure(error: OSError, file: Path, verb: str) -> EverkeptError:
    reason = error.strerror or type(error).__name__
    message = f"{_shown(file)} could not be {verb}: {reason}."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(message, hint="Make room, then try again.")
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        kind = Refused if verb == "read" else ReadOnly
        return kind(message, hint="Look at its permissions, and whether its client has it open.")
    if error.errno == errno.ELOOP:
        return Refused(message)
    return Unavailable(message)


def _shown(file: Path) -> str:
    return visible(str(file))
