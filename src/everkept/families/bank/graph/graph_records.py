"""The graph in the records of a project, and the steps that add, change and delete its parts."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.records import Delete, Insert, Record, RecordFilter, RecordLink, Restore, Step, Update
from everkept.core.secrets import Masker
from everkept.core.text import compute_name_key
from everkept.core.times import format_iso
from everkept.families.bank.graph.model import (
    LOG_IDS_FACET,
    SOURCE_FACET,
    EntityState,
    GraphState,
    ObservationState,
    RelationState,
    compute_entity_id,
    compute_observation_id,
    compute_own_id,
    compute_relation_id,
    get_attrs,
    get_observation_id,
    get_public_id,
    resolve_observation_id,
    with_attrs,
    with_log_id,
)
from everkept.graph.entities import (
    BY_NAME_AND_TYPE,
    ENTITY,
    OBSERVATION,
    STUB_FACETS,
    UNKNOWN_TYPE,
    build_entity_step,
    build_observation,
    build_relation,
    is_stub,
)
from everkept.values import Value, field, replace

MAX_READ_ATTEMPTS = 5  # while other processes change the store; the next change brings missed data


class GraphRecords(Value, frozen=False):
    """All records and links of a graph at one revision, including deleted ones."""

    revision: int = 0
    entities: dict[str, Record] = field(default_factory=dict[str, Record])
    observations: list[Record] = field(default_factory=list[Record])
    links: list[RecordLink] = field(default_factory=list[RecordLink])

    def build_live(self) -> GraphState:
        entities = {key: e for key, e in self.entities.items() if e.deleted_at is None}
        observations = [record for record in self.observations if record.deleted_at is None]
        links = [link for link in self.links if link.deleted_at is None]
        return build_state(
            entities.values(),
            observations,
            links,
            entities,
            lambda x: x.updated_at if isinstance(x, Record) else x.created_at,
        )

    def build_deleted(self) -> GraphState:
        """Build the state of the deleted parts, with the times of their deletion."""
        entities = [record for record in self.entities.values() if record.deleted_at is not None]
        observations = [record for record in self.observations if record.deleted_at is not None]
        links = [link for link in self.links if link.deleted_at is not None]
        return build_state(entities, observations, links, self.entities, lambda x: x.deleted_at or 0)


async def load_graph(store: RecordStore) -> GraphRecords:
    graph = GraphRecords()
    for _ in range(MAX_READ_ATTEMPTS):
        graph = await _read_graph(store)
        if await store.get_revision() == graph.revision:
            break
    return graph


async def _read_graph(store: RecordStore) -> GraphRecords:
    revision = await store.get_revision()
    entities = await store.scan(RecordFilter(kinds=(ENTITY,), deleted=None))
    observations = await store.scan(RecordFilter(kinds=(OBSERVATION,), deleted=None))
    links = await store.scan_links(deleted=None)
    by_id = {record.id: record for record in entities}
    between = [link for link in links if link.source in by_id and link.target in by_id]
    return GraphRecords(revision, by_id, observations, between)


def build_state(
    listed: Iterable[Record],
    observations: Iterable[Record],
    links: Iterable[RecordLink],
    among: Mapping[str, Record],
    when: Callable[[Record | RecordLink], int],
) -> GraphState:
    """Build the public form; `among` has the owning entities. Entities that differ only in spelling become one."""
    state = GraphState()
    ids = {record_id: get_public_id(entity) for record_id, entity in among.items()}

    def note(key: str, thing: Record | RecordLink) -> None:
        state.times[key] = max(when(thing), state.times.get(key, 0))

    groups: dict[str, list[Record]] = {}
    for entity in listed:
        groups.setdefault(ids[entity.id], []).append(entity)
        note(ids[entity.id], entity)
    state.entities = {key: _build_entity_state(key, records) for key, records in groups.items()}
    # If two observations have one id, the one with an id from the log gets its own id.
    for record in sorted(observations, key=lambda record: LOG_IDS_FACET in record.facets):
        if (owner := among.get(record.parent or "")) is not None:
            observation = _build_observation_state(owner, ids[owner.id], record)
            if observation.is_different_from(state.observations.get(observation.id)):
                plain = replace(record, facets={**record.facets, LOG_IDS_FACET: {}})
                observation = _build_observation_state(owner, ids[owner.id], plain)
            state.observations[observation.id] = observation
            note(observation.id, record)
    for link in sorted(links, key=lambda link: (link.created_at, link.id)):
        source, target = ids.get(link.source), ids.get(link.target)
        if source is not None and target is not None:
            key = compute_relation_id(source, link.verb, target)
            relation = RelationState(source, target, link.verb, link.created_at)
            state.relations.setdefault(key, relation)
            note(key, link)
    return state


def _build_entity_state(key: str, records: Sequence[Record]) -> EntityState:
    """Merge spellings of one entity: the oldest name, and the attributes of the first record that has any."""
    ordered = sorted(records, key=lambda record: (record.created_at, record.id))
    return EntityState(
        key,
        ordered[0].name or "",
        ordered[0].type or "",
        find_attrs(ordered),
        ordered[0].created_at,
        max(record.updated_at for record in ordered),
    )


def find_attrs(records: Iterable[Record]) -> dict[str, Any]:
    nothing: dict[str, Any] = {}
    return next((found for record in records if (found := get_attrs(record))), nothing)


def _build_observation_state(owner: Record, public: str, record: Record) -> ObservationState:
    # Our own id of the owner matters only if the log uses another one.
    own = compute_own_id(owner) if LOG_IDS_FACET in record.facets else public
    key = resolve_observation_id(own, public, record)
    return ObservationState(key, public, record.text, record.facets.get(SOURCE_FACET), record.effective_at)


MILLISECOND_MICROSECONDS = 1_000  # the log format rounds times to milliseconds


def is_newer(at: int, than: int) -> bool:
    return at // MILLISECOND_MICROSECONDS > than // MILLISECOND_MICROSECONDS


class MergeCounts(Value, frozen=False):
    """Numbers of added or changed parts, and of removed ones."""

    entities: int = 0
    observations: int = 0
    relations: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.entities + self.observations + self.relations + self.removed


class FormerHolder(Value):
    """A record that had a public id until a time."""

    record: str
    until: int


class GraphIndex:
    """Records of a graph by the keys that identify the same part in another graph."""

    def __init__(self, graph: GraphRecords, former: Mapping[str, Sequence[FormerHolder]] | None = None) -> None:
        self.live: dict[str, list[Record]] = {}
        self.dead: dict[str, Record] = {}  # the one deleted last
        self.stubs: dict[str, Record] = {}
        self.observed: dict[tuple[str, str], Record] = {}
        self.forgotten: dict[tuple[str, str], Record] = {}
        self.children: dict[str, list[Record]] = {}
        self.linked: dict[str, list[RecordLink]] = {}
        self.unlinked: dict[str, RecordLink] = {}
        self.beside: dict[str, list[RecordLink]] = {}
        self.ids = {record.id: compute_own_id(record) for record in graph.entities.values()}
        self.entities = graph.entities
        self._former = former or {}
        self._places = {(r.name_key, r.variant) for r in graph.entities.values() if r.deleted_at is None}
        self._add_entities(graph)
        self._add_observations(graph)
        self._add_links(graph)

    def find_current_id(self, key: str, at: int, known: int) -> str:
        """Return the current public id of the entity that a log called `key` at a time.

        `known` is the time of the log's last event about the entity. If another program added to an entity after it was
        renamed here, it meant the entity under its former name.
        """
        holder = self._find_holder(key, at)
        if holder is None and key not in self.live and key not in self.dead:
            holder = self._find_holder(key, known)
        return key if holder is None else self.ids.get(holder, key)

    def _find_holder(self, key: str, at: int) -> str | None:
        """Return the record that lost the id after this time. Return None if the holder was deleted with the id."""
        dead = self.dead.get(key)
        if dead is not None and at <= (dead.deleted_at or 0):
            return None
        held = [former for former in self._former.get(key, ()) if at <= former.until]
        return min(held, key=lambda former: former.until).record if held else None

    @cached_property
    def records_by_public_id(self) -> dict[str, str]:
        """The record of each public id of live entities and observations."""
        live = [record for records in self.live.values() for record in records]
        below = self.observed.values()
        return {get_public_id(record): record.id for record in live} | {
            get_observation_id(record, self.entities[record.parent or ""]): record.id for record in below if record.id
        }

    def is_place_taken(self, dead: Record) -> bool:
        """Return whether a live entity has the name key and variant of a deleted one."""
        return (dead.name_key, dead.variant) in self._places

    def _add_entities(self, graph: GraphRecords) -> None:
        for record in sorted(graph.entities.values(), key=lambda r: (r.created_at, r.id)):
            key = self.ids[record.id]
            if record.deleted_at is not None:
                self.dead[key] = _pick_later(self.dead.get(key), record)
                continue
            self.live.setdefault(key, []).append(record)
            if is_stub(record):
                self.stubs[record.name_key or ""] = record

    def _add_observations(self, graph: GraphRecords) -> None:
        for record in graph.observations:
            owner = graph.entities.get(record.parent or "")
            if owner is None:
                continue
            key = (self.ids[owner.id], record.text)
            if record.deleted_at is not None:
                self.forgotten[key] = _pick_later(self.forgotten.get(key), record)
            elif owner.deleted_at is None:
                self.observed.setdefault(key, record)
                self.children.setdefault(owner.id, []).append(record)

    def collect_family(self, records: Sequence[Record]) -> list[Record | RecordLink]:
        """Return live entities with their observations and relations."""
        found: list[Record | RecordLink] = list(records)
        for record in records:
            found += self.children.get(record.id, [])
            found += self.beside.get(record.id, [])
        return list({thing.id: thing for thing in found}.values())

    def _add_links(self, graph: GraphRecords) -> None:
        for link in graph.links:
            key = compute_relation_id(self.ids[link.source], link.verb, self.ids[link.target])
            if link.deleted_at is not None:
                before = self.unlinked.get(key)
                if before is None or (before.deleted_at or 0) < link.deleted_at:
                    self.unlinked[key] = link
                continue
            self.linked.setdefault(key, []).append(link)
            for end in {link.source, link.target}:
                self.beside.setdefault(end, []).append(link)


def _pick_later(known: Record | None, record: Record) -> Record:
    if known is None or (known.deleted_at or 0) <= (record.deleted_at or 0):
        return record
    return known


def compute_key(entity: EntityState, masking: Masker) -> str:
    """Return our id of an entity; a log may compute another one."""
    return compute_entity_id(masking.mask(entity.name), masking.mask(entity.type))


class StepBuilder:
    """Builds the steps that add parts to the records, each part once."""

    def __init__(self, index: GraphIndex, masking: Masker, kept: Set[str]) -> None:
        self.index = index
        self.steps: list[Step] = []
        self.taken = MergeCounts()
        self._masking = masking
        self._kept = kept  # public ids of entities that must not change
        self._placed: dict[str, str] = {}
        self._removed: set[str] = set()
        self._amended: dict[str, int] = {}  # record ids, with the index of the step that changes their facets

    def ensure_entity(self, entity: EntityState, key: str) -> str:
        """Return the record id of the entity with our id `key`. Create or restore the record if it is not live."""
        if key in self._placed:
            return self._placed[key]
        if live := self.index.live.get(key):
            self._placed[key] = live[0].id
        elif (dead := self.index.dead.get(key)) and not self.index.is_place_taken(dead):
            self._placed[key] = dead.id
            self.steps.append(Restore(dead.ref))
            facets = with_attrs(dead.facets, self._masking.mask_json(entity.attrs))
            # An entity that was renamed here has an id of ours.
            given = entity.id if compute_key(entity, self._masking) == key else key
            self._amend(dead, self._with_id(facets, key, given))
            self.taken.entities += 1
        else:
            self._placed[key] = self._create_entity(entity)
            self.taken.entities += 1
        return self._placed[key]

    def set_attrs(self, entity: EntityState, key: str) -> None:
        """Replace the attributes of a live entity."""
        records = self.index.live[key]
        holder = next((record for record in records if get_attrs(record)), records[0])
        facets = self._get_facets(holder)
        if self._amend(holder, with_attrs(facets, self._masking.mask_json(entity.attrs))):
            self.taken.entities += 1

    def set_public_id(self, record: Record, own: str, given: str) -> None:
        """Give a live entity the id that it has in the log."""
        self._amend(record, self._with_id(self._get_facets(record), own, given))

    def add_observation(self, entity: EntityState, key: str, observation: ObservationState, at: int) -> Record:
        owner, text = self.ensure_entity(entity, key), self._masking.mask(observation.text)
        dead = self.index.forgotten.get((key, text))
        self.taken.observations += 1
        own = compute_observation_id(key, text, format_iso(observation.at))
        if dead is not None and dead.parent == owner:
            self.steps.append(Restore(dead.ref))
            facets = self._with_id(dead.facets, own, observation.id)
            if (dead.effective_at, dead.facets) != (observation.at, facets):
                values = {"occurred_at": observation.at, "facets": facets}
                self.steps.append(Update(dead.id, values, dead.version))
            return replace(dead, id="", occurred_at=observation.at)
        source = {SOURCE_FACET: self._masking.mask_json(observation.source)} if observation.source else {}
        record = build_observation(
            owner, text, at, facets=self._with_id(source, own, observation.id), occurred_at=observation.at
        )
        self.steps.append(Insert(record))
        return replace(record, id="")

    def set_time(self, record: Record, key: str, observation: ObservationState) -> None:
        """Give an observation of entity `key` the time that it has in the log."""
        own = compute_observation_id(key, record.text, format_iso(observation.at))
        facets = self._with_id(record.facets, own, observation.id, record)
        values = {"occurred_at": observation.at, "facets": facets}
        self.steps.append(Update(record.id, values, record.version))
        self.taken.observations += 1

    def add_relation(
        self, entities: tuple[EntityState, EntityState], keys: tuple[str, str], link: RelationState
    ) -> None:
        ends = (self.ensure_entity(entities[0], keys[0]), self.ensure_entity(entities[1], keys[1]))
        verb = self._masking.mask(link.type)
        dead = self.index.unlinked.get(compute_relation_id(keys[0], verb, keys[1]))
        self.taken.relations += 1
        if dead is not None and (dead.source, dead.target) == ends:
            self.steps.append(Restore(dead.ref))
        else:
            new = build_relation(ends[0], verb.strip(), ends[1], link.created_at)
            self.steps.append(Insert(new))

    def remove(self, things: Sequence[Record | RecordLink]) -> None:
        """Delete these parts. Observations and relations of a deleted entity must be among them."""
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

    def _create_entity(self, entity: EntityState) -> str:
        name, kind = self._masking.mask(entity.name), self._masking.mask(entity.type)
        attrs = self._masking.mask_json(entity.attrs)
        is_unknown = compute_name_key(kind) == UNKNOWN_TYPE and not attrs
        facets = STUB_FACETS if is_unknown else with_attrs({}, attrs)
        facets = self._with_id(facets, compute_entity_id(name, kind), entity.id)
        fresh = BY_NAME_AND_TYPE.build_entity(name, kind, entity.created_at, facets)
        fresh = replace(fresh, updated_at=entity.updated_at)
        stub = self.index.stubs.get(fresh.name_key or "")
        if stub is not None and (is_unknown or self.index.ids[stub.id] in self._kept):
            stub = None
        elif stub is not None:
            del self.index.stubs[fresh.name_key or ""]
        step, made = build_entity_step(fresh, stub)
        self.steps.append(step)
        return made.id

    def _with_id(self, facets: Mapping[str, Any], own: str, given: str, record: Record | None = None) -> dict[str, Any]:
        """Add the log's id to the facets, unless another record has that id here."""
        if own != given and self.index.records_by_public_id.get(given) not in (None, record and record.id):
            given = own
        return with_log_id(facets, own, given)

    def _get_facets(self, record: Record) -> Mapping[str, Any]:
        """Return the facets after the steps so far."""
        step = self.steps[self._amended[record.id]] if record.id in self._amended else None
        return step.values["facets"] if isinstance(step, Update) else record.facets

    def _amend(self, record: Record, facets: Mapping[str, Any]) -> bool:
        if self._get_facets(record) == facets:
            return False
        step = Update(record.id, {"facets": facets}, record.version)
        if record.id in self._amended:
            self.steps[self._amended[record.id]] = step
        else:
            self._amended[record.id] = len(self.steps)
            self.steps.append(step)
        return True
