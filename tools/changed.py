"""Choose the tests that run in full because of what has changed.

Without a commit to compare with, or after changes in many folders, no tests run in full. A release runs everything in
full.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

EVERYTHING = ["--all"]
SOURCE = ("src", "everkept")
# More than this would take as long as everything, which is more than a run for each change may take.
MAX_FOLDERS = 4
# Folders of tests that check a folder of the source, besides its own.
PROMISES = {
    "api": ("integrations",),
    "core": ("contracts",),
    "engines": ("contracts", "journeys"),
    "files": ("contracts",),
    "transcripts": ("contracts",),
    "upstreams": ("contracts",),
}


def options_since_record(checkout: Path) -> list[str]:
    """Return the options of pytest for what has changed since the last commit on record."""
    tags = _git(checkout, "tag", "--points-at", "HEAD") or ""
    if any(tag.startswith("v") for tag in tags.split()):
        return EVERYTHING
    base = _last_on_record(checkout)
    changed = None if base is None else _git(checkout, "diff", "--name-only", base)
    return options_for((changed or "").splitlines())


def options_for(changed: Iterable[str]) -> list[str]:
    """Return the options of pytest for changed paths."""
    folders = {folder for path in changed for folder in _folders(Path(path).parts)}
    return [f"--all-of=tests/{folder}" for folder in sorted(folders)] if len(folders) <= MAX_FOLDERS else []


def _folders(parts: tuple[str, ...]) -> list[str]:
    """Return the folders of the tests that a path belongs to."""
    if parts[0] == "examples":
        return ["integrations"]
    if parts[:2] == ("tests", "support"):
        return []
    if parts[0] == "tests":
        return ["/".join(parts[1:-1][:2])] if len(parts) > 2 else []
    if parts[:2] != SOURCE or len(parts) < 4:
        return []
    return ["/".join(parts[2:-1][:2]), *PROMISES.get(parts[2], ())]


def _last_on_record(checkout: Path) -> str | None:
    """Return the commit where this branch left the main one, otherwise the previous commit."""
    head = _git(checkout, "rev-parse", "HEAD")
    left = _git(checkout, "merge-base", "HEAD", "origin/main")
    if left is not None and left != head:
        return left
    return _git(checkout, "rev-parse", "--verify", "--quiet", "HEAD~1")


def _git(checkout: Path, *arguments: str) -> str | None:
    """Return the output of git, or None if it fails or is missing."""
    try:
        done = subprocess.run(["git", *arguments], cwd=checkout, check=True, capture_output=True, encoding="utf-8")
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
