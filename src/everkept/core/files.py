"""What the core asks of a folder of files, on this machine or on another."""

import re
import unicodedata
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from everkept.core.text import clip_text, has_control_characters
from everkept.errors import Refused
from everkept.values import Value

MAX_NAME_BYTES = 240  # bytes of one name, with room for what a store adds to it
_MAX_PATH_BYTES = 900  # bytes of a whole path; systems end at 1,024, with the folder before it
# Names that Windows gives to devices, whatever their ending: a folder may be shared with it.
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$"}
    | {f"{port}{number}" for port in ("com", "lpt") for number in "123456789¹²³"}
)
# Names that pass every check below: nearly all of them.
_PLAIN_NAME = re.compile(
    r"(?!(?:con|prn|aux|nul|(?:com|lpt)[1-9]) *(?:\.|$))[a-z0-9_. -]{0,199}[a-z0-9_-]", re.ASCII | re.IGNORECASE
)
_RESERVED = re.compile(r'[\\:*?"<>|]')
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")


class FileInfo(Value):
    """A file or folder; `modified_at` is in microseconds, as precise as the store knows it.

    `target` is the path inside the store that a symbolic link, itself or on the way, leads to.
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
    """The names in one folder, in their order; `links` has the paths that links lead to.

    `unreachable` are the names that `FileStore.list` omits, working files aside. `newest` is the
    time of the last change of a file or folder whose name begins with no dot, if it was asked for.
    """

    files: list[str]
    folders: list[str]
    links: Mapping[str, str]
    unreachable: list[str]
    newest: int | None = None


T = TypeVar("T")
FileWork = Callable[[], Coroutine[Any, Any, T]]


class FileStore(Protocol):
    """One folder. Paths are relative to it, with `/`, and nothing outside it can be reached.

    A path that leads out, by its form or through a symbolic link, raises Refused, and so does one
    of the store's own working files. What fails changes nothing. A lack of rights is Refused, or
    ReadOnly for a change; a file where a folder is needed, or the other way round, is Conflict for
    a change; no room is StorageFull; whatever else fails outside is Unavailable.
    """

    @property
    def address(self) -> str:
        """As people write it: an absolute path, or `ssh://user@host/path`."""
        ...

    @property
    def is_remote(self) -> bool: ...

    async def read(self, path: str, *, start: int = 0) -> bytes:
        """From the byte `start` on. Raises NotFound, of the kind `file`."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """All of it or nothing, on the platter when it returns; folders are made.

        Whoever reads meanwhile sees what was there before. A link to something inside is followed.
        """
        ...

    async def write_all(self, contents: Mapping[str, bytes]) -> None:
        """Write each file as `write` does, in their order.

        If one fails, those before it may have been written.
        """
        ...

    async def append(self, path: str, data: bytes) -> None:
        """Adds to the end; a crash may leave a part. For what can be made again."""
        ...

    async def read_info(self, path: str = "") -> FileInfo | None:
        """None where there is nothing; the folder itself without a path."""
        ...

    async def list(self, folder: str = "") -> list[FileInfo]:
        """The entries of one folder by name; NotFound without it.

        Left out are its own working files (locks, and what a crash left of a write) and what no
        path of a store can reach: links that lead out, nowhere or in a circle, devices, pipes, and
        names that `parse_path` refuses.
        """
        ...

    async def survey(self, folder: str = "", *, with_newest: bool = False) -> FolderSurvey:
        """Return the names in one folder; NotFound without it. Only `newest` looks at each file."""
        ...

    async def remove(self, path: str) -> None:
        """A file, a link itself, or a folder with all that is in it; nothing there is fine."""
        ...

    async def rename(self, path: str, to: str) -> None:
        """A file or a folder, in one step; folders above `to` are made.

        Conflict where `to` exists, NotFound without `path`.
        """
        ...

    async def make_folder(self, path: str = "") -> None:
        """With those above it; one that is there is fine."""
        ...

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        """Held by one at a time, of all processes on all machines that share the folder.

        Raises StoreBusy when the other does not let go, and makes the folder where it is missing.
        A holder that died is found out. One that did not come to renewing its lease loses it: its
        next change raises StoreBusy, as does the end of the block. A task takes a lock once.
        """
        ...

    async def run_all(self, works: Sequence[FileWork[T]]) -> Sequence[T]:
        """Return the results of all works: of one call into a thread, or of requests side by side.

        They may run in a thread: they await nothing but calls of file stores, and change nothing.
        """
        ...

    async def run_locked(self, name: str, work: FileWork[T], undo: FileWork[None] | None = None) -> T:
        """Run `work` while holding a lock, with the promises of `lock`.

        Work that has begun comes to its end. If the caller is canceled before that, `undo` follows
        under the same lock. Both may run in a thread: they await nothing but calls of file stores.
        """
        ...


class FileStores(Protocol):
    """All folders that can be reached."""

    async def open_folder(self, address: str) -> FileStore:
        """The folder there, which need not exist. InvalidInput for what is no address."""
        ...

    async def close(self) -> None: ...


def parse_path(path: str) -> tuple[str, ...]:
    """The parts of a path inside a store; the store's own folder has none.

    The same names are refused on every system, so that a folder can move between them.
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
            f'"{shown}" is no name inside this folder: {reason}.',
            hint="Names are relative, as in progress.md.",
            name=shown,
        )
    return parts


def is_name(name: str) -> bool:
    """Whether a store can be asked for it; other names that a disk may hold are left out."""
    return "/" not in name and _find_problem(name) is None


def _find_problem(part: str) -> str | None:
    if _PLAIN_NAME.fullmatch(part):
        return None
    if not part:
        return "it begins or ends with a slash, or holds two in a row"
    if part in (".", ".."):
        return f"it holds {part!r}"
    if has_control_characters(part):
        return "it holds a control character"
    if bad := _RESERVED.search(part):
        return f"it holds {bad.group()!r}"
    if part[-1] in " .":
        return "a part of it ends with a blank or a dot"
    if part.partition(".")[0].rstrip().lower() in _DEVICES:
        return "Windows has a device of that name"
    if part.isascii():
        size = len(part)
    else:
        try:
            size = len(part.encode("utf-8"))
        except UnicodeEncodeError:
            return "it is no valid text"
        if _is_like_parent(part):
            return "some system would read it as '..'"
    return f"a part of it is longer than {MAX_NAME_BYTES} bytes" if size > MAX_NAME_BYTES else None


def _is_like_parent(part: str) -> bool:
    """Full-width dots and slashes are ordinary in names, unless together they lead elsewhere."""
    plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", part)).replace("\\", "/")
    return not plain.strip() or any(piece.strip() in (".", "..") for piece in plain.split("/"))
