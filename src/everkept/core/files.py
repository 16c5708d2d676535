"""Port to a folder of files, on this machine or another."""

import re
import unicodedata
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from everkept.core.text import clip_text, has_control_characters
from everkept.errors import Refused
from everkept.values import Value

MAX_READ_BYTES = 64 * 1024 * 1024  # of one file; tools write no larger one
MAX_NAME_BYTES = 240  # with space for what a store adds to the name
_MAX_PATH_BYTES = 900  # of a whole path; systems allow 1,024 including the folder before it
# Device names of Windows, which are reserved with any suffix. The folder may be shared with Windows.
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$"}
    | {f"{port}{number}" for port in ("com", "lpt") for number in "123456789¹²³"}
)
# Names that pass every check below, as nearly all do.
_PLAIN_NAME = re.compile(
    r"(?!(?:con|prn|aux|nul|(?:com|lpt)[1-9]) *(?:\.|$))[a-z0-9_. -]{0,199}[a-z0-9_-]", re.ASCII | re.IGNORECASE
)
_RESERVED = re.compile(r'[\\:*?"<>|]')
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")


class FileInfo(Value):
    """A file or folder. `modified_at` is in microseconds, as precise as the store knows it.

    `target` is the path inside the store that a symbolic link leads to, also a link on the way.
    """

    path: str
    size: int
    modified_at: int
    is_folder: bool = False
    target: str | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class FolderSurvey(Value):
    """Names in one folder, in order. `links` has the paths that links lead to.

    `unreachable` are the names that `FileStore.list` omits, except working files. `newest` is the last time at which a
    file or folder without a leading dot changed, if requested.
    """

    files: list[str]
    folders: list[str]
    links: Mapping[str, str]
    unreachable: list[str]
    newest: int | None = None


T = TypeVar("T")
FileWork = Callable[[], Coroutine[Any, Any, T]]


class FileStore(Protocol):
    """One folder. Paths are relative to it, use `/`, and cannot leave it.

    A path that leads outside, also through a symbolic link, raises Refused, and so does a working file of the store. A
    failed call changes nothing. Missing rights raise Refused, or ReadOnly for a change. A file in place of a folder, or
    the reverse, raises Conflict for a change. A full disk raises StorageFull. Any other failure raises Unavailable.
    """

    @property
    def address(self) -> str:
        """Return the address for people: an absolute path, or `ssh://user@host/path`."""
        ...

    @property
    def is_remote(self) -> bool: ...

    async def read(self, path: str, *, start: int = 0) -> bytes:
        """Read from the byte `start` on.

        Raise NotFound, of the kind `file`, and Refused for a file of more than MAX_READ_BYTES.
        """
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a file completely or not at all, and wait until it is on the disk. Create missing folders.

        Readers see the old file until then. A link to a file inside the folder is followed.
        """
        ...

    async def write_all(self, contents: Mapping[str, bytes]) -> None:
        """Write each file as `write` does, in order.

        If one fails, earlier ones may have been written.
        """
        ...

    async def append(self, path: str, data: bytes) -> None:
        """Append to the end. A crash may leave a part, so use it only for data that can be created again."""
        ...

    async def read_info(self, path: str = "") -> FileInfo | None:
        """Return None if nothing exists there. Without a path, return the folder itself."""
        ...

    async def list(self, folder: str = "") -> list[FileInfo]:
        """List the entries of a folder by name. Raise NotFound if it does not exist.

        Working files are omitted: locks, and remains of interrupted writes. So is everything that no path can reach:
        links that lead outside, nowhere or in a circle, devices, pipes, and names that `parse_path` refuses.
        """
        ...

    async def survey(self, folder: str = "", *, with_newest: bool = False) -> FolderSurvey:
        """Return the names in a folder. Raise NotFound. Only `newest` looks at each file."""
        ...

    async def remove(self, path: str) -> None:
        """Delete a file, a link itself, or a folder with its contents. Do nothing if it does not exist."""
        ...

    async def rename(self, path: str, to: str) -> None:
        """Rename a file or folder in one step. Create the folders above `to`.

        Raise Conflict if `to` exists, and NotFound if `path` does not.
        """
        ...

    async def make_folder(self, path: str = "") -> None:
        """Create a folder and its parents, unless they exist."""
        ...

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        """Hold a lock among all processes on all machines that share the folder.

        Raise StoreBusy if another holder keeps it. Create the folder if it is missing. The lock of a dead process is
        detected. A holder that fails to renew its lease in time loses it: its next change and the end of the block
        raise StoreBusy. A task takes a lock only once.
        """
        ...

    async def run_all(self, works: Sequence[FileWork[T]]) -> Sequence[T]:
        """Return the results of all works, which run in one call into a thread or as parallel requests.

        They may run in a thread, so they await only calls of file stores and change nothing.
        """
        ...

    async def run_locked(self, name: str, work: FileWork[T], undo: FileWork[None] | None = None) -> T:
        """Run `work` while holding a lock, with the promises of `lock`.

        Work that has started runs to its end. If the caller is canceled before that, `undo` follows under the same
        lock. Both may run in a thread, so they await only calls of file stores.
        """
        ...


class FileStores(Protocol):
    """Access to folders by address."""

    async def open_folder(self, address: str) -> FileStore:
        """Return the folder at an address, which need not exist. Raise InvalidInput for an invalid address."""
        ...

    async def close(self) -> None: ...


def parse_path(path: str) -> tuple[str, ...]:
    """Return the parts of a path inside a store; the store's own folder has none.

    All systems refuse the same names, so a folder can move between them.
    """
    if not path:
        return ()
    parts = tuple(path.split("/"))
    reason = next(filter(None, map(_find_problem, parts)), None)
    if reason is None and len(path.encode("utf-8")) > _MAX_PATH_BYTES:
        reason = f"it is longer than {_MAX_PATH_BYTES} bytes"
    if reason is not None:
        shown = ascii(clip_text(path, 120))[1:-1]
        raise Refused(
            f'"{shown}" is not a valid name inside this folder: {reason}.',
            hint="Use a relative name, such as progress.md.",
            name=shown,
        )
    return parts


def is_name(name: str) -> bool:
    """Return whether a store accepts the name. Other names on the disk are omitted from lists."""
    return "/" not in name and _find_problem(name) is None


def _find_problem(part: str) -> str | None:
    if _PLAIN_NAME.fullmatch(part):
        return None
    if not part:
        return "it begins or ends with a slash, or contains two in a row"
    if part in (".", ".."):
        return f"it holds {part!r}"
    if has_control_characters(part):
        return "it contains a control character"
    if bad := _RESERVED.search(part):
        return f"it holds {bad.group()!r}"
    if part[-1] in " .":
        return "a part of it ends with a space or a dot"
    if part.partition(".")[0].rstrip().lower() in _DEVICES:
        return "Windows reserves that name for a device"
    if part.isascii():
        size = len(part)
    else:
        try:
            size = len(part.encode("utf-8"))
        except UnicodeEncodeError:
            return "it is not valid text"
        if _is_like_parent(part):
            return "some systems read it as '..'"
    return f"a part of it is longer than {MAX_NAME_BYTES} bytes" if size > MAX_NAME_BYTES else None


def _is_like_parent(part: str) -> bool:
    """Return whether full-width dots and slashes together could lead to the parent folder. Alone they are ordinary."""
    plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", part)).replace("\\", "/")
    return not plain.strip() or any(piece.strip() in (".", "..") for piece in plain.split("/"))
