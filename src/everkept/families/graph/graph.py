"""The knowledge graph of one project: what its tools do, whatever dialect they speak."""

from collections.abc import Awaitable, Callable, Sequence, Set
from uuid import uuid4

from everkept.core.commits import Plan, Planned, T, Writer, retry
from everkept.core.masks import Masking
from everkept.core.ports import RecordStore
from everkept.core.records import Delete, Insert, Link, Record, Step, Where
from everkept.core.secrets import masked
from everkept.core.sessions import Call
from everkept.core.text import digest, normalised
from everkept.core.times import Clock
from everkept.errors import InvalidInput
from everkept.families.graph.model import (
    ROW_LIMIT,
    NewEntity,
    NewObservations,
    ObservationDeletion,
    RelationSpec,
)
from everkept.graph.entities import (
    ENTITY,
    OBSERVATION,
    UNKNOWN_TYPE,
    check_name,
    describe_stub,
    is_stub,
    new_entity,
)
from everkept.graph.identity import Identity, Resolved, required
from everkept.values import Value, replace


class Made(Value):
    """An entity that was asked for: whether it is new, and the observations added to it."""

    record: Record
    is_new: bool
    observations: list[Record]


class Graph:
    """Reads one state, plans against it, commits; where the state has moved, plans again."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[RecordStore]],
        call: Call,
        clock: Clock,
        identity: Identity,
        *,
        mask: bool = True,
    ) -> None:
        self._open_store = open_store
        self._writer = Writer(clock, call.tool, call.session.client)
        self._identity = identity
        self.masking = Masking(enabled=mask)

    async def create_entities(self, wanted: Sequence[NewEntity]) -> list[Made]:
        """Each entity once, with only those observations that it did not have."""
        _check_size(sum(1 + len(item.observations) for item in wanted), "entities")
        for i, item in enumerate(wanted):
            check_name(item.name, f"entities[{i}].name")
            check_name(item.entity_type, f"entities[{i}].entity_type")
        wanted = [
            NewEntity(
                self.masking.text(item.name),
                self.masking.text(item.entity_type),
                self.masking.texts(item.observations),
            )
            for item in wanted
        ]

        async def plan(store: RecordStore, at: int) -> Planned[list[Made]]:
            keys = tuple({normalised(item.name) for item in wanted})
            known: dict[str | None, list[Record]] = {}
            for record in await store.scan(Where(kinds=(ENTITY,), name_keys=keys)):
                known.setdefault(record.name_key, []).append(record)
            made: dict[str, Made] = {}
            texts: dict[str, list[str]] = {}
            steps: list[Step] = []
            for item in wanted:
                namesakes = known.setdefault(normalised(item.name), [])
                record = self._same(namesakes, item)
                if record is None:
                    step, record = self._described(namesakes, item, at)
                    steps.append(step)
                    namesakes.append(record)
                    made[record.id] = Made(record, True, [])
                made.setdefault(record.id, Made(record, False, []))
                texts.setdefault(record.id, []).extend(item.observations)
            inserted = {step.item.id for step in steps if isinstance(step, Insert)}
            added = await _missing_observations(store, texts, at, inserted)
            steps += [Insert(o) for many in added.values() for o in many]
            return steps, [
                replace(entry, observations=added[entry.record.id]) for entry in made.values()
            ]

        return await self._commit(plan)

    async def add_observations(self, wanted: Sequence[NewObservations]) -> list[Made]:
        """What was added to each entity that was named."""
        _check_size(sum(len(item.contents) for item in wanted), "observations")
        wanted = [replace(i, contents=self.masking.texts(i.contents)) for i in wanted]

        async def plan(store: RecordStore, at: int) -> Planned[list[Made]]:
            found = await self._resolve(store, [item.entity_name for item in wanted])
            owners = {r.id: r for r in (required(found, item.entity_name) for item in wanted)}
            texts: dict[str, list[str]] = {owner: [] for owner in owners}
            for item in wanted:
                texts[required(found, item.entity_name).id].extend(item.contents)
            added = await _missing_observations(store, texts, at)
            steps: list[Step] = [Insert(o) for many in added.values() for o in many]
            return steps, [Made(owners[owner], False, many) for owner, many in added.items()]

        return await self._commit(plan)

    async def create_relations(
        self, wanted: Sequence[RelationSpec], *, make_ends: bool = False
    ) -> tuple[list[Link], dict[str, str]]:
        """The relations that are new, and the names of all ends by id.

        With `make_ends` an end that does not exist becomes an entity of unknown type.
        """
        for i, item in enumerate(wanted):
            check_name(item.relation_type, f"relations[{i}].relation_type")
        wanted = [
            replace(item, relation_type=self.masking.text(item.relation_type)) for item in wanted
        ]

        async def plan(store: RecordStore, at: int) -> Planned[tuple[list[Link], dict[str, str]]]:
            names = [name for item in wanted for name in (item.from_, item.to)]
            found = await self._resolve(store, names)
            steps: list[Step] = []
            if make_ends:
                stubs = self._stubs([name for name, end in found.items() if end is None], at)
                found |= stubs
                steps += [Insert(stub) for stub in {s.id: s for s in stubs.values()}.values()]
            asked = dict.fromkeys(_edge(item, found) for item in wanted)
            present = await _edges_from(store, [source for source, _, _ in asked])
            new = [
                Link(str(uuid4()), source, verb, target, at)
                for source, verb, target in asked
                if (source, verb, target) not in present
            ]
            shown = {r.id: r.name or "" for r in found.values() if r is not None}
            return [*steps, *(Insert(link) for link in new)], (new, shown)

        return await self._commit(plan)

    async def delete_entities(self, names: Sequence[str]) -> int:
        """Unknown names do not count."""

        async def plan(store: RecordStore, at: int) -> Planned[int]:
            found = await self._resolve(store, names)
            doomed = {record.id: record for record in found.values() if record is not None}
            return [Delete(record.ref) for record in doomed.values()], len(doomed)

        return await self._commit(plan)

    async def delete_observations(
        self, wanted: Sequence[ObservationDeletion], *, strict: bool = True
    ) -> int:
        """Exact texts, as they were given or as they are kept without their secrets.

        An unknown entity is an error where `strict`.
        """

        async def plan(store: RecordStore, at: int) -> Planned[int]:
            found = await self._resolve(store, [item.entity_name for item in wanted])
            doomed: dict[str, Record] = {}
            for item in wanted:
                owner = required(found, item.entity_name) if strict else found[item.entity_name]
                if owner is not None:
                    forms = {form for text in item.observations for form in (text, masked(text)[0])}
                    keys = tuple({digest(form) for form in forms})
                    for record in await _observations(store, (owner.id,), keys):
                        doomed[record.id] = record
            return [Delete(record.ref) for record in doomed.values()], len(doomed)

        return await self._commit(plan)

    async def delete_relations(self, wanted: Sequence[RelationSpec]) -> int:
        """By the verb that was given, or as it is kept without its secrets.

        Relations whose ends do not exist do not count.
        """

        async def plan(store: RecordStore, at: int) -> Planned[int]:
            found = await self._resolve(
                store, [n for item in wanted for n in (item.from_, item.to)]
            )
            asked = {
                _edge(replace(item, relation_type=verb), found)
                for item in wanted
                if found[item.from_] and found[item.to]
                for verb in (item.relation_type, masked(item.relation_type)[0])
            }
            present = await _edges_from(store, [source for source, _, _ in asked])
            doomed = [present[edge] for edge in asked if edge in present]
            return [Delete(link.ref) for link in doomed], len(doomed)

        return await self._commit(plan)

    async def _resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        return await self._identity.resolve(store, list(dict.fromkeys(names)))

    def _same(self, namesakes: Sequence[Record], item: NewEntity) -> Record | None:
        name = self._identity.spelled(item.name)
        return next(
            (
                record
                for record in namesakes
                if not is_stub(record) and self._identity.is_same(record, name, item.entity_type)
            ),
            None,
        )

    def _described(self, namesakes: list[Record], item: NewEntity, at: int) -> tuple[Step, Record]:
        """A new entity, or the stub of that name, which becomes one."""
        new = self._new_entity(item.name, item.entity_type, at)
        stub = next((record for record in namesakes if is_stub(record)), None)
        if stub is None:
            return Insert(new), new
        namesakes.remove(stub)
        return describe_stub(stub, new), replace(new, id=stub.id)

    def _stubs(self, names: Sequence[str], at: int) -> dict[str, Record]:
        """An entity of unknown type for each name, one for those that are kept as the same."""
        made: dict[str, Record] = {}
        for name in names:
            check_name(name, "relations")
            kept = self.masking.text(name)
            if kept not in made:
                stub = self._new_entity(kept, UNKNOWN_TYPE, at)
                made[kept] = replace(stub, facets={"stub": True})
        return {name: made[self.masking.text(name)] for name in names}

    def _new_entity(self, name: str, entity_type: str, at: int) -> Record:
        name, entity_type = self._identity.spelled(name), entity_type.strip()
        return new_entity(name, entity_type, self._identity.variant(name, entity_type), at)

    async def _commit(self, plan: Plan[T]) -> T:
        async def attempt() -> T:
            return await self._writer.attempt(await self._open_store(), plan)

        return await retry(attempt)


def _check_size(rows: int, argument: str) -> None:
    if rows > ROW_LIMIT:
        raise InvalidInput(
            f"`{argument}` comes to {rows:,} entities and observations; at most {ROW_LIMIT:,} are "
            "allowed in one call.",
            hint="Send them in several calls.",
            argument=argument,
            limit=ROW_LIMIT,
        )


async def _missing_observations(
    store: RecordStore, texts: dict[str, list[str]], at: int, inserted: Set[str] = frozenset()
) -> dict[str, list[Record]]:
    """Observations for the texts that their entity does not have yet, each text once.

    Those in `inserted` come with this very commit, so nothing is stored of them.
    """
    owners = tuple(entity for entity, many in texts.items() if many and entity not in inserted)
    keys = tuple({digest(text) for owner in owners for text in texts[owner]})
    there = {(r.parent, r.name_key) for r in await _observations(store, owners, keys)}
    return {
        entity: [
            Record(
                id=str(uuid4()),
                kind=OBSERVATION,
                text=text,
                name_key=digest(text),
                parent=entity,
                created_at=at,
                updated_at=at,
            )
            for text in dict.fromkeys(many)
            if (entity, digest(text)) not in there
        ]
        for entity, many in texts.items()
    }


async def _observations(
    store: RecordStore, owners: tuple[str, ...], keys: tuple[str, ...]
) -> list[Record]:
    if not owners or not keys:
        return []
    return await store.scan(Where(kinds=(OBSERVATION,), parents=owners, name_keys=keys))


async def _edges_from(
    store: RecordStore, sources: Sequence[str]
) -> dict[tuple[str, str, str], Link]:
    links = await store.links(sources, direction="out") if sources else []
    return {(link.source, link.verb, link.target): link for link in links}


def _edge(item: RelationSpec, found: Resolved) -> tuple[str, str, str]:
    return (
        required(found, item.from_).id,
        item.relation_type.strip(),
        required(found, item.to).id,
    )
