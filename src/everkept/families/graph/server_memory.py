"""The dialect of the official memory server: its file, and its nine tools with their rules."""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, cast

from everkept.core.commits import touched
from everkept.core.mcp import encode
from everkept.core.ports import ProjectChoice, RecordStore
from everkept.core.records import Link, Record, Where
from everkept.core.sessions import Call
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
from everkept.families.graph.toolset import SEARCH
from everkept.graph.entities import ENTITY, NAME_LIMIT, check_name, is_stub
from everkept.graph.lookup import ByExactName, read_entities
from everkept.retrieval.candidates import page_by_tiers
from everkept.retrieval.profile import Place
from everkept.tools.schema import Field, parse_value, to_json
from everkept.tools.tool import Effect, Family, Result, tool
from everkept.values import Value

_ENTITY_KEYS = ("name", "entityType", "observations")
_RELATION_KEYS = ("from", "to", "relationType")


class Unreadable(Value):
    """A line that could not be taken in, and why."""

    line: int
    reason: str


Parsed = NewEntity | RelationSpec | Unreadable


def parse_lines(lines: Iterable[str]) -> Iterator[tuple[int, Parsed]]:
    """What each line holds, with its number. Blank lines and objects of other types are passed
    over, and so are keys that forks of that server add.
    """
    for number, line in enumerate(lines, start=1):
        text = line.strip().lstrip("\ufeff")
        if text:
            for parsed in _parsed(number, text):
                yield number, parsed


def _parsed(number: int, text: str) -> list[Parsed]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [Unreadable(number, f"not JSON: {error}")]
    if not isinstance(value, dict):
        return [Unreadable(number, "not an object")]
    entry = cast(dict[str, Any], value)
    try:
        if entry.get("type") == "entity":
            return [*_entities(entry)]
        if entry.get("type") == "relation":
            return [_relation_spec(entry)]
    except InvalidInput as error:
        return [Unreadable(number, str(error))]
    return []


def _entities(entry: dict[str, Any]) -> list[NewEntity]:
    """One entity, in several pieces where it has more observations than a call may."""
    wanted = {key: entry[key] for key in _ENTITY_KEYS if key in entry}
    texts = wanted.get("observations", [])
    if isinstance(texts, list):
        kept = [text for text in cast(list[Any], texts) if not _is_blank(text)]
        pieces = [kept[i : i + BATCH_LIMIT] for i in range(0, len(kept), BATCH_LIMIT)] or [[]]
    else:
        pieces = [texts]
    entities = [parse_value(NewEntity, wanted | {"observations": piece}) for piece in pieces]
    check_name(entities[0].name, "name")
    check_name(entities[0].entity_type, "entityType")
    return entities


def _is_blank(text: Any) -> bool:
    return isinstance(text, str) and not text.strip()


def _relation_spec(entry: dict[str, Any]) -> RelationSpec:
    wanted = {key: entry[key] for key in _RELATION_KEYS if key in entry}
    relation = parse_value(RelationSpec, wanted)
    for name in (relation.from_, relation.to, relation.relation_type):
        check_name(name, "relation")
    return relation


log = logging.getLogger(__name__)

WHOLE = 1_000_000  # that server knows no limits

Name = Annotated[str, Field(max_length=NAME_LIMIT, blank=False)]
EntityType = Annotated[
    str,
    Field("E.g. person.", "entityType", ("entity_type",), max_length=NAME_LIMIT, blank=False),
]
RelationType = Annotated[
    str,
    Field("Active voice.", "relationType", ("relation_type",), max_length=NAME_LIMIT, blank=False),
]
Owner = Annotated[
    str, Field("Entity.", "entityName", ("entity_name",), max_length=NAME_LIMIT, blank=False)
]
Texts = Annotated[
    list[Annotated[str, Field(max_length=TEXT_LIMIT, blank=False)]], Field(max_items=BATCH_LIMIT)
]


class Entity(Value):
    name: Name
    entity_type: EntityType
    observations: Texts


class Relation(Value):
    from_: Annotated[str, Field(name="from", max_length=NAME_LIMIT, blank=False)]
    to: Annotated[str, Field(max_length=NAME_LIMIT, blank=False)]
    relation_type: RelationType

    def spec(self) -> RelationSpec:
        return RelationSpec(self.from_, self.to, self.relation_type)


class Additions(Value):
    entity_name: Owner
    contents: Texts


class Deletions(Value):
    entity_name: Owner
    observations: Texts


class Added(Value):
    entity_name: Annotated[str, Field(name="entityName")]
    added_observations: Annotated[list[str], Field(name="addedObservations")]


class NewEntities(Value):
    entities: list[Entity]

    @property
    def sentence(self) -> str:
        return _listed(self.entities)


class NewRelations(Value):
    relations: list[Relation]

    @property
    def sentence(self) -> str:
        return _listed(self.relations)


class Additional(Value):
    results: list[Added]

    @property
    def sentence(self) -> str:
        return _listed(self.results)


class Done(Value):
    success: bool
    message: str

    @property
    def sentence(self) -> str:
        return self.message


class KnowledgeGraph(Value):
    entities: list[Entity]
    relations: list[Relation]


class ServerMemoryTools(Family):
    """Entities are told apart by their exact name, and a relation may come before its ends."""

    def __init__(self, choice: ProjectChoice, clock: Clock, *, mask: bool = True) -> None:
        self._choice = choice
        self._clock = clock
        self._mask = mask

    @tool(Effect.REPEATABLE)
    async def create_entities(
        self, call: Call, entities: Annotated[list[Entity], Field(max_items=BATCH_LIMIT)]
    ) -> NewEntities:
        """Create new entities in the knowledge graph; names that exist are left as they are."""
        graph = self._graph(call)
        store = await self._choice.to_read(call, None)
        names = list(dict.fromkeys(entity.name for entity in entities))
        there = await ByExactName().resolve(store, names)
        wanted = {
            entity.name: NewEntity(entity.name, entity.entity_type, entity.observations)
            for entity in reversed(entities)
            if (known := there[entity.name]) is None or is_stub(known)
        }
        made = await graph.create_entities([wanted[name] for name in names if name in wanted])
        _log_masking(graph)
        return NewEntities([_entity(m.record, m.observations) for m in made if m.is_new])

    @tool(Effect.REPEATABLE)
    async def create_relations(
        self, call: Call, relations: Annotated[list[Relation], Field(max_items=BATCH_LIMIT)]
    ) -> NewRelations:
        """Create relations between entities, in active voice; those that exist are skipped."""
        graph = self._graph(call)
        links, names = await graph.create_relations(
            [relation.spec() for relation in relations], make_ends=True
        )
        _log_masking(graph)
        return NewRelations([_relation(link, names) for link in links])

    @tool(Effect.REPEATABLE)
    async def add_observations(
        self, call: Call, observations: Annotated[list[Additions], Field(max_items=BATCH_LIMIT)]
    ) -> Additional:
        """Add observations to existing entities."""
        store = await self._choice.to_read(call, None)
        names = list(dict.fromkeys(item.entity_name for item in observations))
        there = await ByExactName().resolve(store, names)
        for name, record in there.items():
            if record is None or is_stub(record):
                raise NotFound(ENTITY, name, message=f"Entity with name {name} not found")
        graph = self._graph(call)
        made = await graph.add_observations(
            [NewObservations(item.entity_name, item.contents) for item in observations]
        )
        _log_masking(graph)
        return Additional(
            [Added(m.record.name or "", [record.text for record in m.observations]) for m in made]
        )

    @tool(Effect.DESTROYS)
    async def delete_entities(
        self,
        call: Call,
        entity_names: Annotated[
            list[Name], Field(name="entityNames", aliases=("names",), max_items=BATCH_LIMIT)
        ],
    ) -> Done:
        """Delete entities with their relations."""
        await self._graph(call).delete_entities(entity_names)
        return Done(True, "Entities deleted successfully")

    @tool(Effect.DESTROYS)
    async def delete_observations(
        self, call: Call, deletions: Annotated[list[Deletions], Field(max_items=BATCH_LIMIT)]
    ) -> Done:
        """Delete observations by their exact text."""
        await self._graph(call).delete_observations(
            [ObservationDeletion(item.entity_name, item.observations) for item in deletions],
            strict=False,
        )
        return Done(True, "Observations deleted successfully")

    @tool(Effect.DESTROYS)
    async def delete_relations(
        self, call: Call, relations: Annotated[list[Relation], Field(max_items=BATCH_LIMIT)]
    ) -> Done:
        """Delete relations."""
        await self._graph(call).delete_relations([relation.spec() for relation in relations])
        return Done(True, "Relations deleted successfully")

    @tool()
    async def read_graph(self, call: Call) -> Annotated[Result, KnowledgeGraph]:
        """Read the entire knowledge graph."""
        return Result(await whole_graph(await self._choice.to_read(call, None)))

    @tool()
    async def search_nodes(
        self, call: Call, query: Annotated[str, Field("Text to look for.", max_length=10_000)]
    ) -> Annotated[Result, KnowledgeGraph]:
        """Search entities by name, type and observations."""
        store = await self._choice.to_read(call, None)
        where = Where(kinds=SEARCH.kinds)
        matches = await store.containing(query.strip(), where, WHOLE)
        ids = list(dict.fromkeys(match.parent or match.id for match in matches))
        if not ids:
            # That server would find nothing here; words in another order or form still may.
            found = await page_by_tiers([Place(store)], query, SEARCH, 100, None)
            ids = [match.id for _, match in found.matches]
        return Result(await _written(store, ids))

    @tool()
    async def open_nodes(
        self, call: Call, names: Annotated[list[Name], Field(max_items=BATCH_LIMIT)]
    ) -> Annotated[Result, KnowledgeGraph]:
        """Get entities by exact name."""
        store = await self._choice.to_read(call, None)
        found = await ByExactName().resolve(store, list(dict.fromkeys(names)))
        return Result(await _written(store, [r.id for r in found.values() if r is not None]))

    def _graph(self, call: Call) -> Graph:
        async def open_store() -> RecordStore:
            return await self._choice.to_write(call, None)

        return Graph(open_store, call, self._clock, ByExactName(), mask=self._mask)


def _log_masking(graph: Graph) -> None:
    # The shape of that server's answers has no place for a warning.
    if graph.masking.kinds:
        log.warning("masked before storing: %s", ", ".join(graph.masking.kinds))


async def whole_graph(store: RecordStore) -> JSON:
    """Return all of it in the form of KnowledgeGraph."""
    return await _written(store, None)


async def _written(store: RecordStore, ids: Sequence[str] | None) -> JSON:
    """Return the entities, and every relation with at least one end among them."""
    found = await read_entities(store, ids)
    touched(node.id for node in found.nodes)
    return {
        "entities": [
            {
                "name": node.name,
                "entityType": node.type,
                "observations": [text for _, text, _ in node.leaves],
            }
            for node in found.nodes
            if not is_stub(node)
        ],
        "relations": [
            {"from": source, "to": target, "relationType": verb}
            for _, _, source, verb, _, target, _ in found.edges
        ],
    }


def _entity(record: Record, observations: Sequence[Record]) -> Entity:
    return Entity(record.name or "", record.type or "", [item.text for item in observations])


def _relation(link: Link, names: dict[str, str]) -> Relation:
    return Relation(names[link.source], names[link.target], link.verb)


def _listed(values: Sequence[Any]) -> str:
    return encode(to_json(values))
