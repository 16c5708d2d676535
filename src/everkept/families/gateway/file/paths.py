"""Paths into the arguments of an upstream's tool, as a gateway's file writes them."""

import re
from collections.abc import Sequence

Path = tuple[str, ...]

_ESCAPED = re.compile(r"[\\.]")
_PART = re.compile(r"((?:[^\\.]|\\[\\.])*)(\.|\Z)", re.DOTALL)


def split_path(text: str) -> Path | None:
    """The keys of `search.text`; `\\.` is a dot in a key, and `\\\\` a backslash.

    None where a key is empty, or a backslash stands before anything else.
    """
    keys: list[str] = []
    at = 0
    while part := _PART.match(text, at):
        if not part[1]:
            return None
        keys.append(re.sub(r"\\(.)", r"\1", part[1]))
        if not part[2]:
            return tuple(keys) if part.end() == len(text) else None
        at = part.end()
    return None


def joined_path(keys: Sequence[str]) -> str:
    """The text that is split into these keys."""
    return ".".join(_ESCAPED.sub(r"\\\g<0>", key) for key in keys)


class Taken:
    """Paths with the lines that they stand in."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self._ways: dict[Path, Path] = {}  # what leads to one of them

    def add(self, path: Path, line: int) -> None:
        self.lines[path] = line
        for length in range(1, len(path)):
            self._ways.setdefault(path[:length], path)

    def met(self, path: Path) -> Path | None:
        """One of them that is the same path, leads to it, or goes on from it."""
        return self.filled(path) or self._ways.get(path)

    def filled(self, path: Path) -> Path | None:
        """One of them that is the same path, or leads to it."""
        starts = (path[:length] for length in range(1, len(path) + 1))
        return next((start for start in starts if start in self.lines), None)
