"""A project: name and status, the times at which it was off, and the workspaces linked to it."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from everkept.core.text import clipped, forbidden_in_text, has_control_characters
from everkept.errors import InvalidInput
from everkept.values import Value, replace

Status = Literal["active", "archived"]

PROJECT_NAME_LIMIT = 100  # characters
USER = "@user"  # how commands name what belongs to the user and to no project
# What folders call themselves, `--project auto`, and the user's own.
RESERVED = frozenset({".", "..", "auto", USER})
_HINT = "Letters, digits, blanks, '-', '_' and '.' do well."


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


class Silence(Value):
    """While a project was switched off, and the folder that it belongs to.

    What is said there in that time is never taken in. `until` is None while it lasts.
    """

    folder: str
    since: int
    until: int | None = None


def checked_project_name(name: str) -> str:
    """Gives the name back, or says what is wrong with it."""
    if not name.strip():
        raise InvalidInput("Project name is required.", argument="name", value=name)
    problem = (
        f"is longer than {PROJECT_NAME_LIMIT} characters"
        if len(name) > PROJECT_NAME_LIMIT
        else "begins or ends with a blank"
        if name != name.strip()
        else "holds a character that cannot be stored"
        if has_control_characters(name) or forbidden_in_text(name)
        else "holds a path separator"
        if "/" in name or "\\" in name
        else "has a meaning of its own"
        if name in RESERVED
        else None
    )
    if problem:
        shown = clipped(name, PROJECT_NAME_LIMIT).encode("utf-8", "replace").decode()
        raise InvalidInput(
            f'Project name "{shown}" {problem}.', hint=_HINT, argument="name", value=shown
        )
    return name


Span = tuple[int, int | None]  # from when until when; None while it lasts


class Switching(Value):
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

    def switched(self, *, off: bool, at: int) -> "Switching":
        """Itself, where that is what it is already."""
        since = self.off_since
        if off == (since is not None):
            return self
        if since is None:
            return replace(self, spans=(*self.spans, (at, None)))
        return replace(self, spans=(*self.spans[:-1], (since, max(since, at))))

    def united(self, other: "Switching") -> "Switching":
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

    def leaving(self, folders: Iterable[str], at: int) -> "Switching":
        """With what must be known when the project is no more."""
        return replace(self, folders=tuple(folders), deleted_at=at)

    def silences(self, folders: Sequence[str]) -> list[Silence]:
        """Of a project that has these folders."""
        return [Silence(each, since, until) for each in folders for since, until in self.spans]

    def last_silences(self) -> list[Silence]:
        """Of a project that is deleted."""
        return self.switched(off=False, at=self.deleted_at or 0).silences(self.folders)


DEFAULT_PROJECT = "default"


class Home(NamedTuple):
    """What a project belongs to: how that is told from others, and what it is called."""

    key: str
    name: str


def home_of(folder: Path) -> Home | None:
    """The workspace of a folder; None where it is none."""
    root = workspace_of(folder)
    return None if root is None else own_home(root)


def key_of_workspace(folder: str) -> str | None:
    """What the project of a folder knows it by: the folder may be a worktree, or lie behind a
    link. None where nobody can tell."""
    if not Path(folder).is_absolute():  # of another machine, or another system
        return None
    try:
        home = home_of(Path(folder))
    except (OSError, RuntimeError, ValueError):  # links in a circle, a name that none can have
        return None
    return None if home is None else home.key


def own_home(folder: Path) -> Home:
    """The folder alone, whatever is around it."""
    return Home(_key(folder), readable(folder.name))


def readable(name: str) -> str:
    """A folder's name, as far as a project can have it."""
    shown = "".join(c if c.isprintable() and c not in "/\\" else "-" for c in name)
    return shown.strip()[: PROJECT_NAME_LIMIT - 6].strip() or DEFAULT_PROJECT


def _key(root: Path) -> str:
    """The path as text, also where its bytes are not."""
    return os.fsencode(root).decode("utf-8", "backslashreplace")


def checkout_of(folder: Path) -> Path | None:
    """The real path of the git root around a folder; None outside of one."""
    folder = folder.resolve()
    return next((p for p in (folder, *folder.parents) if (p / ".git").exists()), None)


def workspace_of(folder: Path) -> Path | None:
    """The real path of the git root, or the folder itself; home and the root are none."""
    checkout = checkout_of(folder)
    found = folder.resolve() if checkout is None else _main_checkout(checkout)
    return None if found in (Path.home().resolve(), Path(found.anchor)) else found


def _main_checkout(root: Path) -> Path:
    """A worktree's `.git` is a file that points into the main checkout's `.git` folder."""
    marker = root / ".git"
    if not marker.is_file():
        return root
    pointer = marker.read_text(encoding="utf-8", errors="replace").strip()
    target = (root / pointer.removeprefix("gitdir:").strip()).resolve()
    if target.parent.name == "worktrees" and target.parent.parent.name == ".git":
        return target.parent.parent.parent
    return root
