"""The graph as a project's records hold it, and what the public format shows of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.records import Link, Record, Where
from everkept.families.bank.graph_ids import relation_id
from everkept.families.bank.graph_model import (
    LOG_IDS,
    SOURCE,
    attrs_of,
    observation_id_below,
    own_id,
    public_id,
)
from everkept.families.bank.mirror.graph_state import (
    EntityState,
    GraphState,
    ObservationState,
    RelationState,
)
from everkept.graph.entities import ENTITY, OBSERVATION
from everkept.values import Value, field, replace

LOOKS = 5  # at a store that others keep changing; what is missed then comes with the next change


class GraphRecords(Value, frozen=False):
    """All records and links of a graph, deleted ones too, as they were at one revision."""

    revision: int = 0
    entities: dict[str, Record] = field(default_factory=dict[str, Record])
    observations: list[Record] = field(default_factory=list[Record])
    links: list[Link] = field(default_factory=list[Link])

    def live(self) -> GraphState:
        entities = {key: e for key, e in self.entities.items() if e.deleted_at is None}
        observations = [record for record in self.observations if record.deleted_at is None]
        links = [link for link in self.links if link.deleted_at is None]
        return shown(entities.values(), observations, links, entities, _changed_at)

    def deleted(self) -> GraphState:
        """What is not live any more, with the times of its deletion."""
        entities = [record for record in self.entities.values() if record.deleted_at is not None]
        observations = [record for record in self.observations if record.deleted_at is not None]
        links = [link for link in self.links if link.deleted_at is not None]
        return shown(entities, observations, links, self.entities, lambda x: x.deleted_at or 0)


async def loaded(store: RecordStore) -> GraphRecords:
    graph = GraphRecords()
    for _ in range(LOOKS):
        graph = await _read(store)
        if await store.revision() == graph.revision:
            break
    return graph


async def _read(store: RecordStore) -> GraphRecords:
    revision = await store.revision()
    entities = await store.scan(Where(kinds=(ENTITY,), deleted=None))
    observations = await store.scan(Where(kinds=(OBSERVATION,), deleted=None))
    links = await store.scan_links(deleted=None)
    by_id = {record.id: record for record in entities}
    between = [link for link in links if link.source in by_id and link.target in by_id]
    return GraphRecords(revision, by_id, observations, between)


def shown(
    listed: Iterable[Record],
    observations: Iterable[Record],
    links: Iterable[Link],
    among: Mapping[str, Record],
    when: Callable[[Record | Link], int],
) -> GraphState:
    """The public form of things; `among` has the entities that they belong to.

    Entities that differ in nothing but their spelling are one there.
    """
    state = GraphState()
    ids = {record_id: public_id(entity) for record_id, entity in among.items()}

    def note(key: str, thing: Record | Link) -> None:
        state.times[key] = max(when(thing), state.times.get(key, 0))

    groups: dict[str, list[Record]] = {}
    for entity in listed:
        groups.setdefault(ids[entity.id], []).append(entity)
        note(ids[entity.id], entity)
    state.entities = {key: _entity_state(key, records) for key, records in groups.items()}
    # Of two with one id it is the one of the log that gives way.
    for record in sorted(observations, key=lambda record: LOG_IDS in record.facets):
        if (owner := among.get(record.parent or "")) is not None:
            observation = _observation_state(owner, ids[owner.id], record)
            if observation.says_something_else_than(state.observations.get(observation.id)):
                plain = replace(record, facets={**record.facets, LOG_IDS: {}})
                observation = _observation_state(owner, ids[owner.id], plain)
            state.observations[observation.id] = observation
            note(observation.id, record)
    for link in sorted(links, key=lambda link: (link.created_at, link.id)):
        source, target = ids.get(link.source), ids.get(link.target)
        if source is not None and target is not None:
            key = relation_id(source, link.verb, target)
            relation = RelationState(source, target, link.verb, link.created_at)
            state.relations.setdefault(key, relation)
            note(key, link)
    return state


def _entity_state(key: str, records: Sequence[Record]) -> EntityState:
    """Of several spellings the oldest is shown, with the attributes of the first that has some."""
    ordered = sorted(records, key=lambda record: (record.created_at, record.id))
    return EntityState(
        key,
        ordered[0].name or "",
        ordered[0].type or "",
        attrs_among(ordered),
        ordered[0].created_at,
        max(record.updated_at for record in ordered),
    )


def attrs_among(records: Iterable[Record]) -> dict[str, Any]:
    nothing: dict[str, Any] = {}
    return next((found for record in records if (found := attrs_of(record))), nothing)


def _observation_state(owner: Record, public: str, record: Record) -> ObservationState:
    # Our own id of the owner matters only where a log has others.
    own = own_id(owner) if LOG_IDS in record.facets else public
    key = observation_id_below(own, public, record)
    return ObservationState(key, public, record.text, record.facets.get(SOURCE), record.at)


def _changed_at(thing: Record | Link) -> int:
    return thing.updated_at if isinstance(thing, Record) else thing.created_at
