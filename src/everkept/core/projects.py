"""Projects: name and status, the periods in which they were off, and linked workspaces."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from everkept.core import disk
from everkept.core.text import clip_text, find_forbidden, has_control_characters
from everkept.errors import InvalidInput, NotFound
from everkept.values import Value, replace

Status = Literal["active", "archived"]
STATUSES: tuple[Status, ...] = ("active", "archived")

MAX_PROJECT_NAME_CHARACTERS = 100
USER_PROJECT = "@user"  # name of the user's own data in commands
# Names of folders, of `--project auto` and of the user's own data.
RESERVED_NAMES = frozenset({".", "..", "auto", USER_PROJECT})
# Stored name of a deleted project, which keeps its name free for another one. The id of the project follows.
TRASH_PREFIX = "@trash "
_NAME_HINT = "Use letters, digits, spaces, '-', '_' and '.'."


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
        """Return whether memory is off: nothing is stored or recalled."""
        return self.off_since is not None


def build_trash_name(project_id: str) -> str:
    return TRASH_PREFIX + project_id


def is_trash_name(stored_name: str) -> bool:
    return stored_name.startswith(TRASH_PREFIX)


class TrashedProject(Value):
    """Deleted project that can be restored until `until`; None if it stays until it is purged.

    `project` has its stored name and `name` the one that it had. `status` is the one before the deletion.
    """

    project: Project
    name: str
    deleted_at: int
    until: int | None
    status: Status = "active"
    is_off: bool = False


class OffPeriod(Value):
    """Period in which a project was off, and its folder.

    What is said there in that time is never imported. `until` is None for a current period.
    """

    folder: str
    since: int
    until: int | None = None


def validate_project_name(name: str) -> str:
    """Return the name, or raise InvalidInput with what is wrong."""
    if not name.strip():
        raise InvalidInput("The project name is empty.", hint=_NAME_HINT, argument="name", value=name)
    problem = (
        f"is longer than {MAX_PROJECT_NAME_CHARACTERS} characters"
        if len(name) > MAX_PROJECT_NAME_CHARACTERS
        else "begins or ends with a space"
        if name != name.strip()
        else "contains a character that cannot be stored"
        if has_control_characters(name) or find_forbidden(name)
        else "contains a path separator"
        if "/" in name or "\\" in name
        else "is reserved"
        if name in RESERVED_NAMES
        else None
    )
    if problem:
        shown = clip_text(name, MAX_PROJECT_NAME_CHARACTERS).encode("utf-8", "replace").decode()
        raise InvalidInput(f'Project name "{shown}" {problem}.', hint=_NAME_HINT, argument="name", value=shown)
    return name


Span = tuple[int, int | None]  # start and end; None for a current period


class OffHistory(Value):
    """Periods in which a project was off, in order.

    `folders` and `deleted_at` are stored for a deleted project, and `folders` also for one in the trash. What was said
    there while it was off is never imported; what is said later belongs to another project.
    """

    spans: tuple[Span, ...] = ()
    folders: tuple[str, ...] = ()
    deleted_at: int | None = None

    @property
    def off_since(self) -> int | None:
        """Return None if the project is on."""
        since, until = self.spans[-1] if self.spans else (None, 0)
        return since if until is None else None

    def with_switch(self, *, off: bool, at: int) -> "OffHistory":
        """Return the history with this switch, unchanged if the project already has that state."""
        since = self.off_since
        if off == (since is not None):
            return self
        if since is None:
            return replace(self, spans=(*self.spans, (at, None)))
        return replace(self, spans=(*self.spans[:-1], (since, max(since, at))))

    def merge(self, other: "OffHistory") -> "OffHistory":
        """Merge two histories: off if either was off. Of a period that both begin together, our own end counts."""
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

    def with_folder(self, folder: str) -> "OffHistory":
        """Return the history with a folder that the project had, and that another project gets."""
        is_known = not self.spans or folder in self.folders
        return self if is_known else replace(self, folders=(*self.folders, folder))

    def with_deletion(self, folders: Iterable[str], at: int) -> "OffHistory":
        """Return the history with what must be known after the deletion."""
        return replace(self, folders=tuple(folders), deleted_at=at)

    def list_periods(self, folders: Sequence[str]) -> list[OffPeriod]:
        """List the periods of a project with these folders."""
        return [OffPeriod(each, since, until) for each in dict.fromkeys(folders) for since, until in self.spans]

    def list_last_periods(self) -> list[OffPeriod]:
        """List the periods of a deleted project."""
        return self.with_switch(off=False, at=self.deleted_at or 0).list_periods(self.folders)


DEFAULT_PROJECT = "default"
MAX_POINTER_BYTES = 10_000  # of a file in which git names a folder; paths are shorter


# Files and folders that make a folder a project, besides a repository of git.
PROJECT_MARKERS = (
    *(".hg", ".svn", ".jj", ".project", ".idea", ".vscode", "AGENTS.md", "CLAUDE.md", "GEMINI.md", "memory-bank"),
    *("Makefile", "CMakeLists.txt", "pyproject.toml", "setup.py", "requirements.txt", "package.json", "deno.json"),
    *("tsconfig.json", "Cargo.toml", "go.mod", "pom.xml", "build.gradle", "build.gradle.kts", "build.sbt", "Gemfile"),
    *("composer.json", "mix.exs", "Package.swift", "pubspec.yaml", "stack.yaml", "flake.nix"),
)
# Folders for everything, where such a file says nothing.
SHARED_FOLDERS = tuple(map(Path, ("/tmp", "/var/tmp", "/private/tmp", "/private/var/tmp")))


class WorkspaceInfo(NamedTuple):
    """Workspace of a project: its key, its name, and the file that makes it a project.

    Without a marker, it is any folder. It has a project only if a person or a memory bank linked one to it.
    """

    key: str
    name: str
    marker: str = ""


def find_workspace(folder: Path) -> WorkspaceInfo | None:
    """Return the workspace of a folder: its repository, the folder with a marker around it, or the folder itself.

    Return None for the home folder and the root.
    """
    found = _find_root(folder.resolve())
    return None if found is None else build_workspace(*found)


def find_workspace_root(folder: Path) -> Path | None:
    """Return the real path of the workspace."""
    found = _find_root(folder.resolve())
    return None if found is None else found[0]


def _find_root(folder: Path) -> tuple[Path, str] | None:
    """Return the root of the workspace and its marker."""
    general = (Path.home().resolve(), Path(folder.anchor))
    checkout = find_checkout(folder)
    root = None if checkout is None else _find_main_checkout(checkout)
    if root is not None and root not in general:
        return root, ".git"
    for place in (folder, *folder.parents):
        if place in general or place in SHARED_FOLDERS:
            break
        for marker in PROJECT_MARKERS:
            if (place / marker).exists():
                return place, marker
    return None if folder in general else (folder, "")


def find_workspace_key(folder: str) -> str | None:
    """Return the key of a folder's project, or None if it is unknown. The folder may be a worktree or a link."""
    if not Path(folder).is_absolute():  # of another machine or another system
        return None
    try:
        home = find_workspace(Path(folder))
    except (OSError, RuntimeError, ValueError):  # circular links, or an impossible name
        return None
    return None if home is None else home.key


def build_workspace(folder: Path, marker: str = "") -> WorkspaceInfo:
    """Return the workspace of the folder only, ignoring its parents."""
    return WorkspaceInfo(encode_path(folder), to_project_name(folder.name), marker)


def to_project_name(name: str) -> str:
    """Turn a folder's name into a valid project name."""
    shown = "".join(c if c.isprintable() and c not in "/\\" else "-" for c in name)
    shown = shown.strip()[: MAX_PROJECT_NAME_CHARACTERS - 6].strip() or DEFAULT_PROJECT
    return shown if shown not in RESERVED_NAMES else "-".join(filter(None, (shown.strip(".@"), "project")))


def encode_path(root: Path) -> str:
    """Return the path as text, even if its bytes are not valid text."""
    return os.fsencode(root).decode("utf-8", "backslashreplace")


def find_checkout(folder: Path) -> Path | None:
    """Return the real path of the git root around a folder, or None."""
    folder = folder.resolve()
    return next((p for p in (folder, *folder.parents) if (p / ".git").exists()), None)


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


def build_project_error(name: str) -> NotFound:
    """Build the same error for a project that does not exist and one that is hidden from the account."""
    readable = name.encode("utf-8", "replace").decode()
    return NotFound("project", readable, hint="List projects with list_projects, or create one with create_project.")
