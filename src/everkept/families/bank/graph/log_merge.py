"""The merge of a log into the records: parts that only the log has are added, and nothing is lost."""

from collections.abc import Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Edit, Record, RecordLink, Ref
from everkept.core.secrets import Masker
from everkept.core.times import format_iso
from everkept.families.bank.graph.graph_records import (
    MILLISECOND_MICROSECONDS,
    GraphIndex,
    StepBuilder,
    compute_key,
    find_attrs,
    is_newer,
)
from everkept.families.bank.graph.model import (
    EntityState,
    GraphState,
    LatestEvents,
    ObservationState,
    RelationState,
    compute_entity_id,
    compute_observation_id,
    compute_relation_id,
    get_observation_id,
    get_public_id,
)
from everkept.families.bank.model import MERGE_GRAPH_FILE
from everkept.values import Value, field, replace


class AlignedLog(Value, frozen=False):
    """State of a log, with the records' ids for parts that are the same in both.

    Differences in ids, times and masked secrets are ignored: the program that wrote the log may have its reasons.
    """

    state: GraphState = field(default_factory=GraphState)
    has_doubles: bool = False  # the log has a part under an id that the records do not show


def align_log(then: GraphState, now: GraphState, masking: Masker) -> AlignedLog:
    result = AlignedLog()
    ids = _align_entities(result, then, now, masking)
    places = {(o.entity_id, o.text): key for key, o in now.observations.items()}
    for key, observation in then.observations.items():
        owner = ids[observation.entity_id]
        target = None
        if key not in now.observations:
            text = observation.text
            target = places.get((owner, text)) or places.get((owner, masking.mask(text)))
        _note_double(result, key, target)
        there = now.observations.get(target or key)
        if there is not None and _is_same_observation(observation, owner, there, masking):
            result.state.observations[there.id] = there
        else:
            result.state.observations[key] = observation
    for key, relation in then.relations.items():
        ends = ids[relation.from_id], ids[relation.to_id]
        target = compute_relation_id(ends[0], relation.type, ends[1])
        if target not in now.relations:
            target = compute_relation_id(ends[0], masking.mask(relation.type), ends[1])
        there = now.relations.get(target)
        _note_double(result, key, target if there else None)
        result.state.relations[target if there else key] = there or relation
    return result


def _align_entities(result: AlignedLog, then: GraphState, now: GraphState, masking: Masker) -> dict[str, str]:
    """Map the id of each entity in the log to its id in the records."""
    named = {compute_entity_id(entity.name, entity.type): key for key, entity in now.entities.items()}
    ids: dict[str, str] = {}
    entities = result.state.entities
    for key, entity in then.entities.items():
        own = compute_entity_id(entity.name, entity.type)
        target = key if key in now.entities else named.get(own) or named.get(compute_key(entity, masking))
        ids[key] = target or key
        _note_double(result, key, target)
        # If several entities of the log are one in the records, compare the one with the same id.
        if target is None:
            entities.setdefault(key, entity)
        elif key == target or target not in entities:
            there = now.entities[target]
            told = replace(entity, id=target)
            same = told.is_same_as(there) or _mask_entity(told, masking).is_same_as(there)
            entities[target] = there if same else told
    return ids


def _is_same_observation(told: ObservationState, owner: str, there: ObservationState, masking: Masker) -> bool:
    if owner != there.entity_id:
        return False
    return told.text == there.text or masking.mask(told.text) == there.text


def _mask_entity(entity: EntityState, masking: Masker) -> EntityState:
    name, kind = masking.mask(entity.name).strip(), masking.mask(entity.type).strip()
    return replace(entity, name=name, type=kind, attrs=masking.mask_json(entity.attrs))


def _note_double(result: AlignedLog, key: str, target: str | None) -> None:
    result.has_doubles = result.has_doubles or target not in (None, key)


class MergeBase(Value):
    """The state in which log and records last agreed, and the number of the newest change then."""

    state: GraphState
    seq: int


class LocalEdits(Value, frozen=False):
    """Edits of records and links on this machine, except merges of a log."""

    edits: dict[Ref, list[tuple[int, Edit]]] = field(default_factory=dict[Ref, list[tuple[int, Edit]]])

    def find_time(self, ref: Ref) -> int | None:
        return max((at for at, _ in self.edits.get(ref, ())), default=None)

    def find_attrs_time(self, ref: Ref) -> int | None:
        """Return the time of the last insert or change of facets."""
        found = (
            at for at, edit in self.edits.get(ref, ()) if edit.operation == "insert" or "facets" in (edit.before or {})
        )
        return max(found, default=None)


async def read_local_edits(store: RecordStore, refs: Sequence[Ref], after: int) -> LocalEdits:
    found = LocalEdits()
    if not refs:
        return found
    moments: dict[int, int | None] = {}
    for seq, edit in await store.read_history(refs, after=after):
        if seq not in moments:
            [change] = await store.read_changes(after=seq - 1, limit=1)
            moments[seq] = None if change.tool == MERGE_GRAPH_FILE else change.at
        at = moments[seq]
        if at is not None:
            found.edits.setdefault(Ref(edit.subject, edit.id or ""), []).append((at, edit))
    return found


class LogMerge:
    """One merge of a log into the records.

    With a `base`, parts that the log has not changed since then are skipped: the records differ because of local
    changes. Without a base, the times decide.
    """

    def __init__(self, log: LatestEvents, base: MergeBase | None, index: GraphIndex, masking: Masker) -> None:
        self._log = log
        self._base = base.state if base else None
        self._index = index
        self._masking = masking
        self._entities = {key: put.thing for key, put in log.entities.items() if isinstance(put.thing, EntityState)}
        self._observations = [
            (put.thing, put.at) for put in log.observations.values() if isinstance(put.thing, ObservationState)
        ]
        self._relations = [
            (put.thing, put.at) for put in log.relations.values() if isinstance(put.thing, RelationState)
        ]
        self._own_keys = {key: self._compute_own_key(entity) for key, entity in self._entities.items()}
        self._keys = {key: self._find_key(key, log.entities[key].at) for key in self._entities}
        self._placing = StepBuilder(index, masking, set(self._keys.values()))
        self._related: set[str] = set()
        self._contradicted = self._find_contradicted()
        self._condemned = self._find_dropped()

    def list_disputed(self) -> list[Ref]:
        """List the parts whose local edits `plan` needs."""
        refs = [record.ref for _, records in self._contradicted for record in records]
        refs += [thing.ref for things in self._condemned.values() for thing in things]
        return list(dict.fromkeys(refs))

    def plan(self, known: LocalEdits) -> StepBuilder:
        self._assign_ids()
        for entity, records in self._contradicted:
            if self._should_prevail(entity, records, known):
                self._placing.set_attrs(entity, self._keys[entity.id])
        for key, entity in self._entities.items():
            if not self._index.live.get(self._keys[key]) and self._should_add(key, entity):
                self._placing.ensure_entity(entity, self._keys[key])
        for observation, at in self._observations:
            self._add_observation(observation, at)
        for relation, at in self._relations:
            self._add_relation(relation, at)
        for key, things in self._condemned.items():
            if self._should_remove(self._log.dropped[key], things, known):
                self._placing.remove(things)
        return self._placing

    def _assign_ids(self) -> None:
        """Give entities the id that they have in the log, if the log computes ids differently."""
        given: dict[str, list[str]] = {}
        for key, own in self._own_keys.items():
            if self._keys[key] == own:
                given.setdefault(own, []).append(key)
        for own, keys in given.items():
            first = own if own in keys else min(keys, key=lambda key: self._log.told[key][0].at)
            for record in self._index.live.get(own, ()):
                if get_public_id(record) not in keys:
                    self._placing.set_public_id(record, own, first)

    def _compute_own_key(self, entity: EntityState) -> str:
        # Masking is slow, and a key that the records have needs none.
        key = compute_entity_id(entity.name, entity.type)
        return key if key in self._index.live else compute_key(entity, self._masking)

    def _compute_place(self, observation: ObservationState, at: int) -> tuple[str, str]:
        place = (self._find_key(observation.entity_id, at), observation.text)
        if place in self._index.observed:
            return place
        return place[0], self._masking.mask(observation.text)

    def _find_key(self, entity: str, at: int) -> str:
        """Return our id of the entity that the log referred to at this time."""
        # An entity is at least as old as everything that refers to it, whatever the times say.
        first = min(put.at for put in self._log.told[entity])
        known = self._log.entities[entity].at
        return self._index.find_current_id(self._own_keys[entity], max(first, at), known)

    def _find_contradicted(self) -> list[tuple[EntityState, list[Record]]]:
        """Return live entities whose attributes differ from the log's."""
        found: list[tuple[EntityState, list[Record]]] = []
        # A renamed entity may be in the log under each of its names.
        ordered = sorted(self._entities, key=lambda key: self._log.entities[key].at)
        newest = {self._keys[key]: key for key in ordered}
        for key in newest.values():
            entity = self._entities[key]
            records = self._index.live.get(self._keys[key])
            before = self._base.entities.get(key) if self._base else None
            if not records or (before is not None and before.attrs == entity.attrs):
                continue
            if find_attrs(records) != self._masking.mask_json(entity.attrs):
                found.append((entity, records))
        return found

    def _should_prevail(self, entity: EntityState, records: Sequence[Record], known: LocalEdits) -> bool:
        at = self._log.entities[entity.id].at
        here = [moment for r in records if (moment := known.find_attrs_time(r.ref)) is not None]
        if self._base is not None and entity.id in self._base.entities:
            return not here or is_newer(at, max(here))
        attrs = find_attrs(records)
        if not attrs:
            return True
        if here:
            return is_newer(at, max(here))
        # Attributes that came from a log have their time there, as long as the log still has them.
        told = any(isinstance(put.thing, EntityState) and put.thing.attrs == attrs for put in self._log.told[entity.id])
        return told or is_newer(at, max(record.updated_at for record in records))

    def _should_add(self, key: str, entity: EntityState) -> bool:
        before = self._base.entities.get(key) if self._base else None
        if before is not None and self._compute_own_key(before) != self._own_keys[key]:
            before = None  # that was another entity
        dead = self._index.dead.get(self._keys[key])
        if before is not None and (dead is None or before.is_same_as(entity)):
            return False  # purged, renamed or deleted here since then
        return dead is None or is_newer(self._log.entities[key].at, dead.deleted_at or 0)

    def _add_observation(self, observation: ObservationState, at: int) -> None:
        entity = self._entities[observation.entity_id]
        place = self._compute_place(observation, at)
        known_before = self._base is not None and observation.id in self._base.observations
        if place[0] != self._own_keys[observation.entity_id]:
            # An observation that moves to an entity renamed here gets a new id.
            observation = replace(observation, id=compute_observation_id(*place, format_iso(observation.at)))
        if there := self._index.observed.get(place):
            # If two programs noted the same observation, the earlier time wins.
            if is_newer(there.effective_at, observation.at) and not known_before and there.id:
                self._placing.set_time(there, place[0], observation)
                self._index.observed[place] = replace(there, id="", occurred_at=observation.at)
            return
        if known_before or not self._can_return([place[0]], at):
            return
        dead = self._index.forgotten.get(place)
        if dead is None or is_newer(at, dead.deleted_at or 0):
            self._index.observed[place] = self._placing.add_observation(entity, place[0], observation, at)

    def _add_relation(self, relation: RelationState, at: int) -> None:
        ends = (self._find_key(relation.from_id, at), self._find_key(relation.to_id, at))
        key = self._compute_relation_key(relation, at)
        known_before = self._base is not None and relation.id in self._base.relations
        if key in self._related or key in self._index.linked:
            return
        if known_before or not self._can_return(ends, at):
            return
        dead = self._index.unlinked.get(key)
        if dead is None or is_newer(at, dead.deleted_at or 0):
            entities = self._entities[relation.from_id], self._entities[relation.to_id]
            self._placing.add_relation(entities, ends, relation)
            self._related.add(key)

    def _compute_relation_key(self, relation: RelationState, at: int) -> str:
        ends = (self._find_key(relation.from_id, at), self._find_key(relation.to_id, at))
        return compute_relation_id(ends[0], self._masking.mask(relation.type), ends[1])

    def _can_return(self, owners: Sequence[str], at: int) -> bool:
        """Return whether a part is newer than the deletion of the entities it belongs to."""
        gone = [
            dead.deleted_at or 0
            for owner in owners
            if not self._index.live.get(owner) and (dead := self._index.dead.get(owner)) is not None
        ]
        return all(is_newer(at, deleted_at) for deleted_at in gone)

    def _find_dropped(self) -> dict[str, list[Record | RecordLink]]:
        """Map each id that the log drops to the live records and links that a deletion would remove."""
        if not self._log.dropped:
            return {}
        named = _PartsByPublicId(self._index)
        said = {self._compute_place(observation, at) for observation, at in self._observations}
        related = {self._compute_relation_key(relation, at) for relation, at in self._relations}
        living = set(self._keys.values())
        found: dict[str, list[Record | RecordLink]] = {}
        for key in self._log.dropped:
            base = self._base
            if base is not None and not any(key in kind for kind in (base.entities, base.observations, base.relations)):
                continue  # created here since then
            own = self._find_own_id(key) or named.entities.get(key, key)
            # The log may have the same part under another id.
            if own in self._index.live:
                if own not in living:
                    found[key] = self._index.collect_family(self._index.live[own])
            elif (record := self._find_dropped_observation(key) or named.observed.get(key)) is not None:
                if (self._index.ids[record.parent or ""], record.text) not in said:
                    found[key] = [record]
            else:
                relation = self._find_dropped_relation(key) or named.linked.get(key, key)
                if relation in self._index.linked and relation not in related:
                    found[key] = [*self._index.linked[relation]]
        return found

    def _find_own_id(self, key: str) -> str | None:
        """Return our id of an entity that the log has or had."""
        thing = self._log.last[key].thing if key in self._log.last else None
        return self._compute_own_key(thing) if isinstance(thing, EntityState) else None

    def _find_dropped_observation(self, key: str) -> Record | None:
        thing = self._log.last[key].thing if key in self._log.last else None
        if not isinstance(thing, ObservationState):
            return None
        owner = self._find_own_id(thing.entity_id) or thing.entity_id
        there = self._index.observed.get((owner, thing.text))
        return there or self._index.observed.get((owner, self._masking.mask(thing.text)))

    def _find_dropped_relation(self, key: str) -> str | None:
        thing = self._log.last[key].thing if key in self._log.last else None
        if not isinstance(thing, RelationState):
            return None
        ends = [self._find_own_id(end) or end for end in (thing.from_id, thing.to_id)]
        return compute_relation_id(ends[0], self._masking.mask(thing.type), ends[1])

    def _should_remove(self, at: int, things: Sequence[Record | RecordLink], known: LocalEdits) -> bool:
        here = [moment for thing in things if (moment := known.find_time(thing.ref)) is not None]
        made = [thing.created_at for thing in things] if self._base is None else []
        return all(is_newer(at, moment) for moment in (*here, *made))


class _PartsByPublicId:
    """Live parts of the records by public id."""

    def __init__(self, index: GraphIndex) -> None:
        live = [record for records in index.live.values() for record in records]
        public = {record.id: get_public_id(record) for record in live}
        self.entities = {public[record.id]: index.ids[record.id] for record in live}
        self.observed = {
            get_observation_id(record, index.entities[record.parent or ""]): record
            for record in index.observed.values()
        }
        self.linked = {
            compute_relation_id(public[link.source], link.verb, public[link.target]): key
            for key, links in index.linked.items()
            for link in links
            if link.source in public and link.target in public
        }


def plan_restore(state: GraphState, index: GraphIndex, masking: Masker) -> StepBuilder:
    """Return the steps after which the records hold exactly this state."""
    # A stub that the state lacks is removed; it does not become another entity.
    placing = StepBuilder(index, masking, {index.ids[stub.id] for stub in index.stubs.values()})
    keys = {key: compute_key(entity, masking) for key, entity in state.entities.items()}
    for key, entity in state.entities.items():
        if index.live.get(keys[key]):
            placing.set_attrs(entity, keys[key])
        else:
            placing.ensure_entity(entity, keys[key])
    wanted: set[tuple[str, str]] = set()
    for observation in state.observations.values():
        key = keys[observation.entity_id]
        place = (key, masking.mask(observation.text))
        if place in wanted:
            continue
        wanted.add(place)
        if (there := index.observed.get(place)) is None:
            entity = state.entities[observation.entity_id]
            placing.add_observation(entity, key, observation, observation.at)
        elif there.effective_at // MILLISECOND_MICROSECONDS != observation.at // MILLISECOND_MICROSECONDS:
            placing.set_time(there, key, observation)
    related: set[str] = set()
    for relation in state.relations.values():
        ends = keys[relation.from_id], keys[relation.to_id]
        key = compute_relation_id(ends[0], masking.mask(relation.type), ends[1])
        if key not in related and key not in index.linked:
            entities = state.entities[relation.from_id], state.entities[relation.to_id]
            placing.add_relation(entities, ends, relation)
        related.add(key)
    living = set(keys.values())
    for key, records in index.live.items():
        if key not in living:
            placing.remove(index.collect_family(records))
    placing.remove([r for place, r in index.observed.items() if place not in wanted])
    placing.remove([x for key, links in index.linked.items() if key not in related for x in links])
    return placing
