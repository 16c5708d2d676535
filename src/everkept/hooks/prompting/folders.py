"""Which conversations are this project's: those that were led in its folder, or below it."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from everkept.app.workspaces import checkout_of, workspace_of
from everkept.core.paths import Parts, loose_parts, starts_with


class Folders(NamedTuple):
    """The folders of a project, each as its parts; `alone` where what lies below is no part."""

    roots: tuple[Parts, ...]
    alone: bool = False

    @classmethod
    def around(cls, folder: Path | None) -> "Folders":
        """The repository of a folder, with its main checkout; the home folder only by itself."""
        if folder is None:
            return cls(())
        workspace = workspace_of(folder)
        if workspace is None:
            return cls((loose_parts(str(folder)), loose_parts(str(folder.resolve()))), alone=True)
        # A conversation names its folder as it was typed, symbolic links and all.
        typed = next((p for p in (folder, *folder.parents) if (p / ".git").exists()), folder)
        places = (workspace, checkout_of(folder) or workspace, typed)
        return cls(tuple(dict.fromkeys(loose_parts(str(place)) for place in places)))

    def among(self, scopes: Iterable[str]) -> tuple[str, ...]:
        """The folders of conversations that belong to the project."""
        return tuple(dict.fromkeys(scope for scope in scopes if self._holds(loose_parts(scope))))

    def _holds(self, parts: Parts) -> bool:
        if self.alone:
            return bool(parts) and parts in self.roots
        return any(starts_with(parts, root) for root in self.roots)
