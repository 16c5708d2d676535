"""A project: name and status, the times at which it was off, and the workspaces linked to it."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from everkept.core import disk
from everkept.core.text import clip_text, find_forbidden, has_control_characters
from everkept.errors import InvalidInput
from everkept.values import Value, replace

Status = Literal["active", "archived"]

MAX_PROJECT_NAME_CHARACTERS = 100
USER_PROJECT = "@user"  # how commands name what belongs to the user and to no project
# What folders call themselves, `--project auto`, and the user's own.
RESERVED_NAMES = frozenset({".", "..", "auto", USER_PROJECT})
_NAME_HINT = "Letters, digits, blanks, '-', '_' and '.' do well."


class Project(Value):
    id: str
    name: str
    description: str
    status: Status
    created_at: int
    updated_at: int
    off_since: int | None = None

    @property
    def is_off(self) -> bool:
        """Whether it is switched off: nothing of it is stored, and nothing of it is given out."""
        return self.off_since is not None


class OffPeriod(Value):
    """While a project was switched off, and the folder that it belongs to.

    What is said there in that time is never taken in. `until` is None while it lasts.
    """

    folder: str
    since: int
    until: int | None = None


def validate_project_name(name: str) -> str:
    """Gives the name back, or says what is wrong with it."""
    if not name.strip():
        raise InvalidInput("Project name is required.", argument="name", value=name)
    problem = (
        f"is longer than {MAX_PROJECT_NAME_CHARACTERS} characters"
        if len(name) > MAX_PROJECT_NAME_CHARACTERS
        else "begins or ends with a blank"
        if name != name.strip()
        else "holds a character that cannot be stored"
        if has_control_characters(name) or find_forbidden(name)
        else "holds a path separator"
        if "/" in name or "\\" in name
        else "has a meaning of its own"
        if name in RESERVED_NAMES
        else None
    )
    if problem:
        shown = clip_text(name, MAX_PROJECT_NAME_CHARACTERS).encode("utf-8", "replace").decode()
        raise InvalidInput(f'Project name "{shown}" {problem}.', hint=_NAME_HINT, argument="name", value=shown)
    return name


Span = tuple[int, int | None]  # from when until when; None while it lasts


class OffHistory(Value):
    """The times that a project was off, in their order.

    `folders` and `deleted_at` are kept for one that is deleted: what was said there while it was
    off stays unsaid, and what is said later belongs to another project.
    """

    spans: tuple[Span, ...] = ()
    folders: tuple[str, ...] = ()
    deleted_at: int | None = None

    @property
    def off_since(self) -> int | None:
        """None where it is on."""
        since, until = self.spans[-1] if self.spans else (None, 0)
        return since if until is None else None

    def with_switch(self, *, off: bool, at: int) -> "OffHistory":
        """Itself, where that is what it is already."""
        since = self.off_since
        if off == (since is not None):
            return self
        if since is None:
            return replace(self, spans=(*self.spans, (at, None)))
        return replace(self, spans=(*self.spans[:-1], (since, max(since, at))))

    def merge(self, other: "OffHistory") -> "OffHistory":
        """Off whenever either was; of a time that both know the beginning of, its own end holds."""
        ends = {**dict(other.spans), **dict(self.spans)}
        spans: list[Span] = []
        for since in sorted(ends):
            until = ends[since]
            before, end = spans[-1] if spans else (since, since)
            if end is not None and since >= end:
                spans.append((since, until))
            else:
                spans[-1] = (before, None if end is None or until is None else max(end, until))
        return replace(self, spans=tuple(spans))

    def with_deletion(self, folders: Iterable[str], at: int) -> "OffHistory":
        """With what must be known when the project is no more."""
        return replace(self, folders=tuple(folders), deleted_at=at)

    def list_periods(self, folders: Sequence[str]) -> list[OffPeriod]:
        """Of a project that has these folders."""
        return [OffPeriod(each, since, until) for each in folders for since, until in self.spans]

    def list_last_periods(self) -> list[OffPeriod]:
        """Of a project that is deleted."""
        return self.with_switch(off=False, at=self.deleted_at or 0).list_periods(self.folders)


DEFAULT_PROJECT = "default"
MAX_POINTER_BYTES = 10_000  # of a file in which git names a folder; paths are shorter


class WorkspaceInfo(NamedTuple):
    """What a project belongs to: how that is told from others, and what it is called."""

    key: str
    name: str


def find_workspace(folder: Path) -> WorkspaceInfo | None:
    """The workspace of a folder; None where it is none."""
    root = find_workspace_root(folder)
    return None if root is None else build_workspace(root)


def find_workspace_key(folder: str) -> str | None:
    """What the project of a folder knows it by: the folder may be a worktree, or lie behind a
    link. None where nobody can tell."""
    if not Path(folder).is_absolute():  # of another machine, or another system
        return None
    try:
        home = find_workspace(Path(folder))
    except (OSError, RuntimeError, ValueError):  # links in a circle, a name that none can have
        return None
    return None if home is None else home.key


def build_workspace(folder: Path) -> WorkspaceInfo:
    """The folder alone, whatever is around it."""
    return WorkspaceInfo(_encode_path(folder), to_project_name(folder.name))


def to_project_name(name: str) -> str:
    """A folder's name, as far as a project can have it."""
    shown = "".join(c if c.isprintable() and c not in "/\\" else "-" for c in name)
    return shown.strip()[: MAX_PROJECT_NAME_CHARACTERS - 6].strip() or DEFAULT_PROJECT


def _encode_path(root: Path) -> str:
    """The path as text, also where its bytes are not."""
    return os.fsencode(root).decode("utf-8", "backslashreplace")


def find_checkout(folder: Path) -> Path | None:
    """The real path of the git root around a folder; None outside of one."""
    folder = folder.resolve()
    return next((p for p in (folder, *folder.parents) if (p / ".git").exists()), None)


def find_workspace_root(folder: Path) -> Path | None:
    """The real path of the git root, or the folder itself; home and the root are none."""
    checkout = find_checkout(folder)
    found = folder.resolve() if checkout is None else _find_main_checkout(checkout)
    return None if found in (Path.home().resolve(), Path(found.anchor)) else found


def _find_main_checkout(root: Path) -> Path:
    """Return the main checkout of a worktree, or `root` if the repository does not know it as its worktree.

    A worktree's `.git` file names a folder inside the main checkout's `.git`, and the `gitdir` file there names the
    `.git` file. A folder from a stranger can forge only the first.
    """
    marker = root / ".git"
    if not marker.is_file() or marker.is_symlink():
        return root
    target = _read_pointer(marker, "gitdir:")
    if target is None or target.parent.name != "worktrees" or target.parent.parent.name != ".git":
        return root
    back = _read_pointer(target / "gitdir")
    is_known = back is not None and back == marker.resolve()
    return target.parent.parent.parent if is_known else root


def _read_pointer(file: Path, prefix: str = "") -> Path | None:
    """Return the real path that a file of git names, which can be relative; None if it names none."""
    try:
        text = disk.read_limited(file, MAX_POINTER_BYTES).decode("utf-8", "replace").strip()
        return (file.parent / text.removeprefix(prefix).strip()).resolve() if text.startswith(prefix) else None
    except (OSError, RuntimeError, ValueError):  # unreadable, a loop of links, or not a path
        return None
