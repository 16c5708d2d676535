"""Folders whose project is or was turned off, and a view of the history without their conversations."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from everkept.core import store as questions
from everkept.core.paths import is_within
from everkept.core.projects import OffPeriod
from everkept.core.records import Match, Record, RecordFilter, RecordLink
from everkept.core.store import Answers, RecordStore, TableStore, Upkeeps
from everkept.families.history.model import CODE, CONVERSATION, SYMBOL, TURN, HistoryOptions
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.core.ports import Library
    from everkept.core.records import Batch, Change

# Maps a folder, such as a worktree, to the folder of its project, or to None if it is unknown.
FindWorkspace = Callable[[str], str | None]

CACHED_FOLDERS = 4_096  # folders whose location is cached


class OffFolders:
    """Off periods, applied to the folders that conversations name."""

    def __init__(self, silences: Sequence[OffPeriod] = (), workspace: FindWorkspace = lambda folder: None) -> None:
        self.silences = tuple(silences)
        self.off = tuple(dict.fromkeys(s.folder for s in silences if s.until is None))
        self._workspace = workspace
        self._places = lru_cache(CACHED_FOLDERS)(self._list_locations)
        self._off_around = lru_cache(CACHED_FOLDERS)(self._search_off_folder)

    def find_off_folder(self, folder: str | None) -> str | None:
        """Return the folder that is off now and contains this one, or None."""
        return self._off_around(folder) if self.off else None

    def select_off(self, folders: Iterable[str]) -> frozenset[str]:
        return frozenset(each for each in folders if self.find_off_folder(each) is not None)

    def was_off(self, folder: str | None, at: int) -> bool:
        return any(
            silence.since <= at
            and (silence.until is None or at < silence.until)
            and self._is_inside(folder, silence.folder)
            for silence in self.silences
        )

    def _search_off_folder(self, folder: str | None) -> str | None:
        return next((off for off in self.off if self._is_inside(folder, off)), None)

    def _is_inside(self, folder: str | None, other: str) -> bool:
        return any(is_within(place, [other]) for place in self._places(folder or ""))

    def _list_locations(self, folder: str) -> tuple[str, ...]:
        if not folder:
            return ()
        known = self._workspace(folder)
        return (folder,) if known is None else (folder, known)


SCOPED_KINDS = (CONVERSATION, TURN, CODE, SYMBOL)

# Questions whose answers reveal nothing about conversations: names, totals and states.
UNFILTERED_QUESTIONS = (
    questions.CountLive,
    questions.CountVectors,
    questions.GetStamp,
    questions.ListAuthors,
    questions.MeasureWords,
)


async def read_folders(store: RecordStore) -> frozenset[str]:
    return frozenset([scope for kind in SCOPED_KINDS for scope in await store.list_scopes(kind)])


def hide_folders(store: RecordStore, folders: Collection[str], hidden: frozenset[str]) -> RecordStore:
    """Return the store without the conversations of the hidden folders."""
    if not hidden:
        return store
    shown = tuple(sorted(folder for folder in folders if folder not in hidden))
    return FilteredStore(store, shown, lambda scope: scope not in hidden)


class FilteredStore(TableStore):
    """View of a store that shows only some scopes. It refuses questions that are not in its table."""

    def __init__(self, store: RecordStore, scopes: tuple[str, ...], is_shown: Callable[[str], bool]) -> None:
        """Create the view. `scopes` are the scopes to search if a question names none."""
        self._store = store
        self._scopes = scopes
        self._is_shown = is_shown

    async def commit(self, batch: "Batch") -> "Change":
        raise NotImplementedError("This view of the history is read-only.")

    def _forward(self, question: questions.StoreQuestion[Any]) -> Awaitable[Any]:
        return self._store.ask(question)

    async def _filter(self, question: questions.StoreQuestion[list[Any]]) -> list[Any]:
        """Ask for items with a scope. The limit of the question also counts hidden ones."""
        return [each for each in await self._store.ask(question) if self._is_shown(each.scope)]

    async def _ask_narrowed(
        self, question: questions.ScanRecords | questions.MatchWords | questions.MatchText
    ) -> list[Record] | list[Match]:
        meant = self._narrow_where(question.where)
        return [] if meant is None else await self._store.ask(replace(question, where=meant))

    async def _find_near(self, question: questions.FindNear) -> list[Match]:
        meant = self._narrow_where(question.where)
        if meant is None:
            return []
        known = [record.id for record in await self.get(question.also)] if question.also else ()
        return await self._store.ask(replace(question, where=meant, also=known))

    async def _find_links(self, question: questions.FindLinks) -> list[RecordLink]:
        found = await self._store.ask(question)
        ends = {end for link in found for end in (link.source, link.target)}
        known = {record.id for record in await self.get(list(ends))} if ends else ends
        return [link for link in found if link.source in known and link.target in known]

    def _walk_links(self, question: questions.WalkLinks) -> "Awaitable[list[list[RecordLink]]]":
        from everkept.core.fallback_answers import walk_by_hops

        return walk_by_hops(self.ask, question.ids, question.hops)

    async def _count_records(self, question: questions.CountRecords) -> int:
        if question.where == RecordFilter():  # the total to which word shares refer
            return await self._store.ask(question)
        meant = self._narrow_where(question.where)
        return 0 if meant is None else await self._store.count_records(meant)

    async def _list_scopes(self, question: questions.ListScopes) -> list[str]:
        return [scope for scope in await self._store.ask(question) if self._is_shown(scope)]

    def _narrow_where(self, where: RecordFilter) -> RecordFilter | None:
        """Return the filter with only visible scopes, or None if none is left."""
        wanted: Sequence[str] = where.scopes or self._scopes
        scopes = tuple(scope for scope in wanted if self._is_shown(scope))
        return replace(where, scopes=scopes) if scopes else None

    answers: ClassVar[Answers] = {
        **dict.fromkeys(UNFILTERED_QUESTIONS, _forward),
        questions.GetRecords: _filter,
        questions.FindByPrefix: _filter,
        questions.TallyRecords: _filter,
        questions.FindUnembedded: _filter,
        questions.ScanRecords: _ask_narrowed,
        questions.MatchWords: _ask_narrowed,
        questions.MatchText: _ask_narrowed,
        questions.FindNear: _find_near,
        questions.FindLinks: _find_links,
        questions.WalkLinks: _walk_links,
        questions.CountRecords: _count_records,
        questions.ListScopes: _list_scopes,
    }
    upkeeps: ClassVar[Upkeeps] = {}


class VisibleHistory(Value):
    """The history that the caller may see."""

    store: "RecordStore"
    whole: "RecordStore"  # including hidden conversations
    hidden: frozenset[str] = frozenset()  # hidden folders

    async def read_stamp(self) -> object:
        """Return a value that changes whenever an answer may change."""
        return await self.store.get_stamp(), self.hidden


async def open_visible_history(library: "Library", options: HistoryOptions) -> VisibleHistory:
    store = await library.open_history_store()
    off_folders = _get_off_folders(tuple(await library.list_off_periods()), options.workspace)
    if not off_folders.off:
        return VisibleHistory(store, store)
    from asyncio import to_thread

    folders = await read_folders(store)
    hidden = await to_thread(off_folders.select_off, folders)
    return VisibleHistory(hide_folders(store, folders, hidden), store, hidden)


async def find_off_project(library: "Library", options: HistoryOptions, folder: str) -> str | None:
    """Return the name of the folder's project if it is off, otherwise None."""
    from asyncio import to_thread

    off_folders = _get_off_folders(tuple(await library.list_off_periods()), options.workspace)
    around = await to_thread(off_folders.find_off_folder, folder)
    project = None if around is None else await library.find_workspace_project(around)
    return None if project is None else project.name


@lru_cache(8)
def _get_off_folders(silences: "tuple[OffPeriod, ...]", workspace: FindWorkspace) -> OffFolders:
    """Return a cached instance, which checks each folder on disk once."""
    return OffFolders(silences, workspace)
