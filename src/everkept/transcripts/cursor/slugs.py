"""The folder that a name was made of by writing a dash for all that is no letter or digit."""

import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

_OTHER = re.compile(r"[^A-Za-z0-9]+")
_MOST_LOOKED_AT = 20_000  # names in one folder


@lru_cache(256)
def folder_of(slug: str) -> str | None:
    """The one folder of this machine that the name fits; None for no folder or several."""
    root, rest = _start(_OTHER.sub("-", slug).strip("-"))
    found = list(_fitting(root, rest)) if rest else []
    return found[0] if len(found) == 1 else None


def _start(name: str) -> tuple[Path, str]:
    if sys.platform == "win32":
        drive, _, rest = name.partition("-")
        return Path(f"{drive}:\\"), rest if len(drive) == 1 else ""
    return Path("/"), name


def _fitting(folder: Path, name: str) -> Iterator[str]:
    for entry in _names(folder):
        part = _OTHER.sub("-", entry).strip("-")
        path = folder / entry
        if not part or not (name + "-").startswith(part + "-") or not _is_folder(path):
            continue
        if part == name:
            yield str(path)
        else:
            yield from _fitting(path, name[len(part) + 1 :])


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, _MOST_LOOKED_AT)]
    except OSError:
        return []


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a folder above it that may not be looked into
        return False
