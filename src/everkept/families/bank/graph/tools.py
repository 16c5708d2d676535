"""The tools of the bank's knowledge graph, and their changes, each in one commit."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from everkept.core.commits import ChangeWriter, Planned
from everkept.core.ports import RecordStore
from everkept.core.records import Change, Delete, Insert, Record, RecordFilter, RecordLink, Step, Update
from everkept.core.secrets import Masker, mask_apart
from everkept.core.sessions import ToolCall
from everkept.core.text import compute_name_key
from everkept.core.times import Clock, format_iso
from everkept.errors import InvalidInput, NotFound
from everkept.families.bank.bank_files import find_name
from everkept.families.bank.banks import Bank, BankRecords, Banks
from everkept.families.bank.graph.graph_events import EventsSince, OwnChange, build_events, compute_mark
from everkept.families.bank.graph.mirror import GraphMirror
from everkept.families.bank.graph.model import (
    MAX_NODES,
    MAX_SEARCH_RESULTS,
    MAX_TEXT_CHARACTERS,
    AddedObservation,
    BankDeletion,
    BankEntityView,
    BankFoundNodes,
    BankObservationView,
    BankOpenedNodes,
    BankRelationView,
    Depth,
    DocPointer,
    EntityRef,
    FromEntity,
    LinkedEntities,
    ObservationId,
    ObservationSource,
    RelationType,
    ToEntity,
    UnlinkedEntities,
    UpsertedEntity,
    build_source_facets,
    get_attrs,
    parse_source,
    with_attrs,
)
from everkept.families.bank.graph.queries import EntityLookup, GraphReader, build_ambiguous_error
from everkept.families.bank.model import StoreId
from everkept.graph.entities import (
    BY_NAME_AND_TYPE,
    ENTITY,
    MAX_NAME_CHARACTERS,
    OBSERVATION,
    STUB_FACETS,
    build_entity_step,
    build_observation,
    build_relation,
    check_name,
    find_stub,
    is_stub,
    list_observations,
    list_relations_from,
    list_stored_forms,
    require_entity,
)
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, ToolFamily, ToolWarning, build_masking_warnings, tool
from everkept.values import Value, field, replace

CREATE_HINT = "Create it first with graph_upsert_entity."
SEARCH_HINT = "Find entities with graph_search."
DOC_POINTER_SOURCE = ObservationSource("tool", "graph_add_doc_pointer")


class RecordingWriter(ChangeWriter):
    """Writer that remembers what it committed."""

    done: list[tuple[Sequence[Step], Change]] = field(default_factory=list[tuple[Sequence[Step], Change]])

    async def commit_steps(self, store: RecordStore, steps: Sequence[Step], at: int) -> Change:
        change = await super().commit_steps(store, steps, at)
        self.done.append((steps, change))
        return change


class GraphEditor(Value):
    """The edits of one call, with secrets masked."""

    bank: Bank
    store: RecordStore
    lookup: EntityLookup
    writer: RecordingWriter
    masking: Masker
    told: int | None = None  # the last change in the log before the call
    _around: list[Record] = field(default_factory=list[Record])  # entities that the last plan read

    def get_own_change(self) -> OwnChange | None:
        """Return the call's change, so that the mirror need not read it. Return None if it is incomplete."""
        if self.told is None or len(self.writer.done) != 1:
            return None
        [(steps, change)] = self.writer.done
        if change.seq != self.told + 1:
            return None
        # No other process committed in between, so the records that the plan read were current.
        known = {record.id: record for record in self._around}
        records: list[tuple[Record | None, Record | None]] = []
        links: list[RecordLink] = []
        for step in steps:
            match step:
                case Insert(item=RecordLink() as link):
                    links.append(link)
                case Insert(item=Record() as record):
                    records.append((None, record))
                case Update() if step.id in known and [*step.values] == ["facets"]:
                    then, facets = known[step.id], step.values["facets"]
                    records.append((then, replace(then, facets=facets, updated_at=change.at)))
                case _:
                    return None
        events = build_events(records, links, self._around, change.at)
        return OwnChange(EventsSince(events, change.seq, compute_mark(change)), self.told)

    async def upsert(self, name: str, entity_type: str, attrs: Mapping[str, Any] | None) -> Record:
        """Create or update the entity of this name and type. None keeps the attributes it has."""
        check_name(name, "name")
        check_name(entity_type, "entityType")
        name, entity_type = self.masking.mask(name).strip(), self.masking.mask(entity_type).strip()
        if attrs is not None:
            attrs = await mask_apart(len(str(attrs)), partial(self.masking.mask_json, attrs))

        async def plan(store: RecordStore, at: int) -> Planned[Record]:
            same_name = RecordFilter(kinds=(ENTITY,), name_keys=(compute_name_key(name),))
            self._around[:] = namesakes = await store.scan(same_name)
            known = _find_same(namesakes, name, entity_type)
            if known is not None:
                return _plan_facets(known, known.facets if attrs is None else with_attrs(known.facets, attrs), at)
            new = BY_NAME_AND_TYPE.build_entity(name, entity_type, at, with_attrs({}, attrs or {}))
            stub = find_stub(namesakes, name)
            if stub is not None:
                rest = {key: value for key, value in stub.facets.items() if key not in STUB_FACETS}
                facets = {**rest, **new.facets}
                new = replace(new, created_at=stub.created_at, facets=facets)
            step, made = build_entity_step(new, stub)
            return [step], made

        return await self.writer.commit(self.store, plan)

    async def add_observation(
        self, entity: str, text: str, source: str, occurred_at: int | None
    ) -> tuple[Record, Record]:
        """Return the observation and its entity. A text that the entity already has is not changed."""
        text = await mask_apart(len(text), partial(self.masking.mask, text))
        facets = build_source_facets(parse_source(self.masking.mask(source)))

        async def plan(store: RecordStore, at: int) -> Planned[tuple[Record, Record]]:
            owner = await self._require_entity(store, entity, CREATE_HINT)
            self._around[:] = [owner]
            if known := await list_observations(store, [owner.id], [text]):
                return [], (known[0], owner)
            new = build_observation(owner.id, text, at, facets=facets, occurred_at=occurred_at)
            return [Insert(new)], (new, owner)

        return await self.writer.commit(self.store, plan)

    async def link(self, source: str, verb: str, target: str) -> tuple[RecordLink, Record, Record]:
        """Return the new or existing relation, and its two entities."""
        check_name(verb, "relationType")
        verb = self.masking.mask(verb).strip()

        async def plan(store: RecordStore, at: int) -> Planned[tuple[RecordLink, Record, Record]]:
            self._around[:] = ends = await self._require_ends(store, source, target)
            source_id, target_id = (end.id for end in ends)
            present = await list_relations_from(store, [source_id], compute_name_key)
            if known := present.get((source_id, compute_name_key(verb), target_id)):
                exact = next((link for link in known if link.verb == verb), known[0])
                return [], (exact, *ends)
            new = build_relation(source_id, verb, target_id, at)
            return [Insert(new)], (new, *ends)

        return await self.writer.commit(self.store, plan)

    async def unlink(self, source: str, verb: str, target: str) -> None:
        """Delete a relation. The relation may be missing, its entities must exist."""
        verbs = dict.fromkeys(compute_name_key(form) for form in list_stored_forms(verb))

        async def plan(store: RecordStore, at: int) -> Planned[None]:
            source_id, target_id = (end.id for end in await self._require_ends(store, source, target))
            present = await list_relations_from(store, [source_id], compute_name_key)
            known = (present.get((source_id, verb, target_id), ()) for verb in verbs)
            return [Delete(link.ref) for links in known for link in links], None

        await self.writer.commit(self.store, plan)

    async def delete_entity(self, entity: str) -> None:
        async def plan(store: RecordStore, at: int) -> Planned[None]:
            return [Delete((await self._require_entity(store, entity, SEARCH_HINT)).ref)], None

        await self.writer.commit(self.store, plan)

    async def delete_observation(self, public_id: str, entity: str | None = None) -> None:
        """Delete an observation. With `entity`, it must belong to that entity."""

        async def plan(store: RecordStore, at: int) -> Planned[None]:
            found = await self.lookup.find_observations(self.bank, store, public_id.strip())
            if entity is not None:
                owner = await self._require_entity(store, entity, SEARCH_HINT)
                found = [pair for pair in found if pair[1].id == owner.id]
            if not found:
                where = "" if entity is None else f' at entity "{entity}"'
                raise NotFound(
                    OBSERVATION,
                    public_id,
                    message=f'Observation not found{where}: "{public_id}".',
                    hint="List observations and their ids with graph_open_nodes.",
                )
            return [Delete(observation.ref) for observation, _ in found], None

        await self.writer.commit(self.store, plan)

    async def add_pointer(
        self, entity: str, doc_path: str, heading: str | None, note: str | None
    ) -> tuple[Record, list[str]]:
        """Link an entity to a file. Return the entity and a list of the changes."""
        pointer = {"docPath": doc_path} | ({"heading": self.masking.mask(heading)} if heading else {})
        text = f"DOC: {doc_path}"
        text += f" # {pointer['heading']}" if heading else ""
        text += f" - {self.masking.mask(note)}" if note else ""

        async def plan(store: RecordStore, at: int) -> Planned[tuple[Record, list[str]]]:
            owner = await self._require_entity(store, entity, CREATE_HINT)
            attrs = get_attrs(owner)
            attrs.pop("heading", None)
            steps, owner = _plan_facets(owner, with_attrs(owner.facets, attrs | pointer), at)
            actions = [f"Set attrs.{name} to {value}" for name, value in pointer.items() if steps]
            if not await list_observations(store, [owner.id], [text]):
                facets = build_source_facets(DOC_POINTER_SOURCE)
                steps.append(Insert(build_observation(owner.id, text, at, facets=facets)))
                actions.append(f"Added observation: {text}")
            return steps, (owner, actions or ["The pointer already exists"])

        return await self.writer.commit(self.store, plan)

    async def _require_entity(self, store: RecordStore, name: str, hint: str) -> Record:
        found = await self.lookup.find_entities(self.bank, store, [name])
        return require_entity(found, name, hint, f'Entity not found: "{name}".')

    async def _require_ends(self, store: RecordStore, source: str, target: str) -> tuple[Record, Record]:
        found = await self.lookup.find_entities(self.bank, store, [source, target])
        return (
            require_entity(found, source, CREATE_HINT, f'Source entity not found: "{source}".'),
            require_entity(found, target, CREATE_HINT, f'Target entity not found: "{target}".'),
        )


def _find_same(namesakes: Sequence[Record], name: str, entity_type: str) -> Record | None:
    """Return the entity of this name and type. Case and whitespace matter only if several entities match."""
    variant = compute_name_key(entity_type)
    same = [r for r in namesakes if not is_stub(r) and compute_name_key(r.type or "") == variant]
    ordinary = next((record for record in same if record.variant == variant), None)
    exact = next((record for record in same if record.name == name), None)
    if exact is None and ordinary is None and len(same) > 1:
        raise build_ambiguous_error(name, same)
    return exact or ordinary or (same[0] if same else None)


def _plan_facets(record: Record, facets: Mapping[str, Any], at: int) -> Planned[Record]:
    """Return no step if the facets are unchanged."""
    if facets == record.facets:
        return [], record
    step: Step = Update(record.id, {"facets": facets}, record.version)
    return [step], replace(record, facets=facets, updated_at=at)


class CallWarnings(Value):
    """Warnings of a call that succeeds."""

    found: list[ToolWarning]

    def combine(self, more: Iterable[ToolWarning] | None = None) -> list[ToolWarning] | None:
        return list(dict.fromkeys([*self.found, *(more or ())])) or None


class GraphAccess:
    """Opens the graph of a call's bank."""

    def __init__(self, banks: Banks, records: BankRecords, mirror: GraphMirror, clock: Clock, *, mask: bool) -> None:
        self._banks = banks
        self._records = records
        self._mirror = mirror
        self._clock = clock
        self._mask = mask
        self._lookup = EntityLookup(records)

    async def open_to_read(self, call: ToolCall, store_id: str | None) -> tuple[GraphReader, CallWarnings]:
        bank, warnings = await self._open_merged(call, store_id)
        return GraphReader(bank, await self._records.open_to_read(bank), self._lookup), warnings

    async def open_to_write(self, call: ToolCall, store_id: str | None) -> tuple[GraphEditor, CallWarnings]:
        bank, warnings = await self._open_merged(call, store_id)
        store = await self._records.open_to_write(bank)
        writer = RecordingWriter(self._clock, call.tool, call.session.client)
        told = self._mirror.get_appended_seq(bank)
        return GraphEditor(bank, store, self._lookup, writer, Masker(enabled=self._mask), told), warnings

    async def finish_write(self, edits: GraphEditor, warnings: CallWarnings) -> list[ToolWarning] | None:
        """Update the log after a write, and return all warnings of the call."""
        followed = await self._mirror.append_changes(edits.bank, edits.store, edits.get_own_change())
        # The reason for a warning before the write may still apply; report it once.
        codes = {warning.code for warning in followed}
        met = CallWarnings([warning for warning in warnings.found if warning.code not in codes])
        return met.combine([*build_masking_warnings(edits.masking.kinds), *followed])

    async def _open_merged(self, call: ToolCall, store_id: str | None) -> tuple[Bank, CallWarnings]:
        bank = await self._banks.require_bank(call, store_id)
        return bank, CallWarnings(await self._mirror.merge_log(bank))


class BankGraphTools(ToolFamily):
    """Tools for the entities, observations and relations of a bank's project."""

    def __init__(self, banks: Banks, records: BankRecords, mirror: GraphMirror, clock: Clock, *, mask: bool) -> None:
        self._graphs = GraphAccess(banks, records, mirror, clock, mask=mask)

    @tool()
    async def graph_search(
        self,
        call: ToolCall,
        query: Annotated[str, Field("Words to search for; `*` lists all entities", max_length=10_000)],
        limit: Annotated[
            int, Field("Maximum entities, and maximum observations, default 10", ge=1, le=MAX_SEARCH_RESULTS)
        ] = 10,
        include_neighborhood: Annotated[
            bool, Field("true: add connected entities; default false", name="includeNeighborhood")
        ] = False,
        neighborhood_depth: Annotated[
            int, Field("Hops, 1 or 2, default 1", name="neighborhoodDepth", ge=1, le=2, listed=False)
        ] = 1,
        store_id: StoreId | None = None,
    ) -> BankFoundNodes:
        """Search entities and observations of the bank's graph, best first."""
        graph, warnings = await self._graphs.open_to_read(call, store_id)
        found = await graph.find(query, limit, neighborhood_depth if include_neighborhood else 0)
        return replace(found, warnings=warnings.combine(found.warnings))

    @tool(Effect.REPEATABLE)
    async def graph_upsert_entity(
        self,
        call: ToolCall,
        name: Annotated[str, Field("Entity name", max_length=MAX_NAME_CHARACTERS, blank=False)],
        entity_type: Annotated[
            str, Field("Such as person or service", name="entityType", max_length=MAX_NAME_CHARACTERS, blank=False)
        ],
        attrs: Annotated[
            dict[str, Any],
            Field("New attributes, replacing all old ones; omit to keep them", max_length=MAX_TEXT_CHARACTERS),
        ]
        | None = None,
        store_id: StoreId | None = None,
    ) -> UpsertedEntity:
        """Create an entity, or update the one with this name and type."""
        edits, warnings = await self._graphs.open_to_write(call, store_id)
        entity = BankEntityView.from_record(await edits.upsert(name, entity_type, attrs))
        return UpsertedEntity(True, entity, await self._graphs.finish_write(edits, warnings))

    @tool(Effect.REPEATABLE)
    async def graph_add_observation(
        self,
        call: ToolCall,
        entity: EntityRef,
        text: Annotated[str, Field("One fact about the entity", max_length=MAX_TEXT_CHARACTERS, blank=False)],
        source: Annotated[
            str,
            Field("Where it comes from, such as manual, tool or import", max_length=MAX_NAME_CHARACTERS, listed=False),
        ] = "manual",
        timestamp: Annotated[int, Field("When it was observed, ISO 8601; default: now", moment=True, listed=False)]
        | None = None,
        store_id: StoreId | None = None,
    ) -> AddedObservation:
        """Add an observation to an existing entity. A duplicate text is ignored."""
        edits, warnings = await self._graphs.open_to_write(call, store_id)
        observation = BankObservationView.from_record(*await edits.add_observation(entity, text, source, timestamp))
        if timestamp is not None and observation.timestamp != format_iso(timestamp):
            message = f"The entity already has this observation, dated {observation.timestamp}; the date was kept."
            warnings.found.append(ToolWarning("observation_exists", message))
        return AddedObservation(True, observation, await self._graphs.finish_write(edits, warnings))

    @tool(Effect.REPEATABLE)
    async def graph_link_entities(
        self,
        call: ToolCall,
        source: FromEntity,
        relation_type: RelationType,
        target: ToEntity,
        action: Annotated[Literal["link", "unlink"], Field("What to do; default link")] = "link",
        store_id: StoreId | None = None,
    ) -> LinkedEntities:
        """Link two existing entities, or remove the link."""
        edits, warnings = await self._graphs.open_to_write(call, store_id)
        if action == "unlink":
            await edits.unlink(source, relation_type, target)
            removed = LinkedEntities(True, None, "unlink", source, target, relation_type)
            return replace(removed, warnings=await self._graphs.finish_write(edits, warnings))
        relation = BankRelationView.from_link(*await edits.link(source, relation_type, target))
        return LinkedEntities(True, relation, warnings=await self._graphs.finish_write(edits, warnings))

    @tool(Effect.DESTROYS)
    async def graph_unlink_entities(
        self,
        call: ToolCall,
        source: FromEntity,
        relation_type: RelationType,
        target: ToEntity,
        store_id: StoreId | None = None,
    ) -> UnlinkedEntities:
        """Remove a relation between two entities."""
        edits, warnings = await self._graphs.open_to_write(call, store_id)
        await edits.unlink(source, relation_type, target)
        return UnlinkedEntities(True, await self._graphs.finish_write(edits, warnings))

    @tool()
    async def graph_open_nodes(
        self,
        call: ToolCall,
        nodes: Annotated[list[EntityRef], Field("Names, `name (type)` or ids", max_items=MAX_NODES)],
        depth: Depth = 1,
        store_id: StoreId | None = None,
    ) -> BankOpenedNodes:
        """Get entities with their observations and connected entities. A name with two types returns both."""
        if not nodes:
            raise InvalidInput("`nodes` is empty.", hint="Pass at least one name or id.", argument="nodes", value="[]")
        graph, warnings = await self._graphs.open_to_read(call, store_id)
        opened = await graph.open(nodes, depth)
        return replace(opened, warnings=warnings.combine(opened.warnings))

    @tool(Effect.DESTROYS)
    async def graph_delete_entity(
        self,
        call: ToolCall,
        entity: EntityRef | None = None,
        observation_id: ObservationId | None = None,
        store_id: StoreId | None = None,
    ) -> BankDeletion:
        """Delete an entity with its observations and relations, or only one observation."""
        if entity is None and observation_id is None:
            raise InvalidInput("Specify `entity` or `observationId`.", argument="entity")
        edits, warnings = await self._graphs.open_to_write(call, store_id)
        if observation_id is not None:
            await edits.delete_observation(observation_id, entity)
            message = f'Observation "{observation_id}" deleted.'
        else:
            await edits.delete_entity(entity or "")
            message = f'Entity "{entity}" deleted.'
        return BankDeletion(True, message, await self._graphs.finish_write(edits, warnings))

    @tool(Effect.DESTROYS)
    async def graph_delete_observation(
        self, call: ToolCall, observation_id: ObservationId, store_id: StoreId | None = None
    ) -> BankDeletion:
        """Delete one observation by its id."""
        edits, warnings = await self._graphs.open_to_write(call, store_id)
        await edits.delete_observation(observation_id)
        message = f'Observation "{observation_id}" deleted.'
        return BankDeletion(True, message, await self._graphs.finish_write(edits, warnings))


class DocPointerTools(ToolFamily):
    """Tool for pointers from entities to files, which get_targeted_context quotes."""

    def __init__(self, banks: Banks, records: BankRecords, mirror: GraphMirror, clock: Clock, *, mask: bool) -> None:
        self._graphs = GraphAccess(banks, records, mirror, clock, mask=mask)

    @tool(Effect.REPEATABLE)
    async def graph_add_doc_pointer(
        self,
        call: ToolCall,
        entity: Annotated[
            str,
            Field("Name, `name (type)` or id", name="entityNameOrId", max_length=MAX_NAME_CHARACTERS * 2, blank=False),
        ],
        doc_path: Annotated[str, Field("File at the top level of the bank", name="docPath", blank=False)],
        heading: Annotated[str, Field("Heading in that file", max_length=MAX_NAME_CHARACTERS)] | None = None,
        note: Annotated[str, Field("Note about the pointer", max_length=MAX_TEXT_CHARACTERS)] | None = None,
    ) -> DocPointer:
        """Link an entity to a bank file and heading, so that get_targeted_context quotes it."""
        edits, warnings = await self._graphs.open_to_write(call, None)
        found = await find_name(edits.bank, doc_path)
        owner, actions = await edits.add_pointer(entity, found or doc_path, heading, note)
        said = await self._graphs.finish_write(edits, warnings) or []
        if found is None:
            said.append(ToolWarning("file_missing", f"The bank has no file {doc_path} yet."))
        return DocPointer(True, owner.name or "", actions, said or None)
