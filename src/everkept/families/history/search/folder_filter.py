"""Past conversations without those of folders whose project is turned off."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from everkept.core import questions
from everkept.core.records import Link, Match, Record, Where
from everkept.core.store import Answers, RecordStore, TableStore, Upkeeps
from everkept.families.history.ingest.off_folders import Quiet, Workspace
from everkept.families.history.model import CODE, CONVERSATION, SYMBOL, TURN, HistoryOptions
from everkept.values import Value, replace

if TYPE_CHECKING:  # an assistant's hooks look through this too, and load only what they use
    from everkept.core.ports import Library
    from everkept.core.projects import Silence
    from everkept.core.records import Batch, Change

KINDS = (CONVERSATION, TURN, CODE, SYMBOL)

# Answers that reveal nothing of the conversations: names, numbers over all records, and states.
PASSED = (
    questions.CountLive,
    questions.CountVectors,
    questions.GetStamp,
    questions.ListAuthors,
    questions.MeasureWords,
)


async def folders_of(store: RecordStore) -> frozenset[str]:
    """Return the folders of all stored conversations."""
    return frozenset([scope for kind in KINDS for scope in await store.scopes(kind)])


def without(store: RecordStore, folders: Collection[str], hidden: frozenset[str]) -> RecordStore:
    """Return the store without the conversations of the hidden ones of its folders."""
    if not hidden:
        return store
    shown = tuple(sorted(folder for folder in folders if folder not in hidden))
    return Discreet(store, shown, lambda scope: scope not in hidden)


class Discreet(TableStore):
    """Reads of a store that reach only the records of some scopes.

    A question that is missing in the table is refused: a new one must be thought about first.
    """

    def __init__(
        self, store: RecordStore, scopes: tuple[str, ...], is_shown: Callable[[str], bool]
    ) -> None:
        """`scopes` are the known ones that a question without scopes means."""
        self._store = store
        self._scopes = scopes
        self._is_shown = is_shown

    async def commit(self, batch: "Batch") -> "Change":
        raise NotImplementedError("Conversations are only read here.")

    def _pass(self, question: questions.Question[Any]) -> Awaitable[Any]:
        return self._store.ask(question)

    async def _filter(self, question: questions.Question[list[Any]]) -> list[Any]:
        """Ask for things with a scope; a limit counts the hidden ones too."""
        return [each for each in await self._store.ask(question) if self._is_shown(each.scope)]

    async def _narrow(
        self, question: questions.ScanRecords | questions.MatchWords | questions.MatchText
    ) -> list[Record] | list[Match]:
        meant = self._narrowed(question.where)
        return [] if meant is None else await self._store.ask(replace(question, where=meant))

    async def _find_near(self, question: questions.FindNear) -> list[Match]:
        meant = self._narrowed(question.where)
        if meant is None:
            return []
        known = [record.id for record in await self.get(question.also)] if question.also else ()
        return await self._store.ask(replace(question, where=meant, also=known))

    async def _find_links(self, question: questions.FindLinks) -> list[Link]:
        found = await self._store.ask(question)
        ends = {end for link in found for end in (link.source, link.target)}
        known = {record.id for record in await self.get(list(ends))} if ends else ends
        return [link for link in found if link.source in known and link.target in known]

    def _walk_links(self, question: questions.WalkLinks) -> "Awaitable[list[list[Link]]]":
        from everkept.core.fallback_answers import hop_by_hop

        return hop_by_hop(self.ask, question.ids, question.hops)

    async def _count_records(self, question: questions.CountRecords) -> int:
        if question.where == Where():  # the number that shares of words refer to
            return await self._store.ask(question)
        meant = self._narrowed(question.where)
        return 0 if meant is None else await self._store.how_many(meant)

    async def _list_scopes(self, question: questions.ListScopes) -> list[str]:
        return [scope for scope in await self._store.ask(question) if self._is_shown(scope)]

    def _narrowed(self, where: Where) -> Where | None:
        """Return None if nothing is left that the filter could mean."""
        wanted: Sequence[str] = where.scopes or self._scopes
        scopes = tuple(scope for scope in wanted if self._is_shown(scope))
        return replace(where, scopes=scopes) if scopes else None

    answers: ClassVar[Answers] = {
        **dict.fromkeys(PASSED, _pass),
        questions.GetRecords: _filter,
        questions.TallyRecords: _filter,
        questions.FindUnembedded: _filter,
        questions.ScanRecords: _narrow,
        questions.MatchWords: _narrow,
        questions.MatchText: _narrow,
        questions.FindNear: _find_near,
        questions.FindLinks: _find_links,
        questions.WalkLinks: _walk_links,
        questions.CountRecords: _count_records,
        questions.ListScopes: _list_scopes,
    }
    upkeeps: ClassVar[Upkeeps] = {}


class Reachable(Value):
    """What is there of the past to whoever asks now."""

    store: "RecordStore"
    whole: "RecordStore"  # with what may not be given out
    hidden: frozenset[str] = frozenset()  # folders

    async def stamp(self) -> object:
        """Another value once an answer may be another."""
        return await self.store.stamp(), self.hidden


async def reachable(library: "Library", options: HistoryOptions) -> Reachable:
    store = await library.history()
    quiet = _quiet(tuple(await library.silences()), options.workspace)
    if not quiet.off:
        return Reachable(store, store)
    from asyncio import to_thread

    folders = await folders_of(store)
    hidden = await to_thread(quiet.hidden, folders)
    return Reachable(without(store, folders, hidden), store, hidden)


async def project_off(library: "Library", options: HistoryOptions, folder: str) -> str | None:
    """The name of the project that a folder belongs to and that is off."""
    from asyncio import to_thread

    quiet = _quiet(tuple(await library.silences()), options.workspace)
    around = await to_thread(quiet.switched_off, folder)
    project = None if around is None else await library.project_of_workspace(around)
    return None if project is None else project.name


@lru_cache(8)
def _quiet(silences: "tuple[Silence, ...]", workspace: Workspace) -> Quiet:
    """Kept from call to call: it looks at each folder on the disk once."""
    return Quiet(silences, workspace)
