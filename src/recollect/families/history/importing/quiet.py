"""Folders whose projects are or were switched off: what is said there stays there."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from recollect.core.projects import Silence
from recollect.families.history.importing.exclusion import is_within

# The folder that a project knows this one by, as with a worktree; None where nobody can tell.
Workspace = Callable[[str], str | None]


class Quiet:
    """What silences mean for folders as conversations name them."""

    def __init__(
        self, silences: Sequence[Silence] = (), workspace: Workspace = lambda folder: None
    ) -> None:
        self.silences = tuple(silences)
        self.off = tuple(dict.fromkeys(s.folder for s in silences if s.until is None))
        self._workspace = workspace
        self._places = lru_cache(4_096)(self._all_places)

    def switched_off(self, folder: str | None) -> str | None:
        """The folder that is off now in which this one lies."""
        return next((off for off in self.off if self._lies_in(folder, off)), None)

    def covers(self, folder: str | None, at: int) -> bool:
        """Whether it was off there at that time."""
        return any(
            silence.since <= at
            and (silence.until is None or at < silence.until)
            and self._lies_in(folder, silence.folder)
            for silence in self.silences
        )

    def _lies_in(self, folder: str | None, other: str) -> bool:
        return any(is_within(place, [other]) for place in self._places(folder or ""))

    def _all_places(self, folder: str) -> tuple[str, ...]:
        if not folder:
            return ()
        known = self._workspace(folder)
        return (folder,) if known is None else (folder, known)
