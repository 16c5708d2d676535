"""Searches over all families: what each of them is asked, and what a peer is answered."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, cast
from weakref import ref

from everkept.core.answers import (
    Edge,
    Finding,
    Findings,
    Node,
    SearchType,
    SectionHit,
    SectionSearch,
)
from everkept.core.paths import is_windows, is_within
from everkept.core.peers import KEPT_TYPES, MOST_RESULTS, PeerQuestion
from everkept.core.ports import Indexing, Library, ProjectChoice, RecordStore
from everkept.core.projects import Project, Silence, key_of_workspace
from everkept.core.records import Where
from everkept.core.secrets import masked
from everkept.core.sessions import Call, Session
from everkept.core.text import normalised
from everkept.core.times import Clock, LocalZone, parsed
from everkept.errors import NoActiveProject, NotFound, Refused
from everkept.families.history.model import HistoryOptions
from everkept.families.history.off_folders import Discreet, folders_of
from everkept.families.history.search_answers import (
    CODE_PIECES,
    CONVERSATIONS,
    NO_HISTORY,
    UnifiedResult,
)
from everkept.families.history.unified_search import UnifiedSearch
from everkept.families.memories.model import MEMORIES, MEMORY, MemoryView, RecalledMemories
from everkept.families.memories.toolset import MemoryTools
from everkept.graph.entities import ENTITY, OBSERVATION
from everkept.graph.lookup import read_entities
from everkept.language.telling_words import stems
from everkept.retrieval.excerpts import coverage
from everkept.retrieval.profile import Place, Profile
from everkept.retrieval.search import search
from everkept.settings import Settings
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.families.bank.banks import BankRecords, Banks

SHOWN_OBSERVATIONS = 5  # of an entity
MOST_RELATIONS = 5  # of what was found, so that they do not fill a page alone
ENTITIES = Profile(kinds=(ENTITY, OBSERVATION), merge_children=True)
NAMED = 0.95  # score of an entity whose name stands in the question
BESIDE = 0.9  # what the score of an entity leaves for its relations
_BROUGHT_ALONG = frozenset({"importance", "recency"})  # parts of a score that are no relevance


class MemoryFinder:
    """What the session, the project and the user remember; each memory counts as given out."""

    name = "memories"

    def __init__(self, memories: MemoryTools, choice: ProjectChoice, library: Library) -> None:
        self._memories = memories
        self._choice = choice
        self._library = library

    async def find(
        self, call: Call, query: str, ways: Sequence[SearchType], limit: int
    ) -> Findings:
        found = cast(
            RecalledMemories,
            await self._memories.recall_memories(call, query, limit=limit, explain=True),
        )
        way: SearchType = "keyword" if found.strategy_used == "keyword" else "semantic"
        hits = [_memory(memory, way) for memory in found.memories]
        hits.sort(key=lambda hit: -hit.score)
        return Findings(hits, [warning.message for warning in found.warnings or ()])

    async def stamp(self, call: Call) -> object:
        project = await self._choice.to_read(call, None)
        user = await self._library.user()
        return (ref(project), await project.stamp(), await user.stamp(), call.session.id)


class GraphFinder:
    """Entities of the call's project, and the relations between them."""

    name = "graph"

    def __init__(self, choice: ProjectChoice) -> None:
        self._choice = choice

    async def find(
        self, call: Call, query: str, ways: Sequence[SearchType], limit: int
    ) -> Findings:
        store = await self._store(call)
        return Findings([] if store is None else await in_graph(store, query, ways, limit))

    async def stamp(self, call: Call) -> object:
        store = await self._store(call)
        return None if store is None else (ref(store), await store.stamp())

    async def _store(self, call: Call) -> RecordStore | None:
        try:
            return await self._choice.to_read(call, None)
        except NoActiveProject:
            return None


class BankFinder:
    """Sections of the files of the memory bank that the call means."""

    name = "bank"

    def __init__(self, sections: SectionSearch, banks: "Banks", records: "BankRecords") -> None:
        self._sections = sections
        self._banks = banks
        self._records = records

    async def find(
        self, call: Call, query: str, ways: Sequence[SearchType], limit: int
    ) -> Findings:
        try:
            found = await self._sections.sections(call, query, limit)
        except NotFound:
            return Findings([])
        return Findings([_section(hit) for hit in found.hits], found.notices)

    async def stamp(self, call: Call) -> object:
        """A listing of the files tells whether one has changed; over a network it takes as long as
        a search does, so that there every moment counts as another."""
        from everkept.families.bank.section_records import searched_files

        try:
            bank = await self._banks.existing(call)
        except NotFound:
            return None
        if bank.files.is_remote:
            return object()
        files = await searched_files(bank)
        store = await self._records.to_read(bank)
        listed = tuple((info.path, info.size, info.modified_at) for info in files)
        return (bank.address, listed, ref(store), await store.stamp())


async def in_graph(
    store: RecordStore, query: str, ways: Sequence[SearchType], limit: int
) -> list[Finding]:
    """Entities of one store, with their relations where these are asked for, best first."""
    hits = (await search([Place(store)], query, ENTITIES, limit=limit)).hits
    found = await read_entities(store, [hit.record.id for hit in hits])
    asked = stems(query)
    names = f" {normalised(query)} "
    way: SearchType = "graph" if "graph" in ways else "keyword"
    findings = [
        Finding(
            id=node.id,
            type=ENTITY,
            content=(text := _described(node)),
            score=_score(node, text, names, asked),
            search_type=way,
            title=node.name,
            at=node.updated_at,
        )
        for node in found.nodes
    ]
    if way == "graph":
        findings += _relations(found.edges, {each.id: each.score for each in findings})
    findings.sort(key=lambda each: -each.score)
    return findings[:limit]


def fit_of(why: Mapping[str, float] | None) -> float:
    """How well a memory fits alone: what is important to remember fits no better."""
    fit = sum(value for part, value in (why or {}).items() if part not in _BROUGHT_ALONG)
    return min(max(fit / MEMORIES.shares.relevance, 0.0), 1.0)


def _memory(memory: MemoryView, way: SearchType) -> Finding:
    return Finding(
        id=memory.id,
        type="memory",
        content=memory.content,
        score=fit_of(memory.why),
        search_type=way,
        at=parsed(memory.occurred_at or memory.created_at),
    )


def _described(node: Node) -> str:
    shown = (f"- {text}" for _, text, _ in node.leaves[:SHOWN_OBSERVATIONS])
    return "\n".join((f"{node.name} ({node.type})", *shown))


def _score(entity: Node, text: str, names: str, asked: frozenset[str]) -> float:
    """An engine's own figures say only what is better; this says how good."""
    if f" {entity.name_key} " in names:
        return NAMED
    return min(coverage(asked, text), NAMED)


def _relations(edges: Sequence[Edge], scores: dict[str, float]) -> list[Finding]:
    def score(edge: Edge) -> float:
        return BESIDE * max(scores.get(edge.source, 0.0), scores.get(edge.target, 0.0))

    telling = sorted(edges, key=lambda edge: (-score(edge), -edge.created_at))
    return [
        Finding(
            id=edge.id,
            type="relation",
            content=f"{edge.source_name} {edge.verb} {edge.target_name}",
            score=score(edge),
            search_type="graph",
            title=edge.verb,
            at=edge.created_at,
        )
        for edge in telling[:MOST_RELATIONS]
    ]


def _section(hit: SectionHit) -> Finding:
    title = hit.file if hit.heading is None else f"{hit.file}: {hit.heading}"
    return Finding(f"{hit.file}:{hit.line}", "section", hit.text, hit.score, "semantic", title)


async def folders_of_projects(
    library: Library, projects: Sequence[Project], folders: Iterable[str]
) -> dict[str, Project]:
    """Those of the folders that lie in one of these projects, with it.

    One that may belong to another project as well, such as a repository inside of another, is left
    out unless that is among them too.
    """
    known = {project.id: project for project in projects}
    owners = _Owners(library)
    inside = [place for each in projects for place in await library.workspaces_of(each)]
    if not inside:
        return {}
    found: dict[str, Project] = {}
    for folder, places in (await asyncio.to_thread(_places, folders)).items():
        if not any(is_within(place, inside) for place in places):
            continue
        around = [owner for place in places if (owner := await owners.of(place)) is not None]
        if around and all(owner.id in known for owner in around):
            found[folder] = known[around[0].id]
    return found


class _Owners:
    """Whose each folder is: that of the innermost workspace around it."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: dict[str, Project | None] = {}

    async def of(self, folder: str) -> Project | None:
        path: PurePath = (PureWindowsPath if is_windows(folder) else PurePosixPath)(folder)
        for place in (path, *path.parents):
            key = str(place)
            if key not in self._known:
                self._known[key] = await self._library.project_of_workspace(key)
            if (owner := self._known[key]) is not None:
                return owner
        return None


def _places(folders: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Each folder as conversations name it, and as its project does, where that can be told."""
    named = {folder: key_of_workspace(folder) for folder in folders if folder}
    return {
        folder: (folder,) if key is None or key == folder else (folder, key)
        for folder, key in named.items()
    }


SHARED_SCOPE = "project"  # of memories: what the user or a session keeps stays here
NOT_ALL = "Not everything could be searched; asking again may find more."


def options_of(settings: Settings) -> HistoryOptions:
    return HistoryOptions(
        time_limit=settings.recall_time_limit, zone=LocalZone(), workspace=key_of_workspace
    )


class Shared(Value):
    """What was found, best first. `warnings` tell nothing of what is not shared."""

    results: list[Finding]
    warnings: list[str]


class _Granted(Value):
    project: Project
    store: RecordStore


class SharedSearch:
    """Searches as whoever is acting may: only reads, counts nothing and notes nothing.

    Nobody else is asked, so that no question goes on from server to server.
    """

    def __init__(
        self,
        granted: Library,
        library: Library,
        indexing: Indexing,
        clock: Clock,
        options: HistoryOptions,
    ) -> None:
        """`granted` shows the projects that the one who is acting may see, and `library` has the
        past conversations, of which those are shown that were held in these projects."""
        self._granted = granted
        self._library = library
        self._indexing = indexing
        self._clock = clock
        self._options = options

    async def search(self, question: PeerQuestion) -> Shared:
        granted = await self._projects()
        folders = await self._folders(granted)
        wanted = question.types
        kept = not wanted or any(each in KEPT_TYPES for each in wanted)
        finders = [self._memories(granted), _SharedGraph(granted)] if kept else []
        past = cast(Library, _SharedPast(self._library, folders))
        unified = UnifiedSearch(past, finders, self._indexing, self._clock, self._options)
        # What is not wanted is left out afterwards, so that there must be enough.
        most = MOST_RESULTS if wanted else question.limit
        call = Call(Session(is_conversation=False, stateful=False), "peers_search")
        answer = await unified.search(call, question.query, limit=most)
        found = [_finding(result, folders) for result in answer.results]
        results = [each for each in found if each and (not wanted or each.type in wanted)]
        told = [each for each in answer.warnings or () if each.code != NO_HISTORY]
        return Shared(results[: question.limit], [NOT_ALL] if told else [])

    async def _projects(self) -> list[_Granted]:
        found: list[_Granted] = []
        for project in await self._granted.projects("active"):
            try:
                opened, store = await self._granted.open(project.name)
            except (NotFound, Refused):  # archived or deleted meanwhile
                continue
            if not opened.is_off:
                found.append(_Granted(opened, store))
        return found

    async def _folders(self, granted: Sequence[_Granted]) -> Mapping[str, Project]:
        """By the names that conversations have for them."""
        if not granted:
            return {}
        past = await self._library.history()
        projects = [each.project for each in granted]
        return await folders_of_projects(self._library, projects, await folders_of(past))

    def _memories(self, granted: Sequence[_Granted]) -> "_SharedMemories":
        return _SharedMemories(granted, self._indexing, self._clock, self._options)


class _SharedMemories:
    name = "memories"

    def __init__(
        self,
        granted: Sequence[_Granted],
        indexing: Indexing,
        clock: Clock,
        options: HistoryOptions,
    ) -> None:
        self._granted = granted
        self._indexing = indexing
        self._clock = clock
        self._options = options

    async def find(
        self, call: Call, query: str, ways: Sequence[SearchType], limit: int
    ) -> Findings:
        if not self._granted:
            return Findings([])
        where = Where(kinds=(MEMORY,), scopes=(SHARED_SCOPE,))
        found = await search(
            [Place(each.store, where) for each in self._granted],
            query,
            MEMORIES,
            limit=limit,
            embedder=self._indexing.embedder,
            now=self._clock(),
            zone=self._options.zone,
            time_limit=self._options.time_limit,
        )
        way: SearchType = "keyword" if found.strategy == "keyword" else "semantic"
        hits = [
            Finding(
                id=hit.record.id,
                type="memory",
                content=hit.record.text,
                score=fit_of(hit.why),
                search_type=way,
                project=self._granted[hit.place].project.name,
                at=hit.record.at,
            )
            for hit in found.hits
        ]
        hits.sort(key=lambda hit: -hit.score)
        return Findings(hits, [notice.message for notice in found.notices])

    async def stamp(self, call: Call) -> object:
        return object()  # nothing is kept of what was found


class _SharedGraph:
    name = "graph"

    def __init__(self, granted: Sequence[_Granted]) -> None:
        self._granted = granted

    async def find(
        self, call: Call, query: str, ways: Sequence[SearchType], limit: int
    ) -> Findings:
        async def in_project(each: _Granted) -> list[Finding]:
            hits = await in_graph(each.store, query, ways, limit)
            return [replace(hit, project=each.project.name) for hit in hits]

        found = await asyncio.gather(*map(in_project, self._granted))
        hits = [hit for hits in found for hit in hits]
        hits.sort(key=lambda hit: -hit.score)
        return Findings(hits[:limit])

    async def stamp(self, call: Call) -> object:
        return object()


class _SharedPast:
    """Of a library, what a search over everything asks it for."""

    def __init__(self, library: Library, folders: Mapping[str, Project]) -> None:
        self._library = library
        self._folders = folders

    async def history(self) -> RecordStore:
        """The conversations of these folders, also if other folders are added later."""
        store, folders = await self._library.history(), self._folders
        return Discreet(store, tuple(sorted(folders)), lambda scope: scope in folders)

    async def silences(self) -> list[Silence]:
        return await self._library.silences()


def _finding(result: UnifiedResult, folders: Mapping[str, Project]) -> Finding | None:
    """Named by its project, whatever that is called on the disk; None for what has none."""
    project = place = result.context.project_path or ""
    if result.found_in in (CONVERSATIONS, CODE_PIECES):
        project = folders[place].name if place in folders else ""
    if not project:
        return None
    when = result.context.timestamp
    title = _inside(result.file, place) if result.file else result.title
    return Finding(
        id=result.id,
        type=result.type,
        content=masked(result.content)[0],
        score=result.relevance_score,
        search_type=result.search_type,
        title=None if title is None else masked(title)[0],
        project=project,
        at=None if when is None else parsed(when),
    )


def _inside(file: str, folder: str) -> str:
    """A file's name as it is inside its project: where that lies is nobody else's matter."""
    rest = file.removeprefix(folder)
    return rest.lstrip("/\\") if rest != file and rest[:1] in ("/", "\\") else file
