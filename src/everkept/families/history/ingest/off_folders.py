"""Folders whose projects are or were switched off: what is said there stays there."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from everkept.core.paths import is_within
from everkept.core.projects import Silence

# The folder that a project knows this one by, as with a worktree; None where nobody can tell.
Workspace = Callable[[str], str | None]

MOST_KEPT = 4_096  # folders of which it is known where they lie


class Quiet:
    """What silences mean for folders as conversations name them."""

    def __init__(
        self, silences: Sequence[Silence] = (), workspace: Workspace = lambda folder: None
    ) -> None:
        self.silences = tuple(silences)
        self.off = tuple(dict.fromkeys(s.folder for s in silences if s.until is None))
        self._workspace = workspace
        self._places = lru_cache(MOST_KEPT)(self._all_places)
        self._off_around = lru_cache(MOST_KEPT)(self._found_off_around)

    def switched_off(self, folder: str | None) -> str | None:
        """The folder that is off now in which this one lies."""
        return self._off_around(folder) if self.off else None

    def hidden(self, folders: Iterable[str]) -> frozenset[str]:
        """Those of them that are off now."""
        return frozenset(each for each in folders if self.switched_off(each) is not None)

    def covers(self, folder: str | None, at: int) -> bool:
        """Whether it was off there at that time."""
        return any(
            silence.since <= at
            and (silence.until is None or at < silence.until)
            and self._lies_in(folder, silence.folder)
            for silence in self.silences
        )

    def _found_off_around(self, folder: str | None) -> str | None:
        return next((off for off in self.off if self._lies_in(folder, off)), None)

    def _lies_in(self, folder: str | None, other: str) -> bool:
        return any(is_within(place, [other]) for place in self._places(folder or ""))

    def _all_places(self, folder: str) -> tuple[str, ...]:
        if not folder:
            return ()
        known = self._workspace(folder)
        return (folder,) if known is None else (folder, known)
