"""Worktrees of git, without git."""

import os
from pathlib import Path


def add_worktree(main: Path, tree: Path, *, relative: bool = False) -> None:
    """Make `tree` a worktree of the repository `main`, with the two pointers that git writes."""
    known = main / ".git" / "worktrees" / tree.name
    known.mkdir(parents=True)
    tree.mkdir(parents=True, exist_ok=True)
    marker = tree / ".git"
    there, back = (os.path.relpath(known, tree), os.path.relpath(marker, known)) if relative else (known, marker)
    marker.write_text(f"gitdir: {there}\n", encoding="utf-8")
    (known / "gitdir").write_text(f"{back}\n", encoding="utf-8")
