"""Sources of a search over all families, and the search that answers peers."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, cast
from weakref import ref

from everkept.core.answers import Edge, Node, SearchFinding, SearchFindings, SearchType, SectionHit, SectionSearch
from everkept.core.paths import is_windows, is_within
from everkept.core.peers import MAX_RESULTS, MEMORY_TYPES, PeerQuestion
from everkept.core.ports import Library, ProjectChoice, RecordStore, VectorIndexer
from everkept.core.projects import OffPeriod, Project, find_workspace_key
from everkept.core.records import RecordFilter
from everkept.core.secrets import mask_text
from everkept.core.sessions import Session, ToolCall
from everkept.core.text import compute_name_key
from everkept.core.times import Clock, LocalZone, parse_time
from everkept.errors import NoActiveProject, NotFound, Refused
from everkept.families.history.model import HistoryOptions
from everkept.families.history.off_folders import FilteredStore, read_folders
from everkept.families.history.search_answers import CODE_PART, CONVERSATIONS_PART, NO_HISTORY_CODE, UnifiedResult
from everkept.families.history.unified_search import UnifiedSearch
from everkept.families.memories.model import MEMORY, MEMORY_PROFILE, NOTHING_CODE, MemoryView, RecalledMemories
from everkept.families.memories.toolset import MemoryTools
from everkept.graph.entities import ENTITY, OBSERVATION, read_entities
from everkept.language.spellings import fold, split_tokens, stem
from everkept.language.telling_words import list_stems
from everkept.retrieval.excerpts import compute_coverage
from everkept.retrieval.profile import QueryFit, SearchPlace, SearchProfile
from everkept.retrieval.search import LANGUAGE_CODE, search, wait_for_embeddings
from everkept.settings import Settings
from everkept.tools.tool import ELSEWHERE_CODE, build_elsewhere_warning
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.families.bank.banks import BankRecords, Banks

MAX_OBSERVATIONS = 5  # per entity
MAX_RELATIONS = 5  # of the results, so that relations do not fill a page
ENTITY_PROFILE = SearchProfile(kinds=(ENTITY, OBSERVATION), merge_children=True)
NAME_SCORE = 0.95  # for an entity that the question names, and that has all its words
STATED_SCORE = 0.98  # for a relation that the question states except for one end
RELATION_FACTOR = 0.9  # factor from the score of an entity to that of its relations
# A hint; other sources may know an answer; the whole search says it.
_QUIET_CODES = frozenset({ELSEWHERE_CODE, NOTHING_CODE, LANGUAGE_CODE})
_VERB_PARTICLES = frozenset(("by", "for", "from", "in", "is", "of", "on", "to", "with"))
_OTHER_SCORE_PARTS = frozenset({"importance", "recency"})  # parts of a score that say nothing about relevance


class MemoryFinder:
    """Memories of the session, the project and the user. Each result counts as an access."""

    name = "memories"

    def __init__(self, memories: MemoryTools, choice: ProjectChoice, library: Library) -> None:
        self._memories = memories
        self._choice = choice
        self._library = library

    async def find(
        self, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int, *, all_projects: bool = False
    ) -> SearchFindings:
        found = cast(
            RecalledMemories,
            await self._memories.recall_memories(call, query, limit=limit, explain=True, all_projects=all_projects),
        )
        way: SearchType = "keyword" if found.strategy_used == "keyword" else "semantic"
        hits = [_build_memory_finding(memory, way) for memory in found.memories]
        hits.sort(key=lambda hit: -hit.score)
        told = found.warnings or ()
        hints = [warning.message for warning in told if warning.code == ELSEWHERE_CODE]
        return SearchFindings(hits, [each.message for each in told if each.code not in _QUIET_CODES], hints)

    async def get_stamp(self, call: ToolCall) -> object:
        project = await self._choice.open_to_read(call, None)
        user = await self._library.open_user_store()
        return (ref(project), await project.get_stamp(), await user.get_stamp(), call.session.id)


class GraphFinder:
    """Entities of the call's project or of all projects, and the relations between them."""

    name = "graph"

    def __init__(self, choice: ProjectChoice, library: Library, time_limit: float | None = None) -> None:
        self._choice = choice
        self._library = library
        self._time_limit = time_limit

    async def find(
        self, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int, *, all_projects: bool = False
    ) -> SearchFindings:
        from everkept.retrieval.other_projects import find_entity_elsewhere, open_all_projects

        if all_projects:
            return await search_graphs(await open_all_projects(self._library), query, ways, limit)
        store = await self._find_store(call)
        hits = [] if store is None else await search_graph(store, query, ways, limit)
        found = None if hits else await find_entity_elsewhere(self._library, store, query, self._time_limit)
        hints = [] if found is None else [build_elsewhere_warning(found.project, found.record.name).message]
        return SearchFindings(hits, hints=hints)

    async def get_stamp(self, call: ToolCall) -> object:
        store = await self._find_store(call)
        return None if store is None else (ref(store), await store.get_stamp())

    async def _find_store(self, call: ToolCall) -> RecordStore | None:
        try:
            return await self._choice.open_to_read(call, None)
        except NoActiveProject:
            return None


class BankFinder:
    """Sections of the files of the call's memory bank."""

    name = "bank"

    def __init__(self, sections: SectionSearch, banks: "Banks", records: "BankRecords") -> None:
        self._sections = sections
        self._banks = banks
        self._records = records

    async def find(
        self, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int, *, all_projects: bool = False
    ) -> SearchFindings:
        try:
            found = await self._sections.find_sections(call, query, limit)
        except NotFound:
            return SearchFindings([])
        return SearchFindings([_build_section_finding(hit) for hit in found.hits], found.notices)

    async def get_stamp(self, call: ToolCall) -> object:
        """Return a stamp of the files' state.

        Over a network, a listing takes as long as a search, so every moment has its own stamp.
        """
        from everkept.families.bank.section_records import list_searched_files

        try:
            bank = await self._banks.require_bank(call)
        except NotFound:
            return None
        if bank.files.is_remote:
            return object()
        files = await list_searched_files(bank)
        store = await self._records.open_to_read(bank)
        listed = tuple((info.path, info.size, info.modified_at) for info in files)
        return (bank.address, listed, ref(store), await store.get_stamp())


async def search_graph(store: RecordStore, query: str, ways: Sequence[SearchType], limit: int) -> list[SearchFinding]:
    """Find entities of one store, and their relations if requested or stated by the query, best first."""
    hits = (await search([SearchPlace(store)], query, ENTITY_PROFILE, limit=limit)).hits
    found = await read_entities(store, [hit.record.id for hit in hits])
    asked = list_stems(query)
    names = f" {compute_name_key(query)} | {' '.join(_list_words(query))} "
    findings = [
        SearchFinding(
            id=node.id,
            type=ENTITY,
            content=(text := _describe_entity(node)),
            score=_score_entity(node, text, names, asked),
            search_type="graph",
            title=node.name,
            at=node.updated_at,
        )
        for node in found.nodes
    ]
    edges = found.edges if "graph" in ways else [edge for edge in found.edges if _is_stated(edge, query)]
    findings += _build_relation_findings(edges, {each.id: each.score for each in findings}, query)
    findings.sort(key=lambda each: -each.score)
    return findings[:limit]


async def search_graphs(
    places: Sequence[tuple[Project, RecordStore]], query: str, ways: Sequence[SearchType], limit: int
) -> SearchFindings:
    """Find entities of several projects, each with the name of its project, best first."""

    async def search_one(project: Project, store: RecordStore) -> list[SearchFinding]:
        hits = await search_graph(store, query, ways, limit)
        return [replace(hit, project=project.name) for hit in hits]

    found = await asyncio.gather(*(search_one(project, store) for project, store in places))
    hits = [hit for hits in found for hit in hits]
    hits.sort(key=lambda hit: -hit.score)
    return SearchFindings(hits[:limit])


def compute_relevance(why: Mapping[str, float] | None) -> float:
    """Return how well a memory matches, without its importance and recency."""
    fit = sum(value for part, value in (why or {}).items() if part not in _OTHER_SCORE_PARTS)
    return min(max(fit, 0.0), 1.0)


def _build_memory_finding(memory: MemoryView, way: SearchType) -> SearchFinding:
    return SearchFinding(
        id=memory.id,
        type="memory",
        content=memory.content,
        score=compute_relevance(memory.why),
        search_type=way,
        project=memory.project,
        at=parse_time(memory.occurred_at or memory.created_at),
    )


def _describe_entity(node: Node) -> str:
    shown = (f"- {text}" for _, text, _ in node.leaves[:MAX_OBSERVATIONS])
    return "\n".join((f"{node.name} ({node.type})", *shown))


def _score_entity(entity: Node, text: str, names: str, asked: frozenset[str]) -> float:
    """Score an entity on a scale that is comparable between engines."""
    coverage = compute_coverage(asked, text)
    if coverage == 1.0 and f" {entity.name_key} " in names:
        return NAME_SCORE
    return QueryFit(None, coverage).compute_probability(1.0)


def _build_relation_findings(edges: Sequence[Edge], scores: dict[str, float], query: str) -> list[SearchFinding]:
    def score(edge: Edge) -> float:
        if _is_stated(edge, query):
            return STATED_SCORE
        return RELATION_FACTOR * max(scores.get(edge.source, 0.0), scores.get(edge.target, 0.0))

    telling = sorted(edges, key=lambda edge: (-score(edge), -edge.created_at))
    return [
        SearchFinding(
            id=edge.id,
            type="relation",
            content=f"{edge.source_name} {edge.verb} {edge.target_name}",
            score=score(edge),
            search_type="graph",
            title=edge.verb,
            at=edge.created_at,
        )
        for edge in telling[:MAX_RELATIONS]
    ]


def _list_words(query: str) -> list[str]:
    """Return the words of a question, without the marks around them."""
    return [word.strip(".,:;?!()\"'`") for word in compute_name_key(query).split()]


def _is_stated(edge: Edge, query: str) -> bool:
    """Return whether a question has the verb, and the source before it or the target after it."""
    verb = frozenset(map(stem, split_tokens(fold(edge.verb.replace("_", " ")).lower()))) - _VERB_PARTICLES
    words = _list_words(query)
    places = [place for place, word in enumerate(words) if stem(word) in verb]
    if not places or not verb <= {stem(word) for word in words}:
        return False
    before, after = (f" {' '.join(part)} " for part in (words[: places[0]], words[places[-1] + 1 :]))
    return f" {compute_name_key(edge.target_name)} " in after or f" {compute_name_key(edge.source_name)} " in before


def _build_section_finding(hit: SectionHit) -> SearchFinding:
    title = hit.file if hit.heading is None else f"{hit.file}: {hit.heading}"
    return SearchFinding(f"{hit.file}:{hit.line}", "section", hit.text, hit.score, "semantic", title)


async def map_project_folders(
    library: Library, projects: Sequence[Project], folders: Iterable[str]
) -> dict[str, Project]:
    """Map the folders that belong to one of the projects to that project.

    A folder that may also belong to another project, such as a repository inside another, is skipped unless that
    project is among them.
    """
    known = {project.id: project for project in projects}
    owners = _FolderOwners(library)
    inside = [place for each in projects for place in await library.list_workspaces(each)]
    if not inside:
        return {}
    found: dict[str, Project] = {}
    for folder, places in (await asyncio.to_thread(_map_folder_keys, folders)).items():
        if not any(is_within(place, inside) for place in places):
            continue
        around = [owner for place in places if (owner := await owners.find_owner(place)) is not None]
        if around and all(owner.id in known for owner in around):
            found[folder] = known[around[0].id]
    return found


class _FolderOwners:
    """The project of each folder: that of the innermost workspace around it."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: dict[str, Project | None] = {}

    async def find_owner(self, folder: str) -> Project | None:
        path: PurePath = (PureWindowsPath if is_windows(folder) else PurePosixPath)(folder)
        for place in (path, *path.parents):
            key = str(place)
            if key not in self._known:
                self._known[key] = await self._library.find_workspace_project(key)
            if (owner := self._known[key]) is not None:
                return owner
        return None


def _map_folder_keys(folders: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Map each folder's name in conversations to its names in projects, if they are known."""
    named = {folder: find_workspace_key(folder) for folder in folders if folder}
    return {folder: (folder,) if key is None or key == folder else (folder, key) for folder, key in named.items()}


SHARED_SCOPE = "project"  # peers see only project memories, not those of the user or a session
INCOMPLETE_WARNING = "Results are incomplete. Search again to find more."


def build_options(settings: Settings) -> HistoryOptions:
    return HistoryOptions(time_limit=settings.recall_time_limit, zone=LocalZone(), workspace=find_workspace_key)


class SharedFindings(Value):
    """Results, best first. `warnings` reveal nothing about data that is not shared."""

    results: list[SearchFinding]
    warnings: list[str]


class _GrantedProject(Value):
    project: Project
    store: RecordStore


class SharedSearch:
    """A search as the acting account. It only reads, and neither counts nor logs.

    It asks no peers, so that no question is forwarded from server to server.
    """

    def __init__(
        self, granted: Library, library: Library, indexing: VectorIndexer, clock: Clock, options: HistoryOptions
    ) -> None:
        """`granted` shows the projects the account may see. `library` holds the conversations, which are limited to
        these projects.
        """
        self._granted = granted
        self._library = library
        self._indexing = indexing
        self._clock = clock
        self._options = options

    async def search(self, question: PeerQuestion) -> SharedFindings:
        granted = await self._list_projects()
        folders = await self._map_folders(granted)
        wanted = question.types
        kept = not wanted or any(each in MEMORY_TYPES for each in wanted)
        finders = [self._build_memory_finder(granted), _SharedGraph(granted)] if kept else []
        past = cast(Library, _SharedHistory(self._library, folders))
        unified = UnifiedSearch(past, finders, self._indexing, self._clock, self._options)
        # Results are filtered afterwards, so ask for more than needed.
        most = MAX_RESULTS if wanted else question.limit
        call = ToolCall(Session(is_conversation=False, stateful=False), "peers_search")
        answer = await unified.search(call, question.query, limit=most)
        found = [_build_finding(result, folders) for result in answer.results]
        results = [each for each in found if each and (not wanted or each.type in wanted)]
        told = [each for each in answer.warnings or () if each.code != NO_HISTORY_CODE]
        return SharedFindings(results[: question.limit], [INCOMPLETE_WARNING] if told else [])

    async def _list_projects(self) -> list[_GrantedProject]:
        found: list[_GrantedProject] = []
        for project in await self._granted.list_projects("active"):
            try:
                opened, store = await self._granted.open(project.name)
            except (NotFound, Refused):  # archived or deleted in the meantime
                continue
            if not opened.is_off:
                found.append(_GrantedProject(opened, store))
        return found

    async def _map_folders(self, granted: Sequence[_GrantedProject]) -> Mapping[str, Project]:
        """Map the folders by their names in conversations."""
        if not granted:
            return {}
        past = await self._library.open_history_store()
        projects = [each.project for each in granted]
        return await map_project_folders(self._library, projects, await read_folders(past))

    def _build_memory_finder(self, granted: Sequence[_GrantedProject]) -> "_SharedMemories":
        return _SharedMemories(granted, self._indexing, self._clock, self._options)


class _SharedMemories:
    name = "memories"

    def __init__(
        self, granted: Sequence[_GrantedProject], indexing: VectorIndexer, clock: Clock, options: HistoryOptions
    ) -> None:
        self._granted = granted
        self._indexing = indexing
        self._clock = clock
        self._options = options

    async def find(
        self, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int, *, all_projects: bool = False
    ) -> SearchFindings:
        if not self._granted:
            return SearchFindings([])
        where = RecordFilter(kinds=(MEMORY,), scopes=(SHARED_SCOPE,))
        stores = [each.store for each in self._granted]
        await wait_for_embeddings(self._indexing, stores, self._options.time_limit)
        found = await search(
            [SearchPlace(each.store, where) for each in self._granted],
            query,
            MEMORY_PROFILE,
            limit=limit,
            embedder=self._indexing.embedder,
            now=self._clock(),
            zone=self._options.zone,
            time_limit=self._options.time_limit,
        )
        way: SearchType = "keyword" if found.strategy == "keyword" else "semantic"
        hits = [
            SearchFinding(
                id=hit.record.id,
                type="memory",
                content=hit.record.text,
                score=compute_relevance(hit.why),
                search_type=way,
                project=self._granted[hit.place].project.name,
                at=hit.record.effective_at,
            )
            for hit in found.hits
        ]
        hits.sort(key=lambda hit: -hit.score)
        return SearchFindings(hits, [notice.message for notice in found.notices])

    async def get_stamp(self, call: ToolCall) -> object:
        return object()  # no result is cached


class _SharedGraph:
    name = "graph"

    def __init__(self, granted: Sequence[_GrantedProject]) -> None:
        self._granted = granted

    async def find(
        self, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int, *, all_projects: bool = False
    ) -> SearchFindings:
        return await search_graphs([(each.project, each.store) for each in self._granted], query, ways, limit)

    async def get_stamp(self, call: ToolCall) -> object:
        return object()


class _SharedHistory:
    """The part of a library that a search over everything uses."""

    def __init__(self, library: Library, folders: Mapping[str, Project]) -> None:
        self._library = library
        self._folders = folders

    async def open_history_store(self) -> RecordStore:
        """Open the conversations of these folders, even if folders are added later."""
        store, folders = await self._library.open_history_store(), self._folders
        return FilteredStore(store, tuple(sorted(folders)), lambda scope: scope in folders)

    async def list_off_periods(self) -> list[OffPeriod]:
        return await self._library.list_off_periods()


def _build_finding(result: UnifiedResult, folders: Mapping[str, Project]) -> SearchFinding | None:
    """Build a finding that names its project instead of a folder. Return None if it has no project."""
    project = place = result.context.project_path or ""
    if result.found_in in (CONVERSATIONS_PART, CODE_PART):
        project = folders[place].name if place in folders else ""
    if not project:
        return None
    when = result.context.timestamp
    title = _strip_folder(result.file, place) if result.file else result.title
    return SearchFinding(
        id=result.id,
        type=result.type,
        content=mask_text(result.content)[0],
        score=result.relevance_score,
        search_type=result.search_type,
        title=None if title is None else mask_text(title)[0],
        project=project,
        at=None if when is None else parse_time(when),
    )


def _strip_folder(file: str, folder: str) -> str:
    """Return a file's path inside its project, without revealing the project's folder."""
    rest = file.removeprefix(folder)
    return rest.lstrip("/\\") if rest != file and rest[:1] in ("/", "\\") else file
