"""Dialect of the official memory server: its file format, and its nine tools with their rules."""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, cast

from everkept.core.commits import note_touched
from everkept.core.mcp import encode
from everkept.core.ports import ProjectChoice, RecordStore
from everkept.core.records import RecordFilter
from everkept.core.sessions import ToolCall
from everkept.core.times import Clock
from everkept.errors import InvalidInput, NotFound
from everkept.families.graph.graph import JSON, Graph
from everkept.families.graph.model import (
    BATCH_LIMIT,
    TEXT_LIMIT,
    NewEntity,
    NewObservations,
    ObservationDeletion,
    RelationSpec,
)
from everkept.families.graph.toolset import SEARCH_PROFILE
from everkept.graph.entities import ENTITY, MAX_NAME_CHARACTERS, ExactNameIdentity, check_name, is_stub, read_entities
from everkept.retrieval.candidates import find_page_by_tiers
from everkept.retrieval.profile import SearchPlace
from everkept.tools.schema import Field, parse_value, to_json
from everkept.tools.tool import Effect, ToolFamily, ToolResult, tool
from everkept.values import Value

_ENTITY_KEYS = ("name", "entityType", "observations")
_RELATION_KEYS = ("from", "to", "relationType")


class UnreadableLine(Value):
    """Line that could not be imported, and the reason."""

    line: int
    reason: str


ParsedItem = NewEntity | RelationSpec | UnreadableLine


def parse_lines(lines: Iterable[str]) -> Iterator[tuple[int, ParsedItem]]:
    """Yield the items of each line with its number. Skip empty lines, other types, and keys that forks add."""
    for number, line in enumerate(lines, start=1):
        text = line.strip().lstrip("\ufeff")
        if text:
            for parsed in _parse_line(number, text):
                yield number, parsed


def _parse_line(number: int, text: str) -> list[ParsedItem]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [UnreadableLine(number, f"not JSON: {error}")]
    if not isinstance(value, dict):
        return [UnreadableLine(number, "not an object")]
    entry = cast(dict[str, Any], value)
    try:
        if entry.get("type") == "entity":
            return [*_parse_entities(entry)]
        if entry.get("type") == "relation":
            return [_parse_relation(entry)]
    except InvalidInput as error:
        return [UnreadableLine(number, str(error))]
    return []


def _parse_entities(entry: dict[str, Any]) -> list[NewEntity]:
    """Return one entity, in several pieces if it has more observations than one call allows."""
    wanted = {key: entry[key] for key in _ENTITY_KEYS if key in entry}
    texts = wanted.get("observations", [])
    if isinstance(texts, list):
        kept = [text for text in cast(list[Any], texts) if not isinstance(text, str) or text.strip()]
        pieces = [kept[i : i + BATCH_LIMIT] for i in range(0, len(kept), BATCH_LIMIT)] or [[]]
    else:
        pieces = [texts]
    entities = [parse_value(NewEntity, wanted | {"observations": piece}) for piece in pieces]
    check_name(entities[0].name, "name")
    check_name(entities[0].entity_type, "entityType")
    return entities


def _parse_relation(entry: dict[str, Any]) -> RelationSpec:
    wanted = {key: entry[key] for key in _RELATION_KEYS if key in entry}
    relation = parse_value(RelationSpec, wanted)
    for name in (relation.from_, relation.to, relation.relation_type):
        check_name(name, "relation")
    return relation


log = logging.getLogger(__name__)

MAX_MATCHES = 1_000_000  # that server has no limits

Name = Annotated[str, Field(max_length=MAX_NAME_CHARACTERS, blank=False)]
EntityType = Annotated[
    str, Field("Such as person or service", "entityType", ("entity_type",), max_length=MAX_NAME_CHARACTERS, blank=False)
]
RelationType = Annotated[
    str,
    Field(
        "Active verb, such as depends_on",
        "relationType",
        ("relation_type",),
        max_length=MAX_NAME_CHARACTERS,
        blank=False,
    ),
]
OwnerName = Annotated[
    str,
    Field("Name of an existing entity", "entityName", ("entity_name",), max_length=MAX_NAME_CHARACTERS, blank=False),
]
Texts = Annotated[list[Annotated[str, Field(max_length=TEXT_LIMIT, blank=False)]], Field(max_items=BATCH_LIMIT)]


class ServerMemoryEntity(Value):
    name: Name
    entity_type: EntityType
    observations: Texts


class ServerMemoryRelation(Value):
    from_: Annotated[str, Field(name="from", max_length=MAX_NAME_CHARACTERS, blank=False)]
    to: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS, blank=False)]
    relation_type: RelationType

    def to_spec(self) -> RelationSpec:
        return RelationSpec(self.from_, self.to, self.relation_type)


class ObservationAddition(Value):
    entity_name: OwnerName
    contents: Texts


class ObservationRemoval(Value):
    entity_name: OwnerName
    observations: Texts


class AdditionResult(Value):
    entity_name: Annotated[str, Field(name="entityName")]
    added_observations: Annotated[list[str], Field(name="addedObservations")]


class NewEntities(Value):
    entities: list[ServerMemoryEntity]

    @property
    def sentence(self) -> str:
        return _encode_list(self.entities)


class NewRelations(Value):
    relations: list[ServerMemoryRelation]

    @property
    def sentence(self) -> str:
        return _encode_list(self.relations)


class AdditionResults(Value):
    results: list[AdditionResult]

    @property
    def sentence(self) -> str:
        return _encode_list(self.results)


class DeletionMessage(Value):
    success: bool
    message: str

    @property
    def sentence(self) -> str:
        return self.message


class ServerMemoryGraph(Value):
    entities: list[ServerMemoryEntity]
    relations: list[ServerMemoryRelation]


class ServerMemoryTools(ToolFamily):
    """Tools of that server. Exact names identify entities, and a relation may precede its ends."""

    def __init__(self, choice: ProjectChoice, clock: Clock, *, mask: bool = True) -> None:
        self._choice = choice
        self._clock = clock
        self._mask = mask

    @tool(Effect.REPEATABLE)
    async def create_entities(
        self, call: ToolCall, entities: Annotated[list[ServerMemoryEntity], Field(max_items=BATCH_LIMIT)]
    ) -> NewEntities:
        """Create entities in the knowledge graph. Existing names are skipped."""
        graph = self._build_graph(call)
        store = await self._choice.open_to_read(call, None)
        names = list(dict.fromkeys(entity.name for entity in entities))
        there = await ExactNameIdentity().resolve(store, names)
        wanted = {
            entity.name: NewEntity(entity.name, entity.entity_type, entity.observations)
            for entity in reversed(entities)
            if (known := there[entity.name]) is None or is_stub(known)
        }
        made = await graph.create_entities([wanted[name] for name in names if name in wanted])
        _log_masking(graph)
        return NewEntities(
            [
                ServerMemoryEntity(m.record.name or "", m.record.type or "", [item.text for item in m.observations])
                for m in made
                if m.is_new
            ]
        )

    @tool(Effect.REPEATABLE)
    async def create_relations(
        self, call: ToolCall, relations: Annotated[list[ServerMemoryRelation], Field(max_items=BATCH_LIMIT)]
    ) -> NewRelations:
        """Create relations between entities, with an active verb. Existing ones are skipped."""
        graph = self._build_graph(call)
        links, names = await graph.create_relations([relation.to_spec() for relation in relations], make_ends=True)
        _log_masking(graph)
        return NewRelations([ServerMemoryRelation(names[link.source], names[link.target], link.verb) for link in links])

    @tool(Effect.REPEATABLE)
    async def add_observations(
        self, call: ToolCall, observations: Annotated[list[ObservationAddition], Field(max_items=BATCH_LIMIT)]
    ) -> AdditionResults:
        """Add observations to existing entities."""
        store = await self._choice.open_to_read(call, None)
        names = list(dict.fromkeys(item.entity_name for item in observations))
        there = await ExactNameIdentity().resolve(store, names)
        for name, record in there.items():
            if record is None or is_stub(record):
                raise NotFound(ENTITY, name, message=f"Entity with name {name} not found")
        graph = self._build_graph(call)
        made = await graph.add_observations([NewObservations(item.entity_name, item.contents) for item in observations])
        _log_masking(graph)
        return AdditionResults(
            [AdditionResult(m.record.name or "", [record.text for record in m.observations]) for m in made]
        )

    @tool(Effect.DESTROYS)
    async def delete_entities(
        self,
        call: ToolCall,
        entity_names: Annotated[list[Name], Field(name="entityNames", aliases=("names",), max_items=BATCH_LIMIT)],
    ) -> DeletionMessage:
        """Delete entities with their relations."""
        await self._build_graph(call).delete_entities(entity_names)
        return DeletionMessage(True, "Entities deleted successfully")

    @tool(Effect.DESTROYS)
    async def delete_observations(
        self, call: ToolCall, deletions: Annotated[list[ObservationRemoval], Field(max_items=BATCH_LIMIT)]
    ) -> DeletionMessage:
        """Delete observations from entities."""
        await self._build_graph(call).delete_observations(
            [ObservationDeletion(item.entity_name, item.observations) for item in deletions], strict=False
        )
        return DeletionMessage(True, "Observations deleted successfully")

    @tool(Effect.DESTROYS)
    async def delete_relations(
        self, call: ToolCall, relations: Annotated[list[ServerMemoryRelation], Field(max_items=BATCH_LIMIT)]
    ) -> DeletionMessage:
        """Delete relations; the entities stay."""
        await self._build_graph(call).delete_relations([relation.to_spec() for relation in relations])
        return DeletionMessage(True, "Relations deleted successfully")

    @tool(view="graph")
    async def read_graph(self, call: ToolCall) -> Annotated[ToolResult, ServerMemoryGraph]:
        """Read the whole knowledge graph."""
        return ToolResult(await read_whole_graph(await self._choice.open_to_read(call, None)))

    @tool(view="graph")
    async def search_nodes(
        self, call: ToolCall, query: Annotated[str, Field("Words to search for", max_length=10_000)]
    ) -> Annotated[ToolResult, ServerMemoryGraph]:
        """Find entities by words in names, types and observations."""
        store = await self._choice.open_to_read(call, None)
        where = RecordFilter(kinds=SEARCH_PROFILE.kinds)
        matches = await store.match_text(query.strip(), where, MAX_MATCHES)
        ids = list(dict.fromkeys(match.parent or match.id for match in matches))
        if not ids:
            # That server would find nothing here, but words in another order or form may match.
            found = await find_page_by_tiers([SearchPlace(store)], query, SEARCH_PROFILE, 100, None)
            ids = [match.id for _, match in found.matches]
        return ToolResult(await _read_graph(store, ids))

    @tool()
    async def open_nodes(
        self, call: ToolCall, names: Annotated[list[Name], Field(max_items=BATCH_LIMIT)]
    ) -> Annotated[ToolResult, ServerMemoryGraph]:
        """Get entities by exact name, with observations and relations."""
        store = await self._choice.open_to_read(call, None)
        found = await ExactNameIdentity().resolve(store, list(dict.fromkeys(names)))
        return ToolResult(await _read_graph(store, [r.id for r in found.values() if r is not None]))

    def _build_graph(self, call: ToolCall) -> Graph:
        async def open_store() -> RecordStore:
            return await self._choice.open_to_write(call, None)

        return Graph(open_store, call, self._clock, ExactNameIdentity(), mask=self._mask)


def _log_masking(graph: Graph) -> None:
    # The results of that server have no field for a warning.
    if graph.masking.kinds:
        log.warning("masked before storing: %s", ", ".join(graph.masking.kinds))


async def read_whole_graph(store: RecordStore) -> JSON:
    """Return the whole graph in the form of ServerMemoryGraph."""
    return await _read_graph(store, None)


async def _read_graph(store: RecordStore, ids: Sequence[str] | None) -> JSON:
    """Return the entities, and every relation with at least one end among them."""
    found = await read_entities(store, ids)
    note_touched(node.id for node in found.nodes)
    return {
        "entities": [
            {"name": node.name, "entityType": node.type, "observations": [text for _, text, _ in node.leaves]}
            for node in found.nodes
            if not is_stub(node)
        ],
        "relations": [
            {"from": source, "to": target, "relationType": verb} for _, _, source, verb, _, target, _ in found.edges
        ],
    }


def _encode_list(values: Sequence[Any]) -> str:
    return encode(to_json(values))
