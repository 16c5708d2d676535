"""Comparison of paths as text, from any machine, and rules that name folders."""

import posixpath
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

Parts = tuple[str, ...]  # names in a path, after `/` if it begins at the root


def is_windows(path: str) -> bool:
    """Return whether a path begins with a Windows drive or server."""
    has_drive = path[1:3] in (":\\", ":/") and path[0].isascii() and path[0].isalpha()
    return has_drive or path.startswith("\\\\")


def is_absolute(path: str) -> bool:
    return path.startswith("/") or is_windows(path)


def split_exact(path: str, *, as_windows: bool | None = None) -> Parts:
    """Return the parts of a path as its machine compares them: on Windows without case.

    `as_windows` is for a name that does not show which machine it is from.
    """
    root = "//" if path.startswith("\\\\") else "/"
    if is_windows(path) if as_windows is None else as_windows:
        path = path.replace("\\", "/").lower()
    names = tuple(name for name in path.split("/") if name)
    return (root, *names) if path.startswith("/") else names


def split_loose(path: str) -> Parts:
    """Return the parts of a path for a search, ignoring case and separator style.

    `~` is an unknown folder here, so only the names after it count.
    """
    plain = path.strip().lower().replace("\\", "/")
    names = tuple(name for name in plain.split("/") if name not in ("", "."))
    if plain.startswith("/"):
        return ("/", *names) if names else ()
    return names[1:] if names[:1] == ("~",) else names


def strip_root(parts: Parts) -> Parts:
    """Return parts without the root."""
    return parts[1:] if parts[:1] in (("/",), ("//",)) else parts


def is_whole(parts: Parts) -> bool:
    """Return whether loose parts begin at the root or at a drive."""
    first = parts[0]
    return first == "/" or (len(first) == 2 and first[1] == ":" and "a" <= first[0] <= "z")


def starts_with(parts: Parts, above: Parts) -> bool:
    """Return whether parts are those of a folder or of something in it."""
    return bool(above) and parts[: len(above)] == above


def ends_with(parts: Parts, last: Parts) -> bool:
    return bool(last) and parts[-len(last) :] == last


def is_within(folder: str | None, others: Iterable[str]) -> bool:
    """Return whether a folder is one of the others or inside one, without wildcards.

    The root never contains a folder here.
    """
    parts = split_exact(folder or "")
    return any(strip_root(above) and starts_with(parts, above) for above in map(split_exact, others))


class FolderExclusion:
    """Excluded folders with their contents.

    A pattern is a folder. In it, `*` and `?` match characters of one name, `**` matches any names, and `~` is the home
    folder. A pattern that does not begin at the root matches folders of that name anywhere.
    """

    def __init__(self, patterns: Sequence[str], *, home: Path | None = None) -> None:
        self.patterns = tuple(dict.fromkeys(p.strip() for p in patterns if p.strip()))
        self._forms = [(p, _expand_home(p, home)) for p in self.patterns]
        self.pattern_of = lru_cache(4_096)(self._find_folder_pattern)

    def _find_folder_pattern(self, folder: str) -> str | None:
        """Return the pattern that excludes a folder. An unknown folder is included."""
        if not folder:
            return None
        path, on_windows = _normalize_folder(folder), is_windows(folder)
        return next((pattern for pattern, form in self._forms if _compile_pattern(form, on_windows).match(path)), None)

    def is_excluded(self, folder: str | None) -> bool:
        return self.pattern_of(folder or "") is not None

    def find_pattern(self, files: Iterable[str], project: str | None) -> str | None:
        """Return the pattern that excludes the folder of one of these files."""
        if not self.patterns:
            return None
        found = (self.pattern_of(_get_folder(file, project or "")) for file in files)
        return next(filter(None, found), None)


def _get_folder(file: str, project: str) -> str:
    """Return the folder of a file. A relative one is inside its project."""
    path = _expand_home(file.removeprefix("file://"), None)
    on_windows = is_windows(path) or is_windows(project)
    if not is_absolute(path):
        path = f"{project.rstrip('/')}/{path}"
    if on_windows:
        path = path.replace("\\", "/")
    return posixpath.normpath(path).rpartition("/")[0]


def _expand_home(pattern: str, home: Path | None) -> str:
    if pattern != "~" and not pattern.startswith(("~/", "~\\")):
        return pattern
    return str(home or Path.home()) + pattern[1:]


def _normalize_folder(folder: str) -> str:
    """Return the folder with slashes only; for Windows, where case does not matter, in lower case."""
    if is_windows(folder):
        folder = folder.replace("\\", "/").lower()
    return folder.rstrip("/") or "/"


@lru_cache(1_024)
def _compile_pattern(pattern: str, on_windows: bool) -> re.Pattern[str]:
    path = _normalize_folder(pattern)
    anywhere = "" if is_absolute(pattern) else r"(?:.*/)?"
    below = ".*" if path == "/" else r"(?:/.*)?\Z"
    flags = re.DOTALL | (re.IGNORECASE if on_windows else 0)
    return re.compile(f"{anywhere}{_translate_glob(path)}{below}", flags)


def _translate_glob(path: str) -> str:
    signs = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*+|\*|\?)", path)
    return "".join(signs.get(part[:2], re.escape(part)) for part in parts)
