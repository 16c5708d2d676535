"""Which folder counts as the workspace: worktrees and subfolders of a repository are one."""

import os
from pathlib import Path
from typing import NamedTuple

from everkept.core.projects import PROJECT_NAME_LIMIT

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
