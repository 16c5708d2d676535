"""The tools of the bank's knowledge graph."""

from typing import Annotated, Any, Literal

from everkept.core.sessions import Call
from everkept.core.times import Clock, iso
from everkept.errors import InvalidInput
from everkept.families.bank.banks import BankRecords, Banks
from everkept.families.bank.graph.calls import GraphCalls
from everkept.families.bank.graph_model import (
    LIST_LIMIT,
    NODE_LIMIT,
    TEXT_LIMIT,
    AddedObservation,
    Deleted,
    Depth,
    EntityRef,
    EntityView,
    FoundNodes,
    FromEntity,
    Linked,
    ObservationId,
    ObservationView,
    OpenedNodes,
    RelationType,
    RelationView,
    ToEntity,
    Unlinked,
    UpsertedEntity,
)
from everkept.families.bank.mirror.mirror import Mirror
from everkept.families.bank.model import StoreId
from everkept.graph.entities import NAME_LIMIT
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Family, Warned, tool
from everkept.values import replace


class GraphTools(Family):
    """Entities, observations and relations of the project that a bank belongs to."""

    def __init__(
        self, banks: Banks, records: BankRecords, mirror: Mirror, clock: Clock, *, mask: bool
    ) -> None:
        self._graphs = GraphCalls(banks, records, mirror, clock, mask=mask)

    @tool()
    async def graph_search(
        self,
        call: Call,
        query: Annotated[str, Field("Text or words; `*` lists all.", max_length=10_000)],
        limit: Annotated[
            int, Field("At most, of entities and of observations.", ge=1, le=LIST_LIMIT)
        ] = 10,
        include_neighborhood: Annotated[
            bool, Field("Add connected entities.", name="includeNeighborhood")
        ] = False,
        neighborhood_depth: Annotated[
            int, Field("Hops.", name="neighborhoodDepth", ge=1, le=2)
        ] = 1,
        store_id: StoreId | None = None,
    ) -> FoundNodes:
        """Search the knowledge graph's entities and observations, best first."""
        graph, warnings = await self._graphs.to_read(call, store_id)
        found = await graph.find(query, limit, neighborhood_depth if include_neighborhood else 0)
        return replace(found, warnings=warnings.and_more(found.warnings))

    @tool(Effect.REPEATABLE)
    async def graph_upsert_entity(
        self,
        call: Call,
        name: Annotated[str, Field("Name.", max_length=NAME_LIMIT, blank=False)],
        entity_type: Annotated[
            str, Field("Type.", name="entityType", max_length=NAME_LIMIT, blank=False)
        ],
        attrs: Annotated[
            dict[str, Any], Field("Replace the old ones; none drops them.", max_length=TEXT_LIMIT)
        ]
        | None = None,
        store_id: StoreId | None = None,
    ) -> UpsertedEntity:
        """Create an entity, or replace the attributes of the one with this name and type."""
        edits, warnings = await self._graphs.to_write(call, store_id)
        entity = EntityView.of(await edits.upsert(name, entity_type, attrs or {}))
        return UpsertedEntity(True, entity, await self._graphs.written(edits, warnings))

    @tool(Effect.REPEATABLE)
    async def graph_add_observation(
        self,
        call: Call,
        entity: EntityRef,
        text: Annotated[str, Field("What was observed.", max_length=TEXT_LIMIT, blank=False)],
        source: Annotated[
            str, Field("manual, tool, import, agent, or other words.", max_length=NAME_LIMIT)
        ] = "manual",
        timestamp: Annotated[int, Field("ISO time; default now.", moment=True)] | None = None,
        store_id: StoreId | None = None,
    ) -> AddedObservation:
        """Attach an observation to an existing entity; a text it has already is kept as it is."""
        edits, warnings = await self._graphs.to_write(call, store_id)
        observation = ObservationView.of(*await edits.observe(entity, text, source, timestamp))
        if timestamp is not None and observation.timestamp != iso(timestamp):
            warnings.found.append(_known(observation))
        return AddedObservation(True, observation, await self._graphs.written(edits, warnings))

    @tool(Effect.REPEATABLE)
    async def graph_link_entities(
        self,
        call: Call,
        source: FromEntity,
        relation_type: RelationType,
        target: ToEntity,
        action: Annotated[Literal["link", "unlink"], Field("What to do.")] = "link",
        store_id: StoreId | None = None,
    ) -> Linked:
        """Create a directed relation between existing entities, or remove it."""
        edits, warnings = await self._graphs.to_write(call, store_id)
        if action == "unlink":
            await edits.unlink(source, relation_type, target)
            removed = Linked(True, None, "unlink", source, target, relation_type)
            return replace(removed, warnings=await self._graphs.written(edits, warnings))
        relation = RelationView.of(*await edits.link(source, relation_type, target))
        return Linked(True, relation, warnings=await self._graphs.written(edits, warnings))

    @tool(Effect.DESTROYS)
    async def graph_unlink_entities(
        self,
        call: Call,
        source: FromEntity,
        relation_type: RelationType,
        target: ToEntity,
        store_id: StoreId | None = None,
    ) -> Unlinked:
        """Remove a directed relation."""
        edits, warnings = await self._graphs.to_write(call, store_id)
        await edits.unlink(source, relation_type, target)
        return Unlinked(True, await self._graphs.written(edits, warnings))

    @tool()
    async def graph_open_nodes(
        self,
        call: Call,
        nodes: Annotated[
            list[EntityRef], Field("Names, `name (type)` or ids.", max_items=NODE_LIMIT)
        ],
        depth: Depth = 1,
        store_id: StoreId | None = None,
    ) -> OpenedNodes:
        """Get entities with all observations, and what is connected to them."""
        if not nodes:
            raise InvalidInput("`nodes` is empty.", argument="nodes", value="[]")
        graph, warnings = await self._graphs.to_read(call, store_id)
        opened = await graph.open(nodes, depth)
        return replace(opened, warnings=warnings.and_more(opened.warnings))

    @tool(Effect.DESTROYS)
    async def graph_delete_entity(
        self,
        call: Call,
        entity: EntityRef | None = None,
        observation_id: ObservationId | None = None,
        store_id: StoreId | None = None,
    ) -> Deleted:
        """Delete an entity with its observations and relations, or one observation alone."""
        if entity is None and observation_id is None:
            raise InvalidInput("Either `entity` or `observationId` is required.", argument="entity")
        edits, warnings = await self._graphs.to_write(call, store_id)
        if observation_id is not None:
            await edits.delete_observation(observation_id, entity)
            message = f'Observation "{observation_id}" deleted.'
        else:
            await edits.delete_entity(entity or "")
            message = f'Entity "{entity}" deleted.'
        return Deleted(True, message, await self._graphs.written(edits, warnings))

    @tool(Effect.DESTROYS)
    async def graph_delete_observation(
        self, call: Call, observation_id: ObservationId, store_id: StoreId | None = None
    ) -> Deleted:
        """Delete one observation by its id."""
        edits, warnings = await self._graphs.to_write(call, store_id)
        await edits.delete_observation(observation_id)
        message = f'Observation "{observation_id}" deleted.'
        return Deleted(True, message, await self._graphs.written(edits, warnings))


def _known(observation: ObservationView) -> Warned:
    message = f"The entity has this observation already, of {observation.timestamp}; it was kept."
    return Warned("observation_exists", message)
