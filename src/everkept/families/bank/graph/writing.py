"""What the graph's tools change: entities, observations and relations, each in one commit."""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from everkept.core.commits import Planned, Writer
from everkept.core.masks import Masking
from everkept.core.ports import RecordStore
from everkept.core.records import (
    Change,
    Delete,
    Insert,
    Link,
    Record,
    Step,
    Update,
    Where,
)
from everkept.core.secrets import masked
from everkept.core.text import digest, normalised
from everkept.errors import NotFound
from everkept.families.bank.banks import Bank
from everkept.families.bank.graph.lookup import Lookup, ambiguous
from everkept.families.bank.graph_model import (
    Source,
    attrs_of,
    source_facets,
    source_named,
    with_attrs,
)
from everkept.families.bank.mirror.changes import Moved, Own, events_of, mark_of
from everkept.graph.entities import (
    ENTITY,
    OBSERVATION,
    check_name,
    describe_stub,
    is_stub,
    new_entity,
)
from everkept.values import Value, field, replace

CREATE = "Create it first with graph_upsert_entity."
SEARCH = "graph_search finds entities."
DOC_POINTER = Source("tool", "graph_add_doc_pointer")


class NotingWriter(Writer):
    """Remembers what it committed."""

    done: list[tuple[Sequence[Step], Change]] = field(
        default_factory=list[tuple[Sequence[Step], Change]]
    )

    async def once(self, store: RecordStore, steps: Sequence[Step], at: int) -> Change:
        change = await super().once(store, steps, at)
        self.done.append((steps, change))
        return change


class GraphEdits(Value):
    """The edits of one call; secrets in them are masked."""

    bank: Bank
    store: RecordStore
    lookup: Lookup
    writer: NotingWriter
    masking: Masking
    told: int | None = None  # the change up to which the mirror had followed before the call
    _around: list[Record] = field(default_factory=list[Record])  # as the last plan saw them

    def own(self) -> Own | None:
        """What the call did, so that nobody need read it again; None where that is not enough."""
        if self.told is None or len(self.writer.done) != 1:
            return None
        [(steps, change)] = self.writer.done
        if change.seq != self.told + 1:
            return None
        # Nobody else committed since, so all that was planned with was still so.
        known = {record.id: record for record in self._around}
        records: list[tuple[Record | None, Record | None]] = []
        links: list[Link] = []
        for step in steps:
            match step:
                case Insert(item=Link() as link):
                    links.append(link)
                case Insert(item=Record() as record):
                    records.append((None, record))
                case Update() if step.id in known and [*step.values] == ["facets"]:
                    then, facets = known[step.id], step.values["facets"]
                    records.append((then, replace(then, facets=facets, updated_at=change.at)))
                case _:
                    return None
        events = events_of(records, links, self._around, change.at)
        return Own(Moved(events, change.seq, mark_of(change)), self.told)

    async def upsert(self, name: str, entity_type: str, attrs: Mapping[str, Any]) -> Record:
        """The entity of that name and type, with these attributes and no others."""
        check_name(name, "name")
        check_name(entity_type, "entityType")
        name, entity_type = self.masking.text(name).strip(), self.masking.text(entity_type).strip()
        attrs = self.masking.json(attrs)

        async def plan(store: RecordStore, at: int) -> Planned[Record]:
            same_name = Where(kinds=(ENTITY,), name_keys=(normalised(name),))
            self._around[:] = namesakes = await store.scan(same_name)
            known = _same(namesakes, name, entity_type)
            if known is not None:
                return _with_facets(known, with_attrs(known.facets, attrs), at)
            new = new_entity(name, entity_type, normalised(entity_type), at)
            new = replace(new, facets=with_attrs({}, attrs))
            stub = _spelled([record for record in namesakes if is_stub(record)], name)
            return ([Insert(new)], new) if stub is None else _described(stub, new)

        return await self.writer.commit(self.store, plan)

    async def observe(
        self, entity: str, text: str, source: str, occurred_at: int | None
    ) -> tuple[Record, Record]:
        """The observation and its entity; a text that the entity has already stays as it was."""
        text = self.masking.text(text)
        facets = source_facets(source_named(self.masking.text(source)))

        async def plan(store: RecordStore, at: int) -> Planned[tuple[Record, Record]]:
            owner = await self._required(store, entity, CREATE)
            self._around[:] = [owner]
            if known := await _with_text(store, owner, text):
                return [], (known[0], owner)
            new = replace(_observation(owner, text, facets, at), occurred_at=occurred_at)
            return [Insert(new)], (new, owner)

        return await self.writer.commit(self.store, plan)

    async def link(self, source: str, verb: str, target: str) -> tuple[Link, Record, Record]:
        """The relation, new or as it was, and its two ends."""
        check_name(verb, "relationType")
        verb = self.masking.text(verb).strip()

        async def plan(store: RecordStore, at: int) -> Planned[tuple[Link, Record, Record]]:
            self._around[:] = ends = await self._ends(store, source, target)
            known = await _relations(store, *ends, {normalised(verb)})
            if known:
                exact = next((link for link in known if link.verb == verb), known[0])
                return [], (exact, *ends)
            new = Link(str(uuid4()), ends[0].id, verb, ends[1].id, at)
            return [Insert(new)], (new, *ends)

        return await self.writer.commit(self.store, plan)

    async def unlink(self, source: str, verb: str, target: str) -> None:
        """One that is not there is fine; its ends must be."""
        verbs = {normalised(verb), normalised(masked(verb)[0])}

        async def plan(store: RecordStore, at: int) -> Planned[None]:
            ends = await self._ends(store, source, target)
            return [Delete(link.ref) for link in await _relations(store, *ends, verbs)], None

        await self.writer.commit(self.store, plan)

    async def delete_entity(self, entity: str) -> None:
        """With its observations and relations."""

        async def plan(store: RecordStore, at: int) -> Planned[None]:
            return [Delete((await self._required(store, entity, SEARCH)).ref)], None

        await self.writer.commit(self.store, plan)

    async def delete_observation(self, public_id: str, entity: str | None = None) -> None:
        """Where an entity is named, only one of its own."""

        async def plan(store: RecordStore, at: int) -> Planned[None]:
            found = await self.lookup.observations(self.bank, store, public_id.strip())
            if entity is not None:
                owner = await self._required(store, entity, SEARCH)
                found = [pair for pair in found if pair[1].id == owner.id]
            if not found:
                where = "" if entity is None else f' at entity "{entity}"'
                raise NotFound(
                    OBSERVATION,
                    public_id,
                    message=f'Observation not found{where}: "{public_id}".',
                    hint="graph_open_nodes lists observations with their ids.",
                )
            return [Delete(observation.ref) for observation, _ in found], None

        await self.writer.commit(self.store, plan)

    async def point(
        self, entity: str, doc_path: str, heading: str | None, note: str | None
    ) -> tuple[Record, list[str]]:
        """Ties an entity to a file; says what that changed."""
        pointer = {"docPath": doc_path} | (
            {"heading": self.masking.text(heading)} if heading else {}
        )
        text = _pointer_text(doc_path, pointer.get("heading"), self.masking.text(note or ""))

        async def plan(store: RecordStore, at: int) -> Planned[tuple[Record, list[str]]]:
            owner = await self._required(store, entity, CREATE)
            attrs = attrs_of(owner)
            attrs.pop("heading", None)
            steps, owner = _with_facets(owner, with_attrs(owner.facets, attrs | pointer), at)
            actions = [f"Set attrs.{name} to {value}" for name, value in pointer.items() if steps]
            if not await _with_text(store, owner, text):
                steps.append(Insert(_observation(owner, text, source_facets(DOC_POINTER), at)))
                actions.append(f"Added observation: {text}")
            return steps, (owner, actions or ["The pointer was there already"])

        return await self.writer.commit(self.store, plan)

    async def _required(self, store: RecordStore, name: str, hint: str) -> Record:
        found = (await self.lookup.entities(self.bank, store, [name]))[name]
        if found is None:
            raise NotFound(ENTITY, name, message=f'Entity not found: "{name}".', hint=hint)
        return found

    async def _ends(self, store: RecordStore, source: str, target: str) -> tuple[Record, Record]:
        found = await self.lookup.entities(self.bank, store, [source, target])
        for side, name in (("Source", source), ("Target", target)):
            if found[name] is None:
                message = f'{side} entity not found: "{name}".'
                raise NotFound(ENTITY, name, message=message, hint=CREATE)
        return cast(Record, found[source]), cast(Record, found[target])


def _same(namesakes: Sequence[Record], name: str, entity_type: str) -> Record | None:
    """The entity of that name and type; case and blanks count only where they must."""
    variant = normalised(entity_type)
    same = [r for r in namesakes if not is_stub(r) and normalised(r.type or "") == variant]
    ordinary = next((record for record in same if record.variant == variant), None)
    exact = next((record for record in same if record.name == name), None)
    if exact is None and ordinary is None and len(same) > 1:
        raise ambiguous(name, same)
    return exact or ordinary or (same[0] if same else None)


def _spelled(records: Sequence[Record], name: str) -> Record | None:
    """The one that is spelled so, else the first."""
    first = records[0] if records else None
    return next((record for record in records if record.name == name), first)


def _described(stub: Record, new: Record) -> Planned[Record]:
    rest = {name: value for name, value in stub.facets.items() if name != "stub"}
    step = describe_stub(stub, new)
    facets = {**rest, **new.facets}
    described = replace(new, id=stub.id, created_at=stub.created_at, facets=facets)
    return [replace(step, values={**step.values, "facets": facets})], described


def _with_facets(record: Record, facets: Mapping[str, Any], at: int) -> Planned[Record]:
    """No step where they are as they were."""
    if facets == record.facets:
        return [], record
    step: Step = Update(record.id, {"facets": facets}, record.version)
    return [step], replace(record, facets=facets, updated_at=at)


def _observation(owner: Record, text: str, facets: Mapping[str, Any], at: int) -> Record:
    return Record(
        id=str(uuid4()),
        kind=OBSERVATION,
        text=text,
        name_key=digest(text),
        parent=owner.id,
        facets=facets,
        created_at=at,
        updated_at=at,
    )


async def _with_text(store: RecordStore, owner: Record, text: str) -> list[Record]:
    return await store.scan(
        Where(kinds=(OBSERVATION,), parents=(owner.id,), name_keys=(digest(text),))
    )


async def _relations(
    store: RecordStore, source: Record, target: Record, verbs: set[str]
) -> list[Link]:
    links = await store.links([source.id], direction="out")
    return [x for x in links if x.target == target.id and normalised(x.verb) in verbs]


def _pointer_text(doc_path: str, heading: str | None, note: str) -> str:
    parts = [f"DOC: {doc_path}", f" # {heading}" if heading else "", f" - {note}" if note else ""]
    return "".join(parts)
