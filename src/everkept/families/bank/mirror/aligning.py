"""A log beside the graph of the records: what it has in other words needs no correction."""

from collections.abc import Callable

from everkept.core.secrets import Masking
from everkept.families.bank.graph_ids import entity_id, relation_id
from everkept.families.bank.mirror.placing import key_of
from everkept.families.bank.mirror.state import (
    EntityState,
    Event,
    GraphState,
    ObservationState,
    difference,
)
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
