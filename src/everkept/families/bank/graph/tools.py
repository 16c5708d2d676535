"""The tools of the bank's knowledge graph, and the changes they make, each in one commit."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from everkept.core.commits import Planned, Writer
from everkept.core.ports import RecordStore
from everkept.core.records import Change, Delete, Insert, Link, Record, Step, Update, Where
from everkept.core.secrets import Masking
from everkept.core.sessions import Call
from everkept.core.text import normalised
from everkept.core.times import Clock, iso
from everkept.errors import InvalidInput, NotFound
from everkept.families.bank.bank_files import found_name
from everkept.families.bank.banks import Bank, BankRecords, Banks
from everkept.families.bank.graph.events import Moved, Own, events_of, mark_of
from everkept.families.bank.graph.mirror import Mirror
from everkept.families.bank.graph.model import (
    LIST_LIMIT,
    NODE_LIMIT,
    TEXT_LIMIT,
    AddedObservation,
    Deleted,
    Depth,
    DocPointer,
    EntityRef,
    EntityView,
    FoundNodes,
    FromEntity,
    Linked,
    ObservationId,
    ObservationView,
    OpenedNodes,
    RelationType,
    RelationView,
    Source,
    ToEntity,
    Unlinked,
    UpsertedEntity,
    attrs_of,
    source_facets,
    source_named,
    with_attrs,
)
from everkept.families.bank.graph.queries import GraphReading, Lookup, ambiguous_by_public_id
from everkept.families.bank.model import StoreId
from everkept.graph.entities import (
    ENTITY,
    NAME_LIMIT,
    OBSERVATION,
    STUB,
    check_name,
    is_stub,
    make_entity,
    new_observation,
    new_relation,
    observations_of,
    relations_from,
    stub_named,
)
from everkept.graph.lookup import BY_NAME_AND_TYPE, required, stored_forms
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Family, Warned, masking_warnings, tool
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


class Warnings(Value):
    """What comes up during a call that succeeds; None where nothing does."""

    found: list[Warned]

    def and_more(self, more: Iterable[Warned] | None = None) -> list[Warned] | None:
        return list(dict.fromkeys([*self.found, *(more or ())])) or None


class GraphCalls:
    """Opens the graph that a call means."""

    def __init__(
        self, banks: Banks, records: BankRecords, mirror: Mirror, clock: Clock, *, mask: bool
    ) -> None:
        self._banks = banks
        self._records = records
        self._mirror = mirror
        self._clock = clock
        self._mask = mask
        self._lookup = Lookup(records)

    async def to_read(self, call: Call, store_id: str | None) -> tuple[GraphReading, Warnings]:
        bank, warnings = await self._met(call, store_id)
        return GraphReading(bank, await self._records.to_read(bank), self._lookup), warnings

    async def to_write(self, call: Call, store_id: str | None) -> tuple[GraphEdits, Warnings]:
        bank, warnings = await self._met(call, store_id)
        store = await self._records.to_write(bank)
        writer = NotingWriter(self._clock, call.tool, call.session.client)
        told = self._mirror.followed(bank)
        return GraphEdits(
            bank, store, self._lookup, writer, Masking(enabled=self._mask), told
        ), warnings

    async def written(self, edits: GraphEdits, warnings: Warnings) -> list[Warned] | None:
        """Ends a call that wrote; gives all that is to be said besides the answer."""
        followed = await self._mirror.follow(edits.bank, edits.store, edits.own())
        # What stood in the way before the write may stand there still.
        codes = {warning.code for warning in followed}
        met = Warnings([warning for warning in warnings.found if warning.code not in codes])
        return met.and_more([*masking_warnings(edits.masking.kinds), *followed])

    async def _met(self, call: Call, store_id: str | None) -> tuple[Bank, Warnings]:
        bank = await self._banks.existing(call, store_id)
        return bank, Warnings(await self._mirror.meet(bank))


class GraphTools(Family):
    """Entities, observations and relations of the project that a bank belongs to."""

    def __init__(
        self, banks: Banks, records: BankRecords, mirror: Mirror, clock: Clock, *, mask: bool
    ) -> None:
        self._graphs = GraphCalls(banks, records, mirror, clock, mask=mask)

    @tool()
    async def graph_search(
        self,
        call: Call,
        query: Annotated[str, Field("Text or words; `*` lists all.", max_length=10_000)],
        limit: Annotated[
            int, Field("At most, of entities and of observations.", ge=1, le=LIST_LIMIT)
        ] = 10,
        include_neighborhood: Annotated[
            bool, Field("Add connected entities.", name="includeNeighborhood")
        ] = False,
        neighborhood_depth: Annotated[
            int, Field("Hops.", name="neighborhoodDepth", ge=1, le=2)
        ] = 1,
        store_id: StoreId | None = None,
    ) -> FoundNodes:
        """Search the knowledge graph's entities and observations, best first."""
        graph, warnings = await self._graphs.to_read(call, store_id)
        found = await graph.find(query, limit, neighborhood_depth if include_neighborhood else 0)
        return replace(found, warnings=warnings.and_more(found.warnings))

    @tool(Effect.REPEATABLE)
    async def graph_upsert_entity(
        self,
        call: Call,
        name: Annotated[str, Field("Name.", max_length=NAME_LIMIT, blank=False)],
        entity_type: Annotated[
            str, Field("Type.", name="entityType", max_length=NAME_LIMIT, blank=False)
        ],
        attrs: Annotated[
            dict[str, Any], Field("Replace the old ones; none drops them.", max_length=TEXT_LIMIT)
        ]
        | None = None,
        store_id: StoreId | None = None,
    ) -> UpsertedEntity:
        """Create an entity, or replace the attributes of the one with this name and type."""
        edits, warnings = await self._graphs.to_write(call, store_id)
        entity = EntityView.of(await edits.upsert(name, entity_type, attrs or {}))
        return UpsertedEntity(True, entity, await self._graphs.written(edits, warnings))

    @tool(Effect.REPEATABLE)
    async def graph_add_observation(
        self,
        call: Call,
        entity: EntityRef,
        text: Annotated[str, Field("What was observed.", max_length=TEXT_LIMIT, blank=False)],
        source: Annotated[
            str, Field("manual, tool, import, agent, or other words.", max_length=NAME_LIMIT)
        ] = "manual",
        timestamp: Annotated[int, Field("ISO time; default now.", moment=True)] | None = None,
        store_id: StoreId | None = None,
    ) -> AddedObservation:
        """Attach an observation to an existing entity; a text it has already is kept as it is."""
        edits, warnings = await self._graphs.to_write(call, store_id)
        observation = ObservationView.of(*await edits.observe(entity, text, source, timestamp))
        if timestamp is not None and observation.timestamp != iso(timestamp):
            warnings.found.append(_known(observation))
        return AddedObservation(True, observation, await self._graphs.written(edits, warnings))

    @tool(Effect.REPEATABLE)
    async def graph_link_entities(
        self,
        call: Call,
        source: FromEntity,
        relation_type: RelationType,
        target: ToEntity,
        action: Annotated[Literal["link", "unlink"], Field("What to do.")] = "link",
        store_id: StoreId | None = None,
    ) -> Linked:
        """Create a directed relation between existing entities, or remove it."""
        edits, warnings = await self._graphs.to_write(call, store_id)
        if action == "unlink":
            await edits.unlink(source, relation_type, target)
            removed = Linked(True, None, "unlink", source, target, relation_type)
            return replace(removed, warnings=await self._graphs.written(edits, warnings))
        relation = RelationView.of(*await edits.link(source, relation_type, target))
        return Linked(True, relation, warnings=await self._graphs.written(edits, warnings))

    @tool(Effect.DESTROYS)
    async def graph_unlink_entities(
        self,
        call: Call,
        source: FromEntity,
        relation_type: RelationType,
        target: ToEntity,
        store_id: StoreId | None = None,
    ) -> Unlinked:
        """Remove a directed relation."""
        edits, warnings = await self._graphs.to_write(call, store_id)
        await edits.unlink(source, relation_type, target)
        return Unlinked(True, await self._graphs.written(edits, warnings))

    @tool()
    async def graph_open_nodes(
        self,
        call: Call,
        nodes: Annotated[
            list[EntityRef], Field("Names, `name (type)` or ids.", max_items=NODE_LIMIT)
        ],
        depth: Depth = 1,
        store_id: StoreId | None = None,
    ) -> OpenedNodes:
        """Get entities with all observations, and what is connected to them."""
        if not nodes:
            raise InvalidInput("`nodes` is empty.", argument="nodes", value="[]")
        graph, warnings = await self._graphs.to_read(call, store_id)
        opened = await graph.open(nodes, depth)
        return replace(opened, warnings=warnings.and_more(opened.warnings))

    @tool(Effect.DESTROYS)
    async def graph_delete_entity(
        self,
        call: Call,
        entity: EntityRef | None = None,
        observation_id: ObservationId | None = None,
        store_id: StoreId | None = None,
    ) -> Deleted:
        """Delete an entity with its observations and relations, or one observation alone."""
        if entity is None and observation_id is None:
            raise InvalidInput("Either `entity` or `observationId` is required.", argument="entity")
        edits, warnings = await self._graphs.to_write(call, store_id)
        if observation_id is not None:
            await edits.delete_observation(observation_id, entity)
            message = f'Observation "{observation_id}" deleted.'
        else:
            await edits.delete_entity(entity or "")
            message = f'Entity "{entity}" deleted.'
        return Deleted(True, message, await self._graphs.written(edits, warnings))

    @tool(Effect.DESTROYS)
    async def graph_delete_observation(
        self, call: Call, observation_id: ObservationId, store_id: StoreId | None = None
    ) -> Deleted:
        """Delete one observation by its id."""
        edits, warnings = await self._graphs.to_write(call, store_id)
        await edits.delete_observation(observation_id)
        message = f'Observation "{observation_id}" deleted.'
        return Deleted(True, message, await self._graphs.written(edits, warnings))


def _known(observation: ObservationView) -> Warned:
    message = f"The entity has this observation already, of {observation.timestamp}; it was kept."
    return Warned("observation_exists", message)


class DocPointerTools(Family):
    """Pointers from entities to files, which get_targeted_context quotes from."""

    def __init__(
        self, banks: Banks, records: BankRecords, mirror: Mirror, clock: Clock, *, mask: bool
    ) -> None:
        self._graphs = GraphCalls(banks, records, mirror, clock, mask=mask)

    @tool(Effect.REPEATABLE)
    async def graph_add_doc_pointer(
        self,
        call: Call,
        entity: Annotated[
            str,
            Field(
                "Name, `name (type)` or id.",
                name="entityNameOrId",
                max_length=NAME_LIMIT * 2,
                blank=False,
            ),
        ],
        doc_path: Annotated[str, Field("File at the bank's root.", name="docPath", blank=False)],
        heading: Annotated[str, Field("Heading inside it.", max_length=NAME_LIMIT)] | None = None,
        note: Annotated[str, Field("Remark.", max_length=TEXT_LIMIT)] | None = None,
    ) -> DocPointer:
        """Tie an entity to a bank file and heading, for get_targeted_context to quote."""
        edits, warnings = await self._graphs.to_write(call, None)
        found = await found_name(edits.bank, doc_path)
        owner, actions = await edits.point(entity, found or doc_path, heading, note)
        said = await self._graphs.written(edits, warnings) or []
        if found is None:
            said.append(Warned("file_missing", f"The bank has no file {doc_path} yet."))
        return DocPointer(True, owner.name or "", actions, said or None)
