"""The graph as a project's records hold it, and the steps by which its parts come in or go."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.records import Delete, Insert, Link, Record, Restore, Step, Update, Where
from everkept.core.secrets import Masking
from everkept.core.text import normalised
from everkept.core.times import iso
from everkept.families.bank.graph.model import (
    LOG_IDS,
    SOURCE,
    EntityState,
    GraphState,
    ObservationState,
    RelationState,
    attrs_of,
    entity_id,
    observation_id,
    observation_id_below,
    observation_public_id,
    own_id,
    public_id,
    relation_id,
    with_attrs,
    with_log_id,
)
from everkept.graph.entities import (
    ENTITY,
    OBSERVATION,
    STUB,
    UNKNOWN_TYPE,
    is_stub,
    make_entity,
    new_observation,
    new_relation,
)
from everkept.graph.lookup import BY_NAME_AND_TYPE
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


MILLISECOND = 1_000  # the format knows times no closer


class Taken(Value, frozen=False):
    """How many parts came in or changed, and how many were removed."""

    entities: int = 0
    observations: int = 0
    relations: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.entities + self.observations + self.relations + self.removed


class Former(Value):
    """The record that had a public id, and until when."""

    record: str
    until: int


class Index:
    """The records of a graph by what makes them the same as parts of another."""

    def __init__(
        self, graph: GraphRecords, former: Mapping[str, Sequence[Former]] | None = None
    ) -> None:
        self.live: dict[str, list[Record]] = {}
        self.dead: dict[str, Record] = {}  # the one deleted last
        self.stubs: dict[str, Record] = {}
        self.observed: dict[tuple[str, str], Record] = {}
        self.forgotten: dict[tuple[str, str], Record] = {}
        self.children: dict[str, list[Record]] = {}
        self.linked: dict[str, list[Link]] = {}
        self.unlinked: dict[str, Link] = {}
        self.beside: dict[str, list[Link]] = {}
        self.ids = {record.id: own_id(record) for record in graph.entities.values()}
        self.entities = graph.entities
        self._former = former or {}
        self._places = {
            (record.name_key, record.variant)
            for record in graph.entities.values()
            if record.deleted_at is None
        }
        self._take_entities(graph)
        self._take_observations(graph)
        self._take_links(graph)

    def current(self, key: str, at: int, known: int) -> str:
        """The public id that an entity has now which a log called by this one, at this time.

        `known` is when the log heard of it last: who added to an entity that had been renamed
        here meant the one they knew.
        """
        holder = self._holder(key, at)
        if holder is None and key not in self.live and key not in self.dead:
            holder = self._holder(key, known)
        return key if holder is None else self.ids.get(holder, key)

    def _holder(self, key: str, at: int) -> str | None:
        """The record that had the id at a time and gave it up; None where it had died with it."""
        dead = self.dead.get(key)
        if dead is not None and at <= (dead.deleted_at or 0):
            return None
        held = [former for former in self._former.get(key, ()) if at <= former.until]
        return min(held, key=lambda former: former.until).record if held else None

    @cached_property
    def shown(self) -> dict[str, str]:
        """The ids that live entities and observations have for others, and the records."""
        live = [record for records in self.live.values() for record in records]
        below = self.observed.values()
        return {public_id(record): record.id for record in live} | {
            observation_public_id(record, self.entities[record.parent or ""]): record.id
            for record in below
            if record.id
        }

    def is_taken(self, dead: Record) -> bool:
        """Whether a live entity has the place of a deleted one, as where types do not count."""
        return (dead.name_key, dead.variant) in self._places

    def _take_entities(self, graph: GraphRecords) -> None:
        for record in sorted(graph.entities.values(), key=lambda r: (r.created_at, r.id)):
            key = self.ids[record.id]
            if record.deleted_at is not None:
                self.dead[key] = _later(self.dead.get(key), record)
                continue
            self.live.setdefault(key, []).append(record)
            if is_stub(record):
                self.stubs[record.name_key or ""] = record

    def _take_observations(self, graph: GraphRecords) -> None:
        for record in graph.observations:
            owner = graph.entities.get(record.parent or "")
            if owner is None:
                continue
            key = (self.ids[owner.id], record.text)
            if record.deleted_at is not None:
                self.forgotten[key] = _later(self.forgotten.get(key), record)
            elif owner.deleted_at is None:
                self.observed.setdefault(key, record)
                self.children.setdefault(owner.id, []).append(record)

    def family(self, records: Sequence[Record]) -> list[Record | Link]:
        """Live entities with all that would go with them."""
        found: list[Record | Link] = list(records)
        for record in records:
            found += self.children.get(record.id, [])
            found += self.beside.get(record.id, [])
        return list({thing.id: thing for thing in found}.values())

    def _take_links(self, graph: GraphRecords) -> None:
        for link in graph.links:
            key = relation_id(self.ids[link.source], link.verb, self.ids[link.target])
            if link.deleted_at is not None:
                before = self.unlinked.get(key)
                if before is None or (before.deleted_at or 0) < link.deleted_at:
                    self.unlinked[key] = link
                continue
            self.linked.setdefault(key, []).append(link)
            for end in {link.source, link.target}:
                self.beside.setdefault(end, []).append(link)


def _later(known: Record | None, record: Record) -> Record:
    if known is None or (known.deleted_at or 0) <= (record.deleted_at or 0):
        return record
    return known


def key_of(entity: EntityState, masking: Masking) -> str:
    """Return the id that an entity has here, which a log may compute in another way."""
    return entity_id(masking.text(entity.name), masking.text(entity.type))


class Placing:
    """Makes the steps by which parts come into the records, each once."""

    def __init__(self, index: Index, masking: Masking, kept: Set[str]) -> None:
        self.index = index
        self.steps: list[Step] = []
        self.taken = Taken()
        self._masking = masking
        self._kept = kept  # the public ids of entities that must stay what they are
        self._placed: dict[str, str] = {}
        self._removed: set[str] = set()
        self._amended: dict[str, int] = {}  # records, and the steps that change their facets

    def owner(self, entity: EntityState, key: str) -> str:
        """The id of the live record of an entity, which is made or restored where it is not.

        `key` is the id that we compute for it.
        """
        if key in self._placed:
            return self._placed[key]
        if live := self.index.live.get(key):
            self._placed[key] = live[0].id
        elif (dead := self.index.dead.get(key)) and not self.index.is_taken(dead):
            self._placed[key] = dead.id
            self.steps.append(Restore(dead.ref))
            facets = with_attrs(dead.facets, self._masking.json(entity.attrs))
            # One that was renamed here has an id of ours.
            given = entity.id if key_of(entity, self._masking) == key else key
            self._amend(dead, self._with_id(facets, key, given))
            self.taken.entities += 1
        else:
            self._placed[key] = self._made(entity)
            self.taken.entities += 1
        return self._placed[key]

    def describe(self, entity: EntityState, key: str) -> None:
        """Gives a live entity these attributes."""
        records = self.index.live[key]
        holder = next((record for record in records if attrs_of(record)), records[0])
        facets = self._facets(holder)
        if self._amend(holder, with_attrs(facets, self._masking.json(entity.attrs))):
            self.taken.entities += 1

    def name(self, record: Record, own: str, given: str) -> None:
        """Gives a live entity the id that it has in the log."""
        self._amend(record, self._with_id(self._facets(record), own, given))

    def observe(
        self, entity: EntityState, key: str, observation: ObservationState, at: int
    ) -> Record:
        owner, text = self.owner(entity, key), self._masking.text(observation.text)
        dead = self.index.forgotten.get((key, text))
        self.taken.observations += 1
        own = observation_id(key, text, iso(observation.at))
        if dead is not None and dead.parent == owner:
            self.steps.append(Restore(dead.ref))
            facets = self._with_id(dead.facets, own, observation.id)
            if (dead.at, dead.facets) != (observation.at, facets):
                values = {"occurred_at": observation.at, "facets": facets}
                self.steps.append(Update(dead.id, values, dead.version))
            return replace(dead, id="", occurred_at=observation.at)
        source = {SOURCE: self._masking.json(observation.source)} if observation.source else {}
        record = new_observation(
            owner,
            text,
            at,
            facets=self._with_id(source, own, observation.id),
            occurred_at=observation.at,
        )
        self.steps.append(Insert(record))
        return replace(record, id="")

    def redate(self, record: Record, key: str, observation: ObservationState) -> None:
        """Gives an observation of the entity with this id the time that the log has."""
        own = observation_id(key, record.text, iso(observation.at))
        facets = self._with_id(record.facets, own, observation.id, record)
        values = {"occurred_at": observation.at, "facets": facets}
        self.steps.append(Update(record.id, values, record.version))
        self.taken.observations += 1

    def relate(
        self, entities: tuple[EntityState, EntityState], keys: tuple[str, str], link: RelationState
    ) -> None:
        ends = (self.owner(entities[0], keys[0]), self.owner(entities[1], keys[1]))
        verb = self._masking.text(link.type)
        dead = self.index.unlinked.get(relation_id(keys[0], verb, keys[1]))
        self.taken.relations += 1
        if dead is not None and (dead.source, dead.target) == ends:
            self.steps.append(Restore(dead.ref))
        else:
            new = new_relation(ends[0], verb.strip(), ends[1], link.created_at)
            self.steps.append(Insert(new))

    def remove(self, things: Sequence[Record | Link]) -> None:
        """With all that hangs on one of them, which must be among them."""
        fresh = [thing for thing in things if thing.id not in self._removed]
        records = {thing.id for thing in fresh if isinstance(thing, Record)}
        for thing in fresh:
            if isinstance(thing, Record):
                goes_along = thing.parent in records
            else:
                goes_along = bool(records & {thing.source, thing.target})
            if not goes_along:
                self.steps.append(Delete(thing.ref))
        self.taken.removed += len(fresh)
        self._removed |= {thing.id for thing in fresh}

    def _made(self, entity: EntityState) -> str:
        name, kind = self._masking.text(entity.name), self._masking.text(entity.type)
        attrs = self._masking.json(entity.attrs)
        is_unknown = normalised(kind) == UNKNOWN_TYPE and not attrs
        facets = STUB if is_unknown else with_attrs({}, attrs)
        facets = self._with_id(facets, entity_id(name, kind), entity.id)
        fresh = BY_NAME_AND_TYPE.new(name, kind, entity.created_at, facets)
        fresh = replace(fresh, updated_at=entity.updated_at)
        stub = self.index.stubs.get(fresh.name_key or "")
        if stub is not None and (is_unknown or self.index.ids[stub.id] in self._kept):
            stub = None
        elif stub is not None:
            del self.index.stubs[fresh.name_key or ""]
        step, made = make_entity(fresh, stub)
        self.steps.append(step)
        return made.id

    def _with_id(
        self, facets: Mapping[str, Any], own: str, given: str, record: Record | None = None
    ) -> dict[str, Any]:
        """With the id that the log has, unless something else has it here."""
        if own != given and self.index.shown.get(given) not in (None, record and record.id):
            given = own
        return with_log_id(facets, own, given)

    def _facets(self, record: Record) -> Mapping[str, Any]:
        """As they are after the steps so far."""
        step = self.steps[self._amended[record.id]] if record.id in self._amended else None
        return step.values["facets"] if isinstance(step, Update) else record.facets

    def _amend(self, record: Record, facets: Mapping[str, Any]) -> bool:
        if self._facets(record) == facets:
            return False
        step = Update(record.id, {"facets": facets}, record.version)
        if record.id in self._amended:
            self.steps[self._amended[record.id]] = step
        else:
            self._amended[record.id] = len(self.steps)
            self.steps.append(step)
        return True
