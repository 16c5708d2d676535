"""What the graph's tools change: entities, observations and relations, each in one commit."""

from collections.abc import Mapping, Sequence
from typing import Any

from everkept.core.commits import Planned, Writer
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
from everkept.core.secrets import Masking
from everkept.core.text import normalised
from everkept.errors import NotFound
from everkept.families.bank.banks import Bank
from everkept.families.bank.graph.lookup import Lookup, ambiguous_by_public_id
from everkept.families.bank.graph_model import (
    Source,
    attrs_of,
    source_facets,
    source_named,
    with_attrs,
)
from everkept.families.bank.mirror.graph_changes import Moved, Own, events_of, mark_of
from everkept.graph.entities import (
    ENTITY,
    OBSERVATION,
    STUB,
    check_name,
    is_stub,
    make_entity,
    new_observation,
    observations_of,
    stub_named,
)
from everkept.graph.lookup import BY_NAME_AND_TYPE, required, stored_forms
from everkept.graph.relations import new_relation, relations_from
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
            new = BY_NAME_AND_TYPE.new(name, entity_type, at, with_attrs({}, attrs))
            stub = stub_named(namesakes, name)
            if stub is not None:
                rest = {key: value for key, value in stub.facets.items() if key not in STUB}
                facets = {**rest, **new.facets}
                new = replace(new, created_at=stub.created_at, facets=facets)
            step, made = make_entity(new, stub)
            return [step], made

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
            if known := await observations_of(store, [owner.id], [text]):
                return [], (known[0], owner)
            new = new_observation(owner.id, text, at, facets=facets, occurred_at=occurred_at)
            return [Insert(new)], (new, owner)

        return await self.writer.commit(self.store, plan)

    async def link(self, source: str, verb: str, target: str) -> tuple[Link, Record, Record]:
        """The relation, new or as it was, and its two ends."""
        check_name(verb, "relationType")
        verb = self.masking.text(verb).strip()

        async def plan(store: RecordStore, at: int) -> Planned[tuple[Link, Record, Record]]:
            self._around[:] = ends = await self._ends(store, source, target)
            source_id, target_id = (end.id for end in ends)
            present = await relations_from(store, [source_id], normalised)
            if known := present.get((source_id, normalised(verb), target_id)):
                exact = next((link for link in known if link.verb == verb), known[0])
                return [], (exact, *ends)
            new = new_relation(source_id, verb, target_id, at)
            return [Insert(new)], (new, *ends)

        return await self.writer.commit(self.store, plan)

    async def unlink(self, source: str, verb: str, target: str) -> None:
        """One that is not there is fine; its ends must be."""
        verbs = dict.fromkeys(normalised(form) for form in stored_forms(verb))

        async def plan(store: RecordStore, at: int) -> Planned[None]:
            source_id, target_id = (end.id for end in await self._ends(store, source, target))
            present = await relations_from(store, [source_id], normalised)
            known = (present.get((source_id, verb, target_id), ()) for verb in verbs)
            return [Delete(link.ref) for links in known for link in links], None

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
            if not await observations_of(store, [owner.id], [text]):
                facets = source_facets(DOC_POINTER)
                steps.append(Insert(new_observation(owner.id, text, at, facets=facets)))
                actions.append(f"Added observation: {text}")
            return steps, (owner, actions or ["The pointer was there already"])

        return await self.writer.commit(self.store, plan)

    async def _required(self, store: RecordStore, name: str, hint: str) -> Record:
        found = await self.lookup.entities(self.bank, store, [name])
        return required(found, name, hint, f'Entity not found: "{name}".')

    async def _ends(self, store: RecordStore, source: str, target: str) -> tuple[Record, Record]:
        found = await self.lookup.entities(self.bank, store, [source, target])
        return (
            required(found, source, CREATE, f'Source entity not found: "{source}".'),
            required(found, target, CREATE, f'Target entity not found: "{target}".'),
        )


def _same(namesakes: Sequence[Record], name: str, entity_type: str) -> Record | None:
    """The entity of that name and type; case and blanks count only where they must."""
    variant = normalised(entity_type)
    same = [r for r in namesakes if not is_stub(r) and normalised(r.type or "") == variant]
    ordinary = next((record for record in same if record.variant == variant), None)
    exact = next((record for record in same if record.name == name), None)
    if exact is None and ordinary is None and len(same) > 1:
        raise ambiguous_by_public_id(name, same)
    return exact or ordinary or (same[0] if same else None)


def _with_facets(record: Record, facets: Mapping[str, Any], at: int) -> Planned[Record]:
    """No step where they are as they were."""
    if facets == record.facets:
        return [], record
    step: Step = Update(record.id, {"facets": facets}, record.version)
    return [step], replace(record, facets=facets, updated_at=at)


def _pointer_text(doc_path: str, heading: str | None, note: str) -> str:
    parts = [f"DOC: {doc_path}", f" # {heading}" if heading else "", f" - {note}" if note else ""]
    return "".join(parts)
