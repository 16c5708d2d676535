"""The merge of a log into the records: what it has and they lack comes in, and nothing is lost."""

from collections.abc import Callable, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Edit, Link, Record, Ref
from everkept.core.secrets import Masking
from everkept.core.times import iso
from everkept.families.bank.graph.graph_records import (
    MILLISECOND,
    Index,
    Placing,
    attrs_among,
    key_of,
)
from everkept.families.bank.graph.model import (
    EntityState,
    Event,
    GraphState,
    Heard,
    ObservationState,
    RelationState,
    difference,
    entity_id,
    observation_id,
    observation_public_id,
    public_id,
    relation_id,
)
from everkept.families.bank.model import TAKE_IN
from everkept.values import Value, field, replace


class Aligned(Value, frozen=False):
    """What a log tells, with the ids of the records for all that says the same there.

    Ids, times and secrets do not count: whoever wrote the log has reasons for what stands in it.
    """

    state: GraphState = field(default_factory=GraphState)
    has_doubles: bool = False  # something stands there under an id that the records do not show

    def lacks(self, now: GraphState, at: Callable[[str], int]) -> list[Event]:
        """The events by which the log tells the graph of the records."""
        return difference(self.state, now, at)


def aligned(then: GraphState, now: GraphState, masking: Masking) -> Aligned:
    result = Aligned()
    ids = _align_entities(result, then, now, masking)
    places = {(o.entity_id, o.text): key for key, o in now.observations.items()}
    for key, observation in then.observations.items():
        owner = ids[observation.entity_id]
        target = None
        if key not in now.observations:
            text = observation.text
            target = places.get((owner, text)) or places.get((owner, masking.text(text)))
        _keep(result, key, target)
        there = now.observations.get(target or key)
        if there is not None and _says_the_same(observation, owner, there, masking):
            result.state.observations[there.id] = there
        else:
            result.state.observations[key] = observation
    for key, relation in then.relations.items():
        ends = ids[relation.from_id], ids[relation.to_id]
        target = relation_id(ends[0], relation.type, ends[1])
        if target not in now.relations:
            target = relation_id(ends[0], masking.text(relation.type), ends[1])
        there = now.relations.get(target)
        _keep(result, key, target if there else None)
        result.state.relations[target if there else key] = there or relation
    return result


def _align_entities(
    result: Aligned, then: GraphState, now: GraphState, masking: Masking
) -> dict[str, str]:
    """The ids of the log's entities, each with the one that it has in the records."""
    named = {entity_id(entity.name, entity.type): key for key, entity in now.entities.items()}
    ids: dict[str, str] = {}
    entities = result.state.entities
    for key, entity in then.entities.items():
        own = entity_id(entity.name, entity.type)
        target = (
            key if key in now.entities else named.get(own) or named.get(key_of(entity, masking))
        )
        ids[key] = target or key
        _keep(result, key, target)
        # Of several that are one in the records, the one with the same id is compared.
        if target is None:
            entities.setdefault(key, entity)
        elif key == target or target not in entities:
            there = now.entities[target]
            told = replace(entity, id=target)
            same = told.says_the_same(there) or _masked(told, masking).says_the_same(there)
            entities[target] = there if same else told
    return ids


def _says_the_same(
    told: ObservationState, owner: str, there: ObservationState, masking: Masking
) -> bool:
    if owner != there.entity_id:
        return False
    return told.text == there.text or masking.text(told.text) == there.text


def _masked(entity: EntityState, masking: Masking) -> EntityState:
    name, kind = masking.text(entity.name).strip(), masking.text(entity.type).strip()
    return replace(entity, name=name, type=kind, attrs=masking.json(entity.attrs))


def _keep(result: Aligned, key: str, target: str | None) -> None:
    result.has_doubles = result.has_doubles or target not in (None, key)


def is_newer(at: int, than: int) -> bool:
    return at // MILLISECOND > than // MILLISECOND


class Base(Value):
    """The state in which file and records agreed last, and the number of the change of then."""

    state: GraphState
    seq: int


class Touches(Value, frozen=False):
    """When things were changed here, by anything but a file."""

    edits: dict[Ref, list[tuple[int, Edit]]] = field(
        default_factory=dict[Ref, list[tuple[int, Edit]]]
    )

    def of(self, ref: Ref) -> int | None:
        return max((at for at, _ in self.edits.get(ref, ())), default=None)

    def of_attrs(self, ref: Ref) -> int | None:
        """The making counts, and what changed facets."""
        found = (
            at
            for at, edit in self.edits.get(ref, ())
            if edit.operation == "insert" or "facets" in (edit.before or {})
        )
        return max(found, default=None)


async def touches(store: RecordStore, refs: Sequence[Ref], after: int) -> Touches:
    found = Touches()
    if not refs:
        return found
    moments: dict[int, int | None] = {}
    for seq, edit in await store.history(refs, after=after):
        if seq not in moments:
            [change] = await store.changes(after=seq - 1, limit=1)
            moments[seq] = None if change.tool == TAKE_IN else change.at
        at = moments[seq]
        if at is not None:
            found.edits.setdefault(Ref(edit.subject, edit.id or ""), []).append((at, edit))
    return found


class Merge:
    """One comparison of a log with the records.

    With a `base`, what the log has as it was then is left to the records: whatever they have
    otherwise was done here. Without one, the times decide.
    """

    def __init__(self, log: Heard, base: Base | None, index: Index, masking: Masking) -> None:
        self._log = log
        self._base = base.state if base else None
        self._index = index
        self._masking = masking
        self._entities = {
            key: put.thing
            for key, put in log.entities.items()
            if isinstance(put.thing, EntityState)
        }
        self._observations = [
            (put.thing, put.at)
            for put in log.observations.values()
            if isinstance(put.thing, ObservationState)
        ]
        self._relations = [
            (put.thing, put.at)
            for put in log.relations.values()
            if isinstance(put.thing, RelationState)
        ]
        self._own_keys = {key: self._own_key(entity) for key, entity in self._entities.items()}
        self._keys = {key: self._key(key, log.entities[key].at) for key in self._entities}
        self._placing = Placing(index, masking, set(self._keys.values()))
        self._related: set[str] = set()
        self._contradicted = self._find_contradicted()
        self._condemned = self._find_condemned()

    def disputed(self) -> list[Ref]:
        """The things of which must be known when they were changed here."""
        refs = [record.ref for _, records in self._contradicted for record in records]
        refs += [thing.ref for things in self._condemned.values() for thing in things]
        return list(dict.fromkeys(refs))

    def plan(self, known: Touches) -> Placing:
        self._name()
        for entity, records in self._contradicted:
            if self._prevails(entity, records, known):
                self._placing.describe(entity, self._keys[entity.id])
        for key, entity in self._entities.items():
            if not self._index.live.get(self._keys[key]) and self._comes_in(key, entity):
                self._placing.owner(entity, self._keys[key])
        for observation, at in self._observations:
            self._observe(observation, at)
        for relation, at in self._relations:
            self._relate(relation, at)
        for key, things in self._condemned.items():
            if self._falls(self._log.dropped[key], things, known):
                self._placing.remove(things)
        return self._placing

    def _name(self) -> None:
        """What stands in the log under an id that was made in another way has it here, too."""
        given: dict[str, list[str]] = {}
        for key, own in self._own_keys.items():
            if self._keys[key] == own:
                given.setdefault(own, []).append(key)
        for own, keys in given.items():
            first = own if own in keys else min(keys, key=lambda key: self._log.told[key][0].at)
            for record in self._index.live.get(own, ()):
                if public_id(record) not in keys:
                    self._placing.name(record, own, first)

    def _own_key(self, entity: EntityState) -> str:
        # What stands in the records as it is needs no looking for secrets.
        key = entity_id(entity.name, entity.type)
        return key if key in self._index.live else key_of(entity, self._masking)

    def _place(self, observation: ObservationState, at: int) -> tuple[str, str]:
        place = (self._key(observation.entity_id, at), observation.text)
        if place in self._index.observed:
            return place
        return place[0], self._masking.text(observation.text)

    def _key(self, entity: str, at: int) -> str:
        """Our id of the entity that the log meant at this time."""
        # An entity is no younger than what is said of it, whatever the times say.
        first = min(put.at for put in self._log.told[entity])
        known = self._log.entities[entity].at
        return self._index.current(self._own_keys[entity], max(first, at), known)

    def _find_contradicted(self) -> list[tuple[EntityState, list[Record]]]:
        """Live entities with other attributes than the log gives them."""
        found: list[tuple[EntityState, list[Record]]] = []
        # One that was renamed may stand in the log under each of its names.
        ordered = sorted(self._entities, key=lambda key: self._log.entities[key].at)
        newest = {self._keys[key]: key for key in ordered}
        for key in newest.values():
            entity = self._entities[key]
            records = self._index.live.get(self._keys[key])
            before = self._base.entities.get(key) if self._base else None
            if not records or (before is not None and before.attrs == entity.attrs):
                continue
            if attrs_among(records) != self._masking.json(entity.attrs):
                found.append((entity, records))
        return found

    def _prevails(self, entity: EntityState, records: Sequence[Record], known: Touches) -> bool:
        at = self._log.entities[entity.id].at
        here = [moment for r in records if (moment := known.of_attrs(r.ref)) is not None]
        if self._base is not None and entity.id in self._base.entities:
            return not here or is_newer(at, max(here))
        attrs = attrs_among(records)
        if not attrs:
            return True
        if here:
            return is_newer(at, max(here))
        # What came from a file has its time in the file, as long as it still stands there.
        told = any(
            isinstance(put.thing, EntityState) and put.thing.attrs == attrs
            for put in self._log.told[entity.id]
        )
        return told or is_newer(at, max(record.updated_at for record in records))

    def _comes_in(self, key: str, entity: EntityState) -> bool:
        before = self._base.entities.get(key) if self._base else None
        if before is not None and self._own_key(before) != self._own_keys[key]:
            before = None  # that was another one
        dead = self._index.dead.get(self._keys[key])
        if before is not None and (dead is None or before.says_the_same(entity)):
            return False  # purged here since, renamed or deleted
        return dead is None or is_newer(self._log.entities[key].at, dead.deleted_at or 0)

    def _observe(self, observation: ObservationState, at: int) -> None:
        entity = self._entities[observation.entity_id]
        place = self._place(observation, at)
        known_before = self._base is not None and observation.id in self._base.observations
        if place[0] != self._own_keys[observation.entity_id]:
            # What goes to an entity that was renamed here is told anew.
            observation = replace(observation, id=observation_id(*place, iso(observation.at)))
        if there := self._index.observed.get(place):
            # Two who noted the same agree on the earlier time.
            if is_newer(there.at, observation.at) and not known_before and there.id:
                self._placing.redate(there, place[0], observation)
                self._index.observed[place] = replace(there, id="", occurred_at=observation.at)
            return
        if known_before or not self._may_return([place[0]], at):
            return
        dead = self._index.forgotten.get(place)
        if dead is None or is_newer(at, dead.deleted_at or 0):
            self._index.observed[place] = self._placing.observe(entity, place[0], observation, at)

    def _relate(self, relation: RelationState, at: int) -> None:
        ends = (self._key(relation.from_id, at), self._key(relation.to_id, at))
        key = self._relation_key(relation, at)
        known_before = self._base is not None and relation.id in self._base.relations
        if key in self._related or key in self._index.linked:
            return
        if known_before or not self._may_return(ends, at):
            return
        dead = self._index.unlinked.get(key)
        if dead is None or is_newer(at, dead.deleted_at or 0):
            entities = self._entities[relation.from_id], self._entities[relation.to_id]
            self._placing.relate(entities, ends, relation)
            self._related.add(key)

    def _relation_key(self, relation: RelationState, at: int) -> str:
        ends = (self._key(relation.from_id, at), self._key(relation.to_id, at))
        return relation_id(ends[0], self._masking.text(relation.type), ends[1])

    def _may_return(self, owners: Sequence[str], at: int) -> bool:
        """Whether a part is newer than the deletion of what it belongs to."""
        gone = [
            dead.deleted_at or 0
            for owner in owners
            if not self._index.live.get(owner) and (dead := self._index.dead.get(owner)) is not None
        ]
        return all(is_newer(at, deleted_at) for deleted_at in gone)

    def _find_condemned(self) -> dict[str, list[Record | Link]]:
        """Live things that the log drops, with all that would go with them."""
        if not self._log.dropped:
            return {}
        named = _Named(self._index)
        said = {self._place(observation, at) for observation, at in self._observations}
        related = {self._relation_key(relation, at) for relation, at in self._relations}
        living = set(self._keys.values())
        found: dict[str, list[Record | Link]] = {}
        for key in self._log.dropped:
            if self._base is not None and not _stands_in(self._base, key):
                continue  # it was made here since
            own = self._own_id(key) or named.entities.get(key, key)
            # The same may live on in the log under another id.
            if own in self._index.live:
                if own not in living:
                    found[key] = self._index.family(self._index.live[own])
            elif (record := self._dropped_observation(key) or named.observed.get(key)) is not None:
                if (self._index.ids[record.parent or ""], record.text) not in said:
                    found[key] = [record]
            else:
                relation = self._dropped_relation(key) or named.linked.get(key, key)
                if relation in self._index.linked and relation not in related:
                    found[key] = [*self._index.linked[relation]]
        return found

    def _own_id(self, key: str) -> str | None:
        """Our id of an entity that the log tells of, dead or not."""
        thing = self._log.last[key].thing if key in self._log.last else None
        return self._own_key(thing) if isinstance(thing, EntityState) else None

    def _dropped_observation(self, key: str) -> Record | None:
        thing = self._log.last[key].thing if key in self._log.last else None
        if not isinstance(thing, ObservationState):
            return None
        owner = self._own_id(thing.entity_id) or thing.entity_id
        there = self._index.observed.get((owner, thing.text))
        return there or self._index.observed.get((owner, self._masking.text(thing.text)))

    def _dropped_relation(self, key: str) -> str | None:
        thing = self._log.last[key].thing if key in self._log.last else None
        if not isinstance(thing, RelationState):
            return None
        ends = [self._own_id(end) or end for end in (thing.from_id, thing.to_id)]
        return relation_id(ends[0], self._masking.text(thing.type), ends[1])

    def _falls(self, at: int, things: Sequence[Record | Link], known: Touches) -> bool:
        here = [moment for thing in things if (moment := known.of(thing.ref)) is not None]
        made = [thing.created_at for thing in things] if self._base is None else []
        return all(is_newer(at, moment) for moment in (*here, *made))


class _Named:
    """Live parts of the records by the ids that they have for others."""

    def __init__(self, index: Index) -> None:
        live = [record for records in index.live.values() for record in records]
        public = {record.id: public_id(record) for record in live}
        self.entities = {public[record.id]: index.ids[record.id] for record in live}
        self.observed = {
            observation_public_id(record, index.entities[record.parent or ""]): record
            for record in index.observed.values()
        }
        self.linked = {
            relation_id(public[link.source], link.verb, public[link.target]): key
            for key, links in index.linked.items()
            for link in links
            if link.source in public and link.target in public
        }


def restoring(state: GraphState, index: Index, masking: Masking) -> Placing:
    """The steps that make the records tell exactly this state."""
    # A stub that the state lacks goes; it does not become another entity.
    placing = Placing(index, masking, {index.ids[stub.id] for stub in index.stubs.values()})
    keys = {key: key_of(entity, masking) for key, entity in state.entities.items()}
    for key, entity in state.entities.items():
        if index.live.get(keys[key]):
            placing.describe(entity, keys[key])
        else:
            placing.owner(entity, keys[key])
    wanted: set[tuple[str, str]] = set()
    for observation in state.observations.values():
        key = keys[observation.entity_id]
        place = (key, masking.text(observation.text))
        if place in wanted:
            continue
        wanted.add(place)
        if (there := index.observed.get(place)) is None:
            entity = state.entities[observation.entity_id]
            placing.observe(entity, key, observation, observation.at)
        elif there.at // MILLISECOND != observation.at // MILLISECOND:
            placing.redate(there, key, observation)
    related: set[str] = set()
    for relation in state.relations.values():
        ends = keys[relation.from_id], keys[relation.to_id]
        key = relation_id(ends[0], masking.text(relation.type), ends[1])
        if key not in related and key not in index.linked:
            entities = state.entities[relation.from_id], state.entities[relation.to_id]
            placing.relate(entities, ends, relation)
        related.add(key)
    living = set(keys.values())
    for key, records in index.live.items():
        if key not in living:
            placing.remove(index.family(records))
    placing.remove([r for place, r in index.observed.items() if place not in wanted])
    placing.remove([x for key, links in index.linked.items() if key not in related for x in links])
    return placing


def _stands_in(state: GraphState, key: str) -> bool:
    return key in state.entities or key in state.observations or key in state.relations
