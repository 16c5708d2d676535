"""Which folder counts as the workspace: worktrees and subfolders of a repository are one."""

from pathlib import Path


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
