"""A graph in the public format: ids, arguments and results of its tools, and its events.

Public ids are computed from the content of a part, not stored.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from everkept.core.records import Record, RecordLink
from everkept.core.text import compute_name_key
from everkept.core.times import format_iso
from everkept.graph.entities import MAX_NAME_CHARACTERS
from everkept.tools.schema import Field
from everkept.tools.tool import ToolWarning
from everkept.values import Value, field

ENTITY_PREFIX = "ent_"
OBSERVATION_PREFIX = "obs_"
RELATION_PREFIX = "rel_"
ID_CHARACTERS = 12  # after the prefix


def compute_entity_id(name: str, entity_type: str) -> str:
    """Compute an id from name and type. Case, whitespace and Unicode composition do not matter."""
    return _compute_id(ENTITY_PREFIX, compute_name_key(name), compute_name_key(entity_type))


def compute_observation_id(entity_id: str, text: str, timestamp_iso: str) -> str:
    return _compute_id(OBSERVATION_PREFIX, entity_id, text, timestamp_iso)


def compute_relation_id(from_id: str, relation_type: str, to_id: str) -> str:
    return _compute_id(RELATION_PREFIX, from_id, compute_name_key(relation_type), to_id)


def _compute_id(prefix: str, *parts: str) -> str:
    # Text read from a file may hold unpaired surrogates, which are not valid UTF-8.
    data = ":".join(parts).encode("utf-8", "surrogatepass")
    code = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode("ascii")
    return prefix + code[:ID_CHARACTERS]


MAX_TEXT_CHARACTERS = 100_000
MAX_NODES = 1_000  # entities in one result
MAX_SEARCH_RESULTS = 100

ATTRS_FACET = "attrs"  # free attributes of an entity
SOURCE_FACET = "source"  # origin of an observation
# For parts whose id in the log is computed differently: maps our id to the log's id.
LOG_IDS_FACET = "log_ids"
SOURCE_KINDS = ("manual", "tool", "import", "agent")

EntityRef = Annotated[str, Field("Name, `name (type)` or id", max_length=MAX_NAME_CHARACTERS * 2, blank=False)]
FromEntity = Annotated[
    str, Field("Source entity: name, `name (type)` or id", "from", max_length=MAX_NAME_CHARACTERS * 2, blank=False)
]
ToEntity = Annotated[
    str, Field("Target entity: name, `name (type)` or id", "to", max_length=MAX_NAME_CHARACTERS * 2, blank=False)
]
RelationType = Annotated[
    str, Field("Active verb, such as depends_on", "relationType", max_length=MAX_NAME_CHARACTERS, blank=False)
]
ObservationId = Annotated[
    str, Field("Id of an observation, such as obs_1a2b", "observationId", max_length=100, blank=False)
]
Depth = Annotated[int, Field("Hops, 1 or 2, default 1", ge=1, le=2)]


class BankEntityView(Value):
    id: str
    name: str
    entity_type: Annotated[str, Field(name="entityType")]
    attrs: dict[str, Any] | None
    created_at: Annotated[str, Field(name="createdAt")]
    updated_at: Annotated[str, Field(name="updatedAt")]

    @classmethod
    def from_record(cls, record: Record) -> "BankEntityView":
        return cls(
            get_public_id(record),
            record.name or "",
            record.type or "",
            get_attrs(record) or None,
            format_iso(record.created_at),
            format_iso(record.updated_at),
        )


class ObservationSource(Value):
    kind: str
    ref: str | None = None


class BankObservationView(Value):
    id: str
    entity_id: Annotated[str, Field(name="entityId")]
    text: str
    source: ObservationSource | None
    timestamp: str

    @classmethod
    def from_record(cls, record: Record, owner: Record) -> "BankObservationView":
        return cls(
            get_observation_id(record, owner),
            get_public_id(owner),
            record.text,
            get_source(record),
            format_iso(record.effective_at),
        )


class BankRelationView(Value):
    id: str
    from_id: Annotated[str, Field(name="fromId")]
    to_id: Annotated[str, Field(name="toId")]
    relation_type: Annotated[str, Field(name="relationType")]
    created_at: Annotated[str, Field(name="createdAt")]

    @classmethod
    def from_link(cls, link: RecordLink, source: Record, target: Record) -> "BankRelationView":
        ends = get_public_id(source), get_public_id(target)
        return cls(compute_relation_id(ends[0], link.verb, ends[1]), *ends, link.verb, format_iso(link.created_at))


class UpsertedEntity(Value):
    success: bool
    entity: BankEntityView
    warnings: list[ToolWarning] | None = None


class AddedObservation(Value):
    success: bool
    observation: BankObservationView
    warnings: list[ToolWarning] | None = None


class LinkedEntities(Value):
    """The relation that was created or found, or the arguments of a removed one."""

    success: bool
    relation: BankRelationView | None = None
    action: Literal["unlink"] | None = None
    from_: Annotated[str | None, Field(name="from")] = None
    to: str | None = None
    relation_type: Annotated[str | None, Field(name="relationType")] = None
    warnings: list[ToolWarning] | None = None


class UnlinkedEntities(Value):
    success: bool
    warnings: list[ToolWarning] | None = None


class BankDeletion(Value):
    success: bool
    message: str
    warnings: list[ToolWarning] | None = None


class BankOpenedNodes(Value):
    entities: list[BankEntityView]
    observations: list[BankObservationView]
    relations: list[BankRelationView]
    not_found: Annotated[list[str] | None, Field(name="notFound")] = None
    warnings: list[ToolWarning] | None = None


class NestedObservation(Value):
    """An observation listed under its entity."""

    id: str
    text: str
    timestamp: str


class FoundEntity(Value):
    id: str
    name: str
    entity_type: Annotated[str, Field(name="entityType")]
    attrs: dict[str, Any] | None
    observations: list[NestedObservation]


class FoundObservation(Value):
    id: str
    text: str
    entity_id: Annotated[str, Field(name="entityId")]
    entity_name: Annotated[str, Field(name="entityName")]
    timestamp: str


class FoundRelation(Value):
    from_: Annotated[str, Field(name="from")]
    to: str
    relation_type: Annotated[str, Field(name="relationType")]


class BankFoundNodes(Value):
    query: str
    entities: list[FoundEntity]
    observations: list[FoundObservation]
    relations: list[FoundRelation]
    warnings: list[ToolWarning] | None = None


class DocPointer(Value):
    success: bool
    entity: str
    actions: list[str]
    warnings: list[ToolWarning] | None = None


def compute_own_id(entity: Record) -> str:
    """Return the id computed from name and type, which identifies an entity."""
    return compute_entity_id(entity.name or "", entity.type or "")


def get_public_id(entity: Record) -> str:
    """Return the id that other programs see: the log's if it has one, otherwise our own."""
    own = compute_own_id(entity)
    return _find_log_id(entity, own) or own


def get_observation_id(observation: Record, owner: Record) -> str:
    own = compute_own_id(owner)
    return resolve_observation_id(own, _find_log_id(owner, own) or own, observation)


def resolve_observation_id(own: str, public: str, observation: Record) -> str:
    """Return the public id of an observation, given both ids of its entity."""
    at = format_iso(observation.effective_at)
    if observation.facets.get(LOG_IDS_FACET):
        given = _find_log_id(observation, compute_observation_id(own, observation.text, at))
        if given is not None:
            return given
    return compute_observation_id(public, observation.text, at)


def with_log_id(facets: Mapping[str, Any], own: str, given: str) -> dict[str, Any]:
    """Return the facets with the log's id for our own id; without it if both are equal."""
    others = {name: value for name, value in facets.items() if name != LOG_IDS_FACET}
    return others | ({LOG_IDS_FACET: {own: given}} if own != given else {})


def _find_log_id(record: Record, own: str) -> str | None:
    found = record.facets.get(LOG_IDS_FACET)
    return cast(Mapping[str, str], found).get(own) if isinstance(found, Mapping) else None


def get_attrs(record: Record) -> dict[str, Any]:
    found = record.facets.get(ATTRS_FACET)
    return dict(cast(Mapping[str, Any], found)) if isinstance(found, Mapping) else {}


def with_attrs(facets: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facets with these attributes instead of the old ones; all other facets stay."""
    others = {name: value for name, value in facets.items() if name != ATTRS_FACET}
    return others | ({ATTRS_FACET: dict(attrs)} if attrs else {})


def get_source(record: Record) -> ObservationSource | None:
    found = record.facets.get(SOURCE_FACET)
    if not isinstance(found, Mapping):
        return None
    values = cast(Mapping[str, Any], found)
    return ObservationSource(str(values.get("kind", SOURCE_KINDS[0])), values.get("ref"))


def parse_source(word: str) -> ObservationSource:
    """Parse a source. A word that is not a kind becomes the `ref` of a manual source; no word means manual."""
    word = word.strip()
    if not word or word.lower() in SOURCE_KINDS:
        return ObservationSource(word.lower() or SOURCE_KINDS[0])
    return ObservationSource(SOURCE_KINDS[0], word)


def build_source_facets(source: ObservationSource) -> dict[str, Any]:
    ref = {} if source.ref is None else {"ref": source.ref}
    return {SOURCE_FACET: {"kind": source.kind, **ref}}


class EntityState(Value):
    id: str
    name: str
    type: str
    attrs: Mapping[str, Any]
    created_at: int
    updated_at: int

    def is_same_as(self, other: "EntityState") -> bool:
        """Return whether both are equal apart from times. Observations have their own times."""
        mine, theirs = ((e.id, e.name, e.type, e.attrs) for e in (self, other))
        return mine == theirs


class ObservationState(Value):
    id: str
    entity_id: str
    text: str
    source: Mapping[str, Any] | None
    at: int

    def is_different_from(self, other: "ObservationState | None") -> bool:
        return other is not None and (self.entity_id, self.text) != (other.entity_id, other.text)


class RelationState(Value):
    from_id: str
    to_id: str
    type: str
    created_at: int

    @property
    def id(self) -> str:
        return compute_relation_id(self.from_id, self.type, self.to_id)


Thing = EntityState | ObservationState | RelationState


class Put(Value):
    thing: Thing
    at: int

    @property
    def id(self) -> str:
        return self.thing.id


class DropEntity(Value):
    """The deletion of an entity with its observations and relations."""

    id: str
    at: int


class DropObservation(Value):
    id: str
    entity_id: str
    at: int


class DropRelation(Value):
    from_id: str
    to_id: str
    type: str
    at: int

    @property
    def id(self) -> str:
        return compute_relation_id(self.from_id, self.type, self.to_id)


Event = Put | DropEntity | DropObservation | DropRelation


class GraphState(Value, frozen=False):
    """The parts of a graph by public id."""

    entities: dict[str, EntityState] = field(default_factory=dict[str, EntityState])
    observations: dict[str, ObservationState] = field(default_factory=dict[str, ObservationState])
    relations: dict[str, RelationState] = field(default_factory=dict[str, RelationState])
    times: dict[str, int] = field(default_factory=dict[str, int])  # time of each part's last change

    @property
    def is_empty(self) -> bool:
        return not self.entities

    def compute_stats(self) -> dict[str, Any]:
        return {
            "entityCount": len(self.entities),
            "observationCount": len(self.observations),
            "relationCount": len(self.relations),
            "entityTypes": sorted({entity.type for entity in self.entities.values()}),
            "relationTypes": sorted({relation.type for relation in self.relations.values()}),
        }


def replay_events(events: Iterable[Event]) -> GraphState:
    """Apply the events in the order of the log, whatever their times are."""
    state = GraphState()
    hanging: dict[str, set[str]] = {}  # entity id to the ids of its observations and relations
    for event in events:
        match event:
            case Put():
                _put_thing(state, event.thing, hanging)
            case DropEntity():
                state.entities.pop(event.id, None)
                for key in hanging.pop(event.id, ()):
                    _remove_dependent(state, key, event.id)
            case DropObservation():
                state.observations.pop(event.id, None)
            case DropRelation():
                state.relations.pop(event.id, None)
    return state


def _put_thing(state: GraphState, thing: Thing, hanging: dict[str, set[str]]) -> None:
    """Add a part. Parts of a missing entity are ignored."""
    owners = list_owners(thing)
    if not all(owner in state.entities for owner in owners):
        return
    key = thing.id
    match thing:
        case EntityState():
            state.entities[key] = thing
        case ObservationState():
            state.observations[key] = thing
        case RelationState():
            state.relations.setdefault(key, thing)
    for owner in owners:
        hanging.setdefault(owner, set()).add(key)


def _remove_dependent(state: GraphState, key: str, entity: str) -> None:
    """Remove an observation or relation with its entity. An observation may have moved to another entity."""
    if (observation := state.observations.get(key)) and observation.entity_id == entity:
        del state.observations[key]
    state.relations.pop(key, None)


def compute_difference(then: GraphState, now: GraphState, at: Callable[[str], int] = lambda _: 0) -> list[Event]:
    """Return the replayable events from one state to another. `at` returns the time of a part's last change."""
    gone = then.entities.keys() - now.entities.keys()
    # Entities come first, because a replay ignores observations without their entity. Deleted entities come last,
    # because their observations and relations go with them.
    puts = [
        entity
        for key, entity in now.entities.items()
        if key not in then.entities or not entity.is_same_as(then.entities[key])
    ]
    return [
        *(Put(entity, at(entity.id)) for entity in puts),
        *_find_added(then.observations, now.observations, at),
        *_find_added(then.relations, now.relations, at),
        *(
            DropObservation(key, observation.entity_id, at(key))
            for key, observation in then.observations.items()
            if key not in now.observations and observation.entity_id not in gone
        ),
        *(
            DropRelation(relation.from_id, relation.to_id, relation.type, at(key))
            for key, relation in then.relations.items()
            if key not in now.relations and not {relation.from_id, relation.to_id} & gone
        ),
        *(DropEntity(key, at(key)) for key in then.entities if key in gone),
    ]


def _find_added(then: Mapping[str, Thing], now: Mapping[str, Thing], at: Callable[[str], int]) -> list[Put]:
    return [
        Put(thing, at(key))
        for key, thing in now.items()
        if key not in then or _get_statement(then[key]) != _get_statement(thing)
    ]


def _get_statement(thing: Thing) -> tuple[str, str] | None:
    """Return entity and text of an observation: a log may use its id for something different."""
    return (thing.entity_id, thing.text) if isinstance(thing, ObservationState) else None


EventStamp = tuple[int, int]  # time of an event, and its position in the log for equal times


class LatestEvents(Value, frozen=False):
    """The state of a log by the times of its events, whatever their order.

    Two logs that git merged have events out of order. A part that was added to an entity after its deletion keeps the
    entity alive: its author did not know of the deletion.
    """

    entities: dict[str, Put] = field(default_factory=dict[str, Put])
    observations: dict[str, Put] = field(default_factory=dict[str, Put])
    relations: dict[str, Put] = field(default_factory=dict[str, Put])
    dropped: dict[str, int] = field(default_factory=dict[str, int])  # deleted parts with the time
    told: dict[str, list[Put]] = field(default_factory=dict[str, list[Put]])  # all events of each entity
    drops: dict[str, int] = field(default_factory=dict[str, int])  # last deletion of each part, live or not
    added: dict[str, int] = field(default_factory=dict[str, int])  # last addition to each entity
    last: dict[str, Put] = field(default_factory=dict[str, Put])  # last event of each part, live or not

    def get_time(self, key: str) -> int:
        """Return the time of the newest event of a part, or 0 if there is none."""
        for living in (self.entities, self.observations, self.relations):
            if key in living:
                return living[key].at
        return self.dropped.get(key, 0)


def collect_latest(events: Sequence[Event]) -> LatestEvents:
    puts: dict[str, tuple[EventStamp, Put]] = {}
    drops: dict[str, EventStamp] = {}
    result = LatestEvents()
    for number, event in enumerate(events):
        stamp = (event.at, number)
        if isinstance(event, Put):
            key = event.thing.id
            if key not in puts or puts[key][0] < stamp:
                puts[key] = (stamp, event)
            for owner in list_owners(event.thing):
                result.added[owner] = max(event.at, result.added.get(owner, 0))
            if isinstance(event.thing, EntityState):
                result.told.setdefault(key, []).append(event)
        else:
            drops[event.id] = max(stamp, drops.get(event.id, stamp))
    _sort_out(result, puts, drops)
    return result


def _sort_out(
    result: LatestEvents, puts: Mapping[str, tuple[EventStamp, Put]], drops: Mapping[str, EventStamp]
) -> None:
    never = (-1, -1)
    living: set[str] = {
        key
        for key, (stamp, put) in puts.items()
        if isinstance(put.thing, EntityState) and stamp > drops.get(key, never)
    }
    cascaded: list[tuple[str, list[str]]] = []
    for key, (stamp, put) in puts.items():
        ends = list_owners(put.thing)
        if not ends or not all(end in puts for end in ends):
            continue
        if stamp <= drops.get(key, never):
            continue
        if any(stamp <= drops.get(end, never) for end in ends):
            cascaded.append((key, ends))
            continue
        living.update(ends)
        if isinstance(put.thing, ObservationState):
            result.observations[key] = put
        else:
            result.relations[key] = put
    result.last = {key: put for key, (_, put) in puts.items()}
    result.entities = {key: put for key, put in result.last.items() if key in living}
    result.drops = {key: at for key, (at, _) in drops.items()}
    result.dropped = {
        key: at
        for key, (at, _) in drops.items()
        if not any(key in kind for kind in (result.entities, result.observations, result.relations))
    }
    for key, ends in cascaded:
        # If the entity itself is deleted, its observations and relations follow it.
        if all(end in living for end in ends):
            result.dropped[key] = max(drops.get(end, never)[0] for end in ends)


def list_owners(thing: Thing) -> list[str]:
    """Return the ids of the entities that a part belongs to."""
    match thing:
        case ObservationState():
            return [thing.entity_id]
        case RelationState():
            return [thing.from_id, thing.to_id]
        case EntityState():
            return []
