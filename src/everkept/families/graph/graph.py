"""Reads and writes of one project's knowledge graph, and its entities as JSON."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

from everkept.core.answers import Edge, Node, Selection, decode_cursor, encode_cursor
from everkept.core.commits import ChangeWriter, Plan, Planned, T, retry
from everkept.core.ports import RecordStore
from everkept.core.records import Delete, Insert, Record, RecordLink, Step, Update
from everkept.core.secrets import Masker, mask_apart
from everkept.core.sessions import ToolCall
from everkept.core.times import Clock, format_iso
from everkept.errors import InvalidInput
from everkept.families.graph.model import ROW_LIMIT, NewEntity, NewObservations, ObservationDeletion, RelationSpec
from everkept.graph.entities import (
    ENTITY,
    OBSERVATION,
    STUB_FACETS,
    UNKNOWN_TYPE,
    EntityIdentity,
    Resolved,
    Triple,
    build_missing_observations,
    build_missing_relations,
    check_name,
    ensure_entities,
    list_observations,
    list_relations_from,
    list_stored_forms,
    map_names,
    read_entities,
    require_entity,
)
from everkept.values import Value, replace

JSON = dict[str, Any]


async def read_entity_views(store: RecordStore, ids: Sequence[str]) -> list[JSON]:
    """Return each entity in the form of EntityView, with all its relations."""
    if not ids:
        return []
    found = await read_entities(store, ids)
    touching: dict[str, list[JSON]] = {node.id: [] for node in found.nodes}
    for edge in found.edges:
        relation = _to_relation_json(edge)
        for end in {edge.source, edge.target}:
            if end in touching:
                touching[end].append(relation)
    return [_to_entity_json(node) | {"relations": touching[node.id]} for node in found.nodes]


async def read_graph_page(store: RecordStore, limit: int | None, cursor: str | None) -> JSON:
    """Return a page in the form of GraphPage: entities by name, and the relations that start at them."""
    after = None if cursor is None else cast(tuple[str, str], decode_cursor(cursor, str, str))
    found = await store.read_subgraph(
        Selection(ENTITY, OBSERVATION, order="name", after=after, limit=limit, direction="out")
    )
    page: JSON = {
        "entities": [_to_entity_json(node) for node in found.nodes],
        "relations": [_to_relation_json(edge) for edge in found.edges],
    }
    if found.has_more:
        last = found.nodes[-1]
        page["next_cursor"] = encode_cursor(last.name_key, last.variant)
    return page


def _to_entity_json(node: Node) -> JSON:
    return {
        "id": node.id,
        "name": node.name,
        "entity_type": node.type,
        "observations": [
            {"id": leaf_id, "entity_id": node.id, "content": text, "created_at": format_iso(created_at)}
            for leaf_id, text, created_at in node.leaves
        ],
        "created_at": format_iso(node.created_at),
        "updated_at": format_iso(node.updated_at),
    }


def _to_relation_json(edge: Edge) -> JSON:
    edge_id, source, source_name, verb, target, target_name, created_at = edge
    return {
        "id": edge_id,
        "from": source_name,
        "to": target_name,
        "from_entity": source,
        "to_entity": target,
        "relation_type": verb,
        "created_at": format_iso(created_at),
    }


class WrittenEntity(Value):
    """Requested entity, whether it is new, and the observations added to it."""

    record: Record
    is_new: bool
    observations: list[Record]


class Graph:
    """Knowledge graph of a project. Plans each write against one state, and plans again if the state has changed."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[RecordStore]],
        call: ToolCall,
        clock: Clock,
        identity: EntityIdentity,
        *,
        mask: bool = True,
    ) -> None:
        self._open_store = open_store
        self._writer = ChangeWriter(clock, call.tool, call.session.client)
        self._identity = identity
        self.masking = Masker(enabled=mask)

    async def create_entities(self, wanted: Sequence[NewEntity]) -> list[WrittenEntity]:
        """Create each entity once. Return each with the observations that it did not have."""
        _check_size(sum(1 + len(item.observations) for item in wanted), "entities")
        for i, item in enumerate(wanted):
            check_name(item.name, f"entities[{i}].name")
            check_name(item.entity_type, f"entities[{i}].entity_type")
        size = sum(len(text) for item in wanted for text in item.observations)
        wanted = await mask_apart(size, partial(self._mask_entities, wanted))

        async def plan(store: RecordStore, at: int) -> Planned[list[WrittenEntity]]:
            pairs = [(item.name, item.entity_type) for item in wanted]
            steps, meant = await ensure_entities(store, pairs, at, self._identity)
            inserted = {step.item.id for step in steps if isinstance(step, Insert)}
            new = inserted | {step.id for step in steps if isinstance(step, Update)}
            made: dict[str, WrittenEntity] = {}
            texts: dict[str, list[str]] = {}
            for item, record in zip(wanted, meant, strict=True):
                made.setdefault(record.id, WrittenEntity(record, record.id in new, []))
                texts.setdefault(record.id, []).extend(item.observations)
            added = await build_missing_observations(store, texts, at, inserted)
            steps += [Insert(o) for many in added.values() for o in many]
            return steps, [
                replace(entry, record=_date_record(entry.record, added[i], at), observations=added[i])
                for i, entry in made.items()
            ]

        return await self._commit(plan)

    def _mask_entities(self, wanted: Sequence[NewEntity]) -> list[NewEntity]:
        mask, mask_all = self.masking.mask, self.masking.mask_all
        return [NewEntity(mask(item.name), mask(item.entity_type), mask_all(item.observations)) for item in wanted]

    def _mask_observations(self, wanted: Sequence[NewObservations]) -> list[NewObservations]:
        return [replace(item, contents=self.masking.mask_all(item.contents)) for item in wanted]

    async def add_observations(self, wanted: Sequence[NewObservations]) -> list[WrittenEntity]:
        """Add observations and return what was added to each named entity."""
        _check_size(sum(len(item.contents) for item in wanted), "observations")
        size = sum(len(text) for item in wanted for text in item.contents)
        wanted = await mask_apart(size, partial(self._mask_observations, wanted))

        async def plan(store: RecordStore, at: int) -> Planned[list[WrittenEntity]]:
            found = await self._resolve(store, [item.entity_name for item in wanted])
            owners = {item.entity_name: _require_entity(found, item.entity_name) for item in wanted}
            made = {owner.id: owner for owner in owners.values()}
            texts: dict[str, list[str]] = {owner: [] for owner in made}
            for item in wanted:
                texts[owners[item.entity_name].id].extend(item.contents)
            added = await build_missing_observations(store, texts, at)
            steps: list[Step] = [Insert(o) for many in added.values() for o in many]
            return steps, [WrittenEntity(made[owner], False, many) for owner, many in added.items()]

        return await self._commit(plan)

    async def create_relations(
        self, wanted: Sequence[RelationSpec], *, make_ends: bool = False
    ) -> tuple[list[RecordLink], dict[str, str]]:
        """Return the new relations, and all names by id. With `make_ends`, create missing ends with unknown type."""
        for i, item in enumerate(wanted):
            check_name(item.relation_type, f"relations[{i}].relation_type")
        wanted = [replace(item, relation_type=self.masking.mask(item.relation_type)) for item in wanted]

        async def plan(store: RecordStore, at: int) -> Planned[tuple[list[RecordLink], dict[str, str]]]:
            names = [name for item in wanted for name in (item.from_, item.to)]
            found = await self._resolve(store, names)
            steps: list[Step] = []
            if make_ends:
                stubs = self._build_stubs([name for name, end in found.items() if end is None], at)
                found |= stubs
                steps += [Insert(stub) for stub in {s.id: s for s in stubs.values()}.values()]
            asked = dict.fromkeys(_to_triple(item, found) for item in wanted)
            present = await list_relations_from(store, [source for source, _, _ in asked])
            new = build_missing_relations(asked, present, at)
            return [*steps, *(Insert(link) for link in new)], (new, map_names(found.values()))

        return await self._commit(plan)

    async def delete_entities(self, names: Sequence[str]) -> int:
        """Delete entities and return their number. Unknown names do not count."""

        async def plan(store: RecordStore, at: int) -> Planned[int]:
            found = await self._resolve(store, names)
            purge_set = {record.id: record for record in found.values() if record is not None}
            return [Delete(record.ref) for record in purge_set.values()], len(purge_set)

        return await self._commit(plan)

    async def delete_observations(self, wanted: Sequence[ObservationDeletion], *, strict: bool = True) -> int:
        """Delete observations by exact or masked text. With `strict`, an unknown entity is an error."""

        async def plan(store: RecordStore, at: int) -> Planned[int]:
            found = await self._resolve(store, [item.entity_name for item in wanted])
            purge_set: dict[str, Record] = {}
            for item in wanted:
                owner = _require_entity(found, item.entity_name) if strict else found[item.entity_name]
                if owner is not None:
                    forms = [form for text in item.observations for form in list_stored_forms(text)]
                    for record in await list_observations(store, [owner.id], forms):
                        purge_set[record.id] = record
            return [Delete(record.ref) for record in purge_set.values()], len(purge_set)

        return await self._commit(plan)

    async def delete_relations(self, wanted: Sequence[RelationSpec]) -> int:
        """Delete relations by exact or masked type. Relations between unknown entities do not count."""

        async def plan(store: RecordStore, at: int) -> Planned[int]:
            found = await self._resolve(store, [n for item in wanted for n in (item.from_, item.to)])
            asked = {
                _to_triple(replace(item, relation_type=verb), found)
                for item in wanted
                if found[item.from_] and found[item.to]
                for verb in list_stored_forms(item.relation_type)
            }
            present = await list_relations_from(store, [source for source, _, _ in asked])
            purge_set = [link for edge in asked for link in present.get(edge, ())]
            return [Delete(link.ref) for link in purge_set], len(purge_set)

        return await self._commit(plan)

    async def _resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        return await self._identity.resolve(store, list(dict.fromkeys(names)))

    def _build_stubs(self, names: Sequence[str], at: int) -> dict[str, Record]:
        """Map each name to an entity of unknown type. Names that are equal when masked share one."""
        made: dict[str, Record] = {}
        for name in names:
            check_name(name, "relations")
            kept = self.masking.mask(name)
            if kept not in made:
                made[kept] = self._identity.build_entity(kept, UNKNOWN_TYPE, at, STUB_FACETS)
        return {name: made[self.masking.mask(name)] for name in names}

    async def _commit(self, plan: Plan[T]) -> T:
        async def attempt() -> T:
            return await self._writer.attempt(await self._open_store(), plan)

        return await retry(attempt)


def _date_record(record: Record, added: Sequence[Record], at: int) -> Record:
    """Return the record as the commit leaves it: new observations change their entity."""
    return replace(record, updated_at=max(record.updated_at, at)) if added else record


def _check_size(rows: int, argument: str) -> None:
    if rows > ROW_LIMIT:
        raise InvalidInput(
            f"`{argument}` is over the limit of {ROW_LIMIT:,} entities and observations per call: {rows:,}.",
            hint="Split it into several calls.",
            argument=argument,
            limit=ROW_LIMIT,
        )


def _to_triple(item: RelationSpec, found: Resolved) -> Triple:
    ends = _require_entity(found, item.from_), _require_entity(found, item.to)
    return ends[0].id, item.relation_type.strip(), ends[1].id


def _require_entity(found: Resolved, name: str) -> Record:
    return require_entity(found, name, "Find entities with search_nodes, or create one with create_entities.")
