"""Which folder a session of Gemini CLI was in: its files name a hash or a short id of it."""

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from everkept.transcripts.limits import LARGEST_LIST
from everkept.transcripts.reading.fields import decoded, mapping
from everkept.transcripts.saying.turns import folder as bounded

# Written by the program into the folder of a project's sessions.
_OWNER = ".project_root"


class GeminiProjects:
    """Looks into the program's own lists once. Hashes lead to a folder only where it is known."""

    def __init__(self, home: Path, known: Iterable[str] = ()) -> None:
        self._home = home
        self._given = tuple(known)
        self._owners: dict[Path, str | None] = {}

    def folder(self, session: Path, project_hash: str) -> str | None:
        """Of the session in a file; None where nothing tells."""
        place = next((above for above in session.parents if above.name == "chats"), None)
        if place is None:
            return self._by_id.get(project_hash)
        by_name = self._owner(place.parent) or self._by_id.get(place.parent.name)
        return by_name or self._by_id.get(project_hash)

    def _owner(self, folder: Path) -> str | None:
        if folder not in self._owners:
            self._owners[folder] = bounded((_content(folder / _OWNER) or "").strip()) or None
        return self._owners[folder]

    @cached_property
    def _by_id(self) -> Mapping[str, str]:
        registered = mapping(_object(self._home / "projects.json").get("projects"))
        ids = dict[str, str]()
        folders = [*self._given, *_object(self._home / "trustedFolders.json")]
        for one, other in registered.items():
            if isinstance(other, str):
                folder, name = (one, other) if _is_path(one) else (other, one)
                ids[name] = folder
                folders.append(folder)
        return {hashlib.sha256(f.encode("utf-8", "replace")).hexdigest(): f for f in folders} | ids


def _is_path(text: str) -> bool:
    return "/" in text or "\\" in text


def _object(path: Path) -> Mapping[str, Any]:
    return decoded(_content(path))


def _content(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_LIST).decode("utf-8", "replace")
    except OSError:
        return None
