"""A graph in the public format: ids, what its tools take and give, and the events that make it.

Public ids are computed from what a part says, and stored nowhere.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from everkept.core.records import Link, Record
from everkept.core.text import normalised
from everkept.core.times import iso
from everkept.graph.entities import NAME_LIMIT
from everkept.tools.schema import Field
from everkept.tools.tool import Warned
from everkept.values import Value, field

ENTITY_PREFIX = "ent_"
OBSERVATION_PREFIX = "obs_"
RELATION_PREFIX = "rel_"
LENGTH = 12  # characters behind the prefix


def entity_id(name: str, entity_type: str) -> str:
    """One id for all spellings that are one entity: case, blanks and composition do not count."""
    return _public_id(ENTITY_PREFIX, normalised(name), normalised(entity_type))


def observation_id(entity_id: str, text: str, timestamp_iso: str) -> str:
    return _public_id(OBSERVATION_PREFIX, entity_id, text, timestamp_iso)


def relation_id(from_id: str, relation_type: str, to_id: str) -> str:
    return _public_id(RELATION_PREFIX, from_id, normalised(relation_type), to_id)


def _public_id(prefix: str, *parts: str) -> str:
    # A text may hold what is no UTF-8, where it was taken from a file.
    data = ":".join(parts).encode("utf-8", "surrogatepass")
    code = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode("ascii")
    return prefix + code[:LENGTH]


TEXT_LIMIT = 100_000  # characters
NODE_LIMIT = 1_000  # entities in one answer
LIST_LIMIT = 100  # results of a search

ATTRS = "attrs"  # the facet of an entity that holds its free attributes
SOURCE = "source"  # the facet of an observation that says where it comes from
# The facet of what a log has under an id that is computed otherwise: our id, and the log's.
LOG_IDS = "log_ids"
KINDS = ("manual", "tool", "import", "agent")  # of sources

EntityRef = Annotated[
    str, Field("Name, `name (type)` or id.", max_length=NAME_LIMIT * 2, blank=False)
]
FromEntity = Annotated[
    str,
    Field("Source: name, `name (type)` or id.", "from", max_length=NAME_LIMIT * 2, blank=False),
]
ToEntity = Annotated[str, Field("Target, likewise.", "to", max_length=NAME_LIMIT * 2, blank=False)]
RelationType = Annotated[
    str,
    Field("E.g. uses, depends_on.", "relationType", max_length=NAME_LIMIT, blank=False),
]
ObservationId = Annotated[str, Field("obs_ id.", "observationId", max_length=100, blank=False)]
Depth = Annotated[int, Field("Hops.", ge=1, le=2)]


class EntityView(Value):
    id: str
    name: str
    entity_type: Annotated[str, Field(name="entityType")]
    attrs: dict[str, Any] | None
    created_at: Annotated[str, Field(name="createdAt")]
    updated_at: Annotated[str, Field(name="updatedAt")]

    @classmethod
    def of(cls, record: Record) -> "EntityView":
        return cls(
            public_id(record),
            record.name or "",
            record.type or "",
            attrs_of(record) or None,
            iso(record.created_at),
            iso(record.updated_at),
        )


class Source(Value):
    kind: str
    ref: str | None = None


class ObservationView(Value):
    id: str
    entity_id: Annotated[str, Field(name="entityId")]
    text: str
    source: Source | None
    timestamp: str

    @classmethod
    def of(cls, record: Record, owner: Record) -> "ObservationView":
        return cls(
            observation_public_id(record, owner),
            public_id(owner),
            record.text,
            source_of(record),
            iso(record.at),
        )


class RelationView(Value):
    id: str
    from_id: Annotated[str, Field(name="fromId")]
    to_id: Annotated[str, Field(name="toId")]
    relation_type: Annotated[str, Field(name="relationType")]
    created_at: Annotated[str, Field(name="createdAt")]

    @classmethod
    def of(cls, link: Link, source: Record, target: Record) -> "RelationView":
        ends = public_id(source), public_id(target)
        return cls(relation_id(ends[0], link.verb, ends[1]), *ends, link.verb, iso(link.created_at))


class UpsertedEntity(Value):
    success: bool
    entity: EntityView
    warnings: list[Warned] | None = None


class AddedObservation(Value):
    success: bool
    observation: ObservationView
    warnings: list[Warned] | None = None


class Linked(Value):
    """The relation where it was made or found; what was asked for where it was removed."""

    success: bool
    relation: RelationView | None = None
    action: Literal["unlink"] | None = None
    from_: Annotated[str | None, Field(name="from")] = None
    to: str | None = None
    relation_type: Annotated[str | None, Field(name="relationType")] = None
    warnings: list[Warned] | None = None


class Unlinked(Value):
    success: bool
    warnings: list[Warned] | None = None


class Deleted(Value):
    success: bool
    message: str
    warnings: list[Warned] | None = None


class OpenedNodes(Value):
    entities: list[EntityView]
    observations: list[ObservationView]
    relations: list[RelationView]
    warnings: list[Warned] | None = None


class Noted(Value):
    """An observation as it stands below the entity it belongs to."""

    text: str
    timestamp: str


class FoundEntity(Value):
    id: str
    name: str
    entity_type: Annotated[str, Field(name="entityType")]
    attrs: dict[str, Any] | None
    observations: list[Noted]


class FoundObservation(Value):
    text: str
    entity_id: Annotated[str, Field(name="entityId")]
    entity_name: Annotated[str, Field(name="entityName")]
    timestamp: str


class FoundRelation(Value):
    from_: Annotated[str, Field(name="from")]
    to: str
    relation_type: Annotated[str, Field(name="relationType")]


class FoundNodes(Value):
    query: str
    entities: list[FoundEntity]
    observations: list[FoundObservation]
    relations: list[FoundRelation]
    warnings: list[Warned] | None = None


class DocPointer(Value):
    success: bool
    entity: str
    actions: list[str]
    warnings: list[Warned] | None = None


def own_id(entity: Record) -> str:
    """The id that is computed from name and type, by which entities are the same."""
    return entity_id(entity.name or "", entity.type or "")


def public_id(entity: Record) -> str:
    """The id it has for others: our own, unless it came with another one."""
    own = own_id(entity)
    return _log_id(entity, own) or own


def observation_public_id(observation: Record, owner: Record) -> str:
    own = own_id(owner)
    return observation_id_below(own, _log_id(owner, own) or own, observation)


def observation_id_below(own: str, public: str, observation: Record) -> str:
    """Likewise, by both ids of the entity it belongs to."""
    at = iso(observation.at)
    if observation.facets.get(LOG_IDS):
        given = _log_id(observation, observation_id(own, observation.text, at))
        if given is not None:
            return given
    return observation_id(public, observation.text, at)


def with_log_id(facets: Mapping[str, Any], own: str, given: str) -> dict[str, Any]:
    """The facets with the id that a log has in place of our own, for as long as that is so."""
    others = {name: value for name, value in facets.items() if name != LOG_IDS}
    return others | ({LOG_IDS: {own: given}} if own != given else {})


def _log_id(record: Record, own: str) -> str | None:
    found = record.facets.get(LOG_IDS)
    return cast(Mapping[str, str], found).get(own) if isinstance(found, Mapping) else None


def attrs_of(record: Record) -> dict[str, Any]:
    found = record.facets.get(ATTRS)
    return dict(cast(Mapping[str, Any], found)) if isinstance(found, Mapping) else {}


def with_attrs(facets: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The facets with these attributes in place of the old ones; other families' stay."""
    others = {name: value for name, value in facets.items() if name != ATTRS}
    return others | ({ATTRS: dict(attrs)} if attrs else {})


def source_of(record: Record) -> Source | None:
    found = record.facets.get(SOURCE)
    if not isinstance(found, Mapping):
        return None
    values = cast(Mapping[str, Any], found)
    return Source(str(values.get("kind", KINDS[0])), values.get("ref"))


def source_named(word: str) -> Source:
    """A word that is no kind of source says which one it was; nothing means by hand."""
    word = word.strip()
    if not word or word.lower() in KINDS:
        return Source(word.lower() or KINDS[0])
    return Source(KINDS[0], word)


def source_facets(source: Source) -> dict[str, Any]:
    ref = {} if source.ref is None else {"ref": source.ref}
    return {SOURCE: {"kind": source.kind, **ref}}


class EntityState(Value):
    id: str
    name: str
    type: str
    attrs: Mapping[str, Any]
    created_at: int
    updated_at: int

    def says_the_same(self, other: "EntityState") -> bool:
        """Times do not count: an entity is as new as its newest observation, which has its own."""
        mine, theirs = ((e.id, e.name, e.type, e.attrs) for e in (self, other))
        return mine == theirs


class ObservationState(Value):
    id: str
    entity_id: str
    text: str
    source: Mapping[str, Any] | None
    at: int

    def says_something_else_than(self, other: "ObservationState | None") -> bool:
        return other is not None and (self.entity_id, self.text) != (other.entity_id, other.text)


class RelationState(Value):
    from_id: str
    to_id: str
    type: str
    created_at: int

    @property
    def id(self) -> str:
        return relation_id(self.from_id, self.type, self.to_id)


Thing = EntityState | ObservationState | RelationState


class Put(Value):
    thing: Thing
    at: int

    @property
    def id(self) -> str:
        return self.thing.id


class DropEntity(Value):
    """Takes its observations and relations with it."""

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
        return relation_id(self.from_id, self.type, self.to_id)


Event = Put | DropEntity | DropObservation | DropRelation


class GraphState(Value, frozen=False):
    """The parts by their public ids."""

    entities: dict[str, EntityState] = field(default_factory=dict[str, EntityState])
    observations: dict[str, ObservationState] = field(default_factory=dict[str, ObservationState])
    relations: dict[str, RelationState] = field(default_factory=dict[str, RelationState])
    times: dict[str, int] = field(default_factory=dict[str, int])  # when each became what it is

    @property
    def is_empty(self) -> bool:
        return not self.entities

    def stats(self) -> dict[str, Any]:
        return {
            "entityCount": len(self.entities),
            "observationCount": len(self.observations),
            "relationCount": len(self.relations),
            "entityTypes": sorted({entity.type for entity in self.entities.values()}),
            "relationTypes": sorted({relation.type for relation in self.relations.values()}),
        }


def replayed(events: Iterable[Event]) -> GraphState:
    """What the events leave in the order they stand in, whatever their times say."""
    state = GraphState()
    hanging: dict[str, set[str]] = {}  # entity to what goes with it
    for event in events:
        match event:
            case Put():
                _put(state, event.thing, hanging)
            case DropEntity():
                state.entities.pop(event.id, None)
                for key in hanging.pop(event.id, ()):
                    _fall(state, key, event.id)
            case DropObservation():
                state.observations.pop(event.id, None)
            case DropRelation():
                state.relations.pop(event.id, None)
    return state


def _put(state: GraphState, thing: Thing, hanging: dict[str, set[str]]) -> None:
    """What belongs to an entity that is not there is nothing."""
    owners = owners_of(thing)
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


def _fall(state: GraphState, key: str, entity: str) -> None:
    """With its entity, if that is still the one it hangs on."""
    if (observation := state.observations.get(key)) and observation.entity_id == entity:
        del state.observations[key]
    state.relations.pop(key, None)


def difference(
    then: GraphState, now: GraphState, at: Callable[[str], int] = lambda _: 0
) -> list[Event]:
    """The events that lead from one state to another, in an order that can be replayed.

    `at` says for the id of a part when it became what it is now.
    """
    gone = then.entities.keys() - now.entities.keys()
    # An observation that a replay finds without its entity is lost, so entities come first; what
    # is dropped comes last, because an entity takes all of its own with it.
    puts = [
        entity
        for key, entity in now.entities.items()
        if key not in then.entities or not entity.says_the_same(then.entities[key])
    ]
    return [
        *(Put(entity, at(entity.id)) for entity in puts),
        *_added(then.observations, now.observations, at),
        *_added(then.relations, now.relations, at),
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


def _added(
    then: Mapping[str, Thing], now: Mapping[str, Thing], at: Callable[[str], int]
) -> list[Put]:
    return [
        Put(thing, at(key))
        for key, thing in now.items()
        if key not in then or _said(then[key]) != _said(thing)
    ]


def _said(thing: Thing) -> tuple[str, str] | None:
    """What an observation says of whom: a log may have something else under its id."""
    return (thing.entity_id, thing.text) if isinstance(thing, ObservationState) else None


Stamp = tuple[int, int]  # the time of an event, and its place in the log where times are equal


class Heard(Value, frozen=False):
    """What a log says by the times of its events, whatever their order.

    Two logs that were joined tell things out of order. Whatever came to an entity after it was
    dropped keeps it alive: nobody who added to it knew that it was gone.
    """

    entities: dict[str, Put] = field(default_factory=dict[str, Put])
    observations: dict[str, Put] = field(default_factory=dict[str, Put])
    relations: dict[str, Put] = field(default_factory=dict[str, Put])
    dropped: dict[str, int] = field(default_factory=dict[str, int])  # what is dead, and since when
    told: dict[str, list[Put]] = field(default_factory=dict[str, list[Put]])  # of entities, all
    drops: dict[str, int] = field(default_factory=dict[str, int])  # the last of each, dead or not
    added: dict[str, int] = field(default_factory=dict[str, int])  # to entities, the last of all
    last: dict[str, Put] = field(default_factory=dict[str, Put])  # of each thing, dead or not

    def at(self, key: str) -> int:
        """The time of the newest word about a part; 0 where there is none."""
        for living in (self.entities, self.observations, self.relations):
            if key in living:
                return living[key].at
        return self.dropped.get(key, 0)


def heard(events: Sequence[Event]) -> Heard:
    puts: dict[str, tuple[Stamp, Put]] = {}
    drops: dict[str, Stamp] = {}
    result = Heard()
    for number, event in enumerate(events):
        stamp = (event.at, number)
        if isinstance(event, Put):
            key = event.thing.id
            if key not in puts or puts[key][0] < stamp:
                puts[key] = (stamp, event)
            for owner in owners_of(event.thing):
                result.added[owner] = max(event.at, result.added.get(owner, 0))
            if isinstance(event.thing, EntityState):
                result.told.setdefault(key, []).append(event)
        else:
            drops[event.id] = max(stamp, drops.get(event.id, stamp))
    _sort_out(result, puts, drops)
    return result


def _sort_out(
    result: Heard, puts: Mapping[str, tuple[Stamp, Put]], drops: Mapping[str, Stamp]
) -> None:
    never = (-1, -1)
    living: set[str] = {
        key
        for key, (stamp, put) in puts.items()
        if isinstance(put.thing, EntityState) and stamp > drops.get(key, never)
    }
    cascaded: list[tuple[str, list[str]]] = []
    for key, (stamp, put) in puts.items():
        ends = owners_of(put.thing)
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
        # Where the entity itself is dead, what hangs on it goes or stays with it.
        if all(end in living for end in ends):
            result.dropped[key] = max(drops.get(end, never)[0] for end in ends)


def owners_of(thing: Thing) -> list[str]:
    """The entities that a part belongs to."""
    match thing:
        case ObservationState():
            return [thing.entity_id]
        case RelationState():
            return [thing.from_id, thing.to_id]
        case EntityState():
            return []
