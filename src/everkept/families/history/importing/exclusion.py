"""Folders that a user excludes: what was said there is not to be kept."""

import posixpath
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")


class Exclusion:
    """Folders that are left out, with all below them.

    A pattern is a folder, in which `*` and `?` stand for any characters of one name and `**` for
    any names; `~` is the home folder. One that does not begin at the root means folders of that
    name anywhere.
    """

    def __init__(self, patterns: Sequence[str], *, home: Path | None = None) -> None:
        self.patterns = tuple(dict.fromkeys(p.strip() for p in patterns if p.strip()))
        self._forms = [(p, _at_home(p, home)) for p in self.patterns]
        self.pattern_of = lru_cache(4_096)(self._pattern_of)

    def _pattern_of(self, folder: str) -> str | None:
        """The pattern that leaves a folder out; one that nobody knows stays in."""
        if not folder:
            return None
        path, is_windows = _plain(folder), bool(_WINDOWS.match(folder))
        return next(
            (pattern for pattern, form in self._forms if _regex(form, is_windows).match(path)), None
        )

    def leaves_out(self, folder: str | None) -> bool:
        return self.pattern_of(folder or "") is not None

    def pattern_of_files(self, files: Iterable[str], project: str | None) -> str | None:
        """The pattern that leaves out the folder of one of these files."""
        if not self.patterns:
            return None
        found = (self.pattern_of(_folder_of(file, project or "")) for file in files)
        return next(filter(None, found), None)


def is_within(folder: str | None, others: Sequence[str]) -> bool:
    """Whether a folder is one of these or below one; no character stands for others."""
    path = _plain(folder) if folder else ""
    return any(
        path == other or path.startswith(f"{other}/") for other in map(_plain, others) if path
    )


def _folder_of(file: str, project: str) -> str:
    """Where a file lies; one that is not named from the root lies below its project."""
    path = _at_home(file.removeprefix("file://"), None)
    is_windows = bool(_WINDOWS.match(path) or _WINDOWS.match(project))
    if not path.startswith("/") and not _WINDOWS.match(path):
        path = f"{project.rstrip('/')}/{path}"
    if is_windows:
        path = path.replace("\\", "/")
    return posixpath.normpath(path).rpartition("/")[0]


def _at_home(pattern: str, home: Path | None) -> str:
    if pattern != "~" and not pattern.startswith(("~/", "~\\")):
        return pattern
    return str(home or Path.home()) + pattern[1:]


def _plain(folder: str) -> str:
    """With slashes alone; on Windows, whose file names know no case, without it."""
    if _WINDOWS.match(folder):
        folder = folder.replace("\\", "/").lower()
    return folder.rstrip("/") or "/"


@lru_cache(1_024)
def _regex(pattern: str, is_windows: bool) -> re.Pattern[str]:
    path = _plain(pattern)
    anywhere = "" if path.startswith("/") or _WINDOWS.match(pattern) else r"(?:.*/)?"
    below = ".*" if path == "/" else r"(?:/.*)?\Z"
    flags = re.DOTALL | (re.IGNORECASE if is_windows else 0)
    return re.compile(f"{anywhere}{_translated(path)}{below}", flags)


def _translated(path: str) -> str:
    signs = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*+|\*|\?)", path)
    return "".join(signs.get(part[:2], re.escape(part)) for part in parts)
