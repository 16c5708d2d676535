"""What a search over everything asks of each family: memories, the graph, the memory bank."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast
from weakref import ref

from everkept.core.ports import Library, ProjectChoice, RecordStore
from everkept.core.search_ports import Finding, Findings, SearchType, SectionHit, SectionSearch
from everkept.core.sessions import Call
from everkept.core.subgraphs import Edge, Node
from everkept.core.text import normalised
from everkept.core.times import parsed
from everkept.errors import NoActiveProject, NotFound
from everkept.families.memories.model import MEMORIES, MemoryView, RecalledMemories
from everkept.families.memories.toolset import MemoryTools
from everkept.graph.entities import ENTITY, OBSERVATION
from everkept.graph.lookup import read_entities
from everkept.language.telling_words import stems
from everkept.retrieval.excerpts import coverage
from everkept.retrieval.profile import Place, Profile
from everkept.retrieval.search import search

if TYPE_CHECKING:  # the bank's parts are loaded where it is offered
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
