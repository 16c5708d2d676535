"""Memories as records with links: new ones, and the changes to stored ones."""

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.records import SESSION_SCOPE, Delete, Insert, Record, RecordLink, Step, Update
from everkept.core.sessions import get_acting_account
from everkept.core.text import compute_name_key
from everkept.errors import InvalidInput
from everkept.families.memories.memory_identity import (
    EVENT_TYPE,
    MEMORY_PREFIX,
    build_variant,
    compute_text_key,
    create_memory_id,
    get_event_time,
)
from everkept.families.memories.model import (
    AUTOMATIC,
    DEFAULT_IMPORTANCE,
    DERIVED_FROM,
    MAX_TAGS,
    MEMORY,
    MERGED_INTO,
    METADATA_LIMIT,
    SUPERSEDED_BY,
    SUPERSEDES,
    EntityChange,
    LinkedEntity,
    MemorySource,
    MemoryType,
    RelatedEntity,
    Scope,
    TagChange,
)
from everkept.graph.entities import (
    ENTITY,
    STUB_FACETS,
    UNKNOWN_TYPE,
    build_entity,
    build_missing_relations,
    check_name,
    ensure_entities,
    find_candidates,
    group_by_triple,
    is_stub,
    list_relations_from,
    match_names,
    require_unique,
)
from everkept.values import Value, replace

FieldValues = dict[str, Any]


class Amendment(Value):
    """Changes to a memory. None leaves a field unchanged."""

    content: str | None = None
    importance: float | None = None
    tags: TagChange | list[str] | None = None
    metadata: Mapping[str, Any] | None = None
    entities: EntityChange | None = None
    pinned: bool | None = None


def is_hidden_session(record: Record) -> bool:
    """Return whether it is a memory of a session, which a page or list does not show to an account."""
    return record.kind == MEMORY and record.scope == SESSION_SCOPE and get_acting_account() is not None


def compute_amendment(record: Record, amendment: Amendment) -> dict[str, FieldValues]:
    """Return the values that change, by the name of the argument that changes them."""
    facets = dict(record.facets)
    asked: dict[str, FieldValues] = {}
    if amendment.content is not None:
        text = amendment.content
        asked["content"] = {"text": text, "name_key": compute_text_key(text)}
    if amendment.importance is not None:
        asked["importance"] = {"importance": amendment.importance}
    if amendment.tags is not None:
        asked["tags"] = {"tags": change_tags(record.tags, amendment.tags)}
    if amendment.metadata:
        facets["metadata"] = _merge_metadata(facets.get("metadata", {}), amendment.metadata)
        asked["metadata"] = {"facets": facets}
    if amendment.pinned not in (None, "pinned" in facets):
        facets = {name: value for name, value in facets.items() if name != "pinned"}
        facets |= {"pinned": True} if amendment.pinned else {}
        asked["pinned"] = {"facets": facets}
    return {
        name: changed
        for name, values in asked.items()
        if (changed := {key: v for key, v in values.items() if getattr(record, key) != v})
    }


def clear_automatic(record: Record, values: FieldValues) -> FieldValues:
    """Return the values with the automatic mark removed, because a changed memory is no longer automatic."""
    facets: Mapping[str, Any] = values.get("facets", record.facets)
    if not values or AUTOMATIC not in facets:
        return values
    return {**values, "facets": drop_automatic(facets)}


def drop_automatic(facets: Mapping[str, Any]) -> FieldValues:
    return {name: value for name, value in facets.items() if name != AUTOMATIC}


def _merge_metadata(there: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Merge metadata up to the limit. Metadata that is already over the limit can still be shortened."""
    merged = {**there, **patch}
    size, before = (len(json.dumps(part, ensure_ascii=False)) for part in (merged, there))
    if size > METADATA_LIMIT and size > before:
        raise InvalidInput(
            f"`metadata` with the stored keys is over the limit of {METADATA_LIMIT:,} characters of JSON: {size:,}.",
            hint="Set keys that you no longer need to a short value.",
            argument="metadata",
            limit=METADATA_LIMIT,
        )
    return merged


def change_tags(tags: Sequence[str], change: TagChange | list[str]) -> tuple[str, ...]:
    """Apply a change to the tags. A plain list replaces them."""
    if isinstance(change, list):
        return clean_tags(change)
    gone = {tag.strip() for tag in change.remove or ()}
    return clean_tags([*(tag for tag in tags if tag not in gone), *(change.add or ())])


def clean_tags(tags: Sequence[str]) -> tuple[str, ...]:
    for i, tag in enumerate(tags):
        check_name(tag, f"tags[{i}]")
    clean = tuple(dict.fromkeys(tag.strip() for tag in tags))
    if len(clean) > MAX_TAGS:
        raise InvalidInput(
            f"A memory can have at most {MAX_TAGS} tags, not {len(clean)}.",
            hint="Remove tags that you do not need.",
            argument="tags",
            limit=MAX_TAGS,
        )
    return clean


RELINK_COUNT = "relinked"  # facet of a memory: number of changes to the links to its entities


def count_relink(facets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facets after a change of the links. They differ, so that the memory gets a new version."""
    return {**facets, RELINK_COUNT: facets.get(RELINK_COUNT, 0) + 1}


def check_entities(entities: Sequence[RelatedEntity], argument: str) -> None:
    for i, entity in enumerate(entities):
        check_name(entity.name, f"{argument}[{i}].name")
        check_name(entity.type or "", f"{argument}[{i}].type")
        check_name(entity.relationship, f"{argument}[{i}].relationship")


async def build_link_steps(
    store: RecordStore, memory_id: str, entities: Sequence[RelatedEntity], at: int, *, is_new: bool = False
) -> list[Step]:
    """Return steps that create the missing entities and the links that the memory does not have yet."""
    if not entities:
        return []
    typed = [entity for entity in entities if entity.type is not None]
    steps, meant = await ensure_entities(store, [(e.name, e.type or "") for e in typed], at)
    linked = [*zip(typed, meant, strict=True)]
    by_key = {record.name_key: record for record in meant}
    for entity in (entity for entity in entities if entity.type is None):
        record = by_key.get(compute_name_key(entity.name)) or await find_plain_entity(store, entity.name)
        if record is None:
            name = entity.name.strip()
            record = build_entity(name, UNKNOWN_TYPE, compute_name_key(UNKNOWN_TYPE), at, STUB_FACETS)
            steps.append(Insert(record))
        by_key[record.name_key] = record
        linked.append((entity, record))
    wanted = [(memory_id, entity.relationship.strip(), record.id) for entity, record in linked]
    present = {} if is_new else await list_relations_from(store, [memory_id])
    return [*steps, *(Insert(link) for link in build_missing_relations(wanted, present, at))]


async def find_type(stores: Sequence[RecordStore], wanted: RelatedEntity) -> RelatedEntity:
    """Return the entity with the type it has in one of the stores, or unchanged."""
    for store in stores:
        known = await find_plain_entity(store, wanted.name)
        if known is not None and not is_stub(known):
            return replace(wanted, name=known.name or wanted.name, type=known.type)
    return wanted


async def find_plain_entity(store: RecordStore, name: str) -> Record | None:
    """Return the one entity of this name, or None. Raise AmbiguousName if there are several."""
    return require_unique(await find_candidates(store, [name]))[name]


async def build_unlink_steps(store: RecordStore, memory_id: str, names: Sequence[str]) -> list[Step]:
    """Return steps that remove the links to these entities. Ignore entities that are not linked."""
    if not names:
        return []
    linked = await read_linked_entities(store, memory_id)
    meant = match_names((entity for _, entity in linked), names)
    unwanted = {entity.id for some in meant.values() for entity in some}
    return [Delete(link.ref) for link, entity in linked if entity.id in unwanted]


async def read_linked_entities(store: RecordStore, memory_id: str) -> list[tuple[RecordLink, Record]]:
    """Return the entities that a memory is about, each with its link."""
    links = await store.find_links([memory_id], direction="out")
    found = {r.id: r for r in await store.get([x.target for x in links]) if r.kind == ENTITY}
    return [(link, found[link.target]) for link in links if link.target in found]


async def list_linked_entities(store: RecordStore, records: Sequence[Record]) -> dict[str, list[LinkedEntity]]:
    """Return the entities that each of these memories is about. Links of forgotten memories are stale."""
    live = [record.id for record in records if record.deleted_at is None]
    links = await store.find_links(live, direction="out") if live else []
    gone = {record.id for record in records} - set(live)
    stale = await read_forgotten_links(store, sources=gone) if gone else {}
    links += [link for some in stale.values() for link in some]
    targets = list(dict.fromkeys(x.target for x in links if not x.target.startswith(MEMORY_PREFIX)))
    entities = {r.id: r for r in await store.get(targets) if r.kind == ENTITY} if targets else {}
    found: dict[str, list[LinkedEntity]] = {}
    for link in links:
        if (entity := entities.get(link.target)) is not None:
            shown = LinkedEntity(entity.name or "", entity.type or "", link.verb, True if link.deleted_at else None)
            found.setdefault(link.source, []).append(shown)
    return found


async def read_forgotten_links(
    store: RecordStore, *, sources: Container[str] | None = None, targets: Container[str] | None = None
) -> dict[str, list[RecordLink]]:
    """Return the links that forgotten memories had until they were forgotten, by memory."""
    gone: dict[str, list[RecordLink]] = {}
    for link in await store.scan_links(deleted=True):
        is_wanted = (sources is None or link.source in sources) and (targets is None or link.target in targets)
        if is_wanted and link.source.startswith(MEMORY_PREFIX):
            gone.setdefault(link.source, []).append(link)
    forgotten = {
        record.id: record.deleted_at
        for record in (await store.get(list(gone), include_deleted=True) if gone else [])
        if record.deleted_at is not None and MERGED_INTO not in record.facets
    }
    # A link that was removed earlier has another time.
    kept = {i: [x for x in links if x.deleted_at == forgotten.get(i, -1)] for i, links in gone.items()}
    return {i: links for i, links in kept.items() if links}


async def find_memories_by_type(store: RecordStore, relationship_type: str, *, forgotten: bool) -> set[str]:
    """Return the ids of memories with this relationship to an entity."""
    wanted = compute_name_key(relationship_type)
    links = await store.scan_links(deleted=False, containing=relationship_type.strip())
    if forgotten:
        links += [link for some in (await read_forgotten_links(store)).values() for link in some]
    return {x.source for x in links if x.source.startswith(MEMORY_PREFIX) and compute_name_key(x.verb) == wanted}


async def read_memory_links(store: RecordStore, memory_id: str) -> list[RecordLink]:
    """Return the links between a memory and its sources, derived memories, and replaced or replacing facts."""
    links = await store.find_links([memory_id])
    return [
        link
        for link in links
        if link.verb in (DERIVED_FROM, SUPERSEDES)
        and link.source.startswith(MEMORY_PREFIX)
        and link.target.startswith(MEMORY_PREFIX)
    ]


async def build_carry_steps(store: RecordStore, links: Sequence[RecordLink], old: str, new: str, at: int) -> list[Step]:
    """Return steps that copy the links of one memory to another, if their other ends are in this store."""
    moved = {(new if x.source == old else x.source, x.verb, new if x.target == old else x.target): x for x in links}
    others = [end for source, _, target in moved for end in (source, target) if end != new]
    live = {new, *(record.id for record in await store.get(others))}
    wanted = {x: link for x, link in moved.items() if x[0] != x[2] and {x[0], x[2]} <= live}
    made = build_missing_relations(wanted, group_by_triple(await store.find_links([new])), at)
    return [Insert(replace(x, facets=wanted[x.source, x.verb, x.target].facets)) for x in made]


def count_new_links(steps: Sequence[Step]) -> int:
    return sum(isinstance(step, Insert) and isinstance(step.item, RecordLink) for step in steps)


def build_top_up(there: Record, new: Record, *, has_links: bool) -> tuple[list[Step], list[str]]:
    """Add what an existing memory lacks. If it now replaces another one, it is no longer superseded."""
    # A call that gives no importance has the default one.
    is_usual = new.importance == DEFAULT_IMPORTANCE
    values, updated = merge_values(there, replace(new, importance=None) if is_usual else new)
    if "tags" in values:
        values["tags"] = clean_tags(values["tags"])
    facets: Mapping[str, Any] = values.get("facets", there.facets)
    if SUPERSEDES in new.facets:
        kept = {name: value for name, value in facets.items() if name != SUPERSEDED_BY}
        facets = {**kept, SUPERSEDES: new.facets[SUPERSEDES]}
    if has_links:
        facets = count_relink(facets)
        updated = [*updated, "related_entities"]
    if facets != there.facets:
        values["facets"] = facets
    return [Update(there.id, values, there.version)] if values else [], updated


def merge_values(there: Record, new: Record) -> tuple[FieldValues, list[str]]:
    """Return the values that change, and the names of the fields that gained.

    Tags are added, the higher importance counts, and missing values are filled in. Other values stay, including the
    time of an event, which is part of its identity. If the new memory was requested, the result is no longer automatic.
    """
    values: FieldValues = {}
    gained: list[str] = []
    facets = dict(there.facets) if AUTOMATIC in new.facets else drop_automatic(there.facets)
    if missing := [tag for tag in new.tags if tag not in there.tags]:
        values["tags"] = (*there.tags, *missing)
        gained.append("tags")
    if (new.importance or 0.0) > (there.importance or 0.0):
        values["importance"] = new.importance
        gained.append("importance")
    if new.facets.get("pinned") and not facets.get("pinned"):
        facets["pinned"] = True
        gained.append("pinned")
    if merged := _fill_metadata(facets.get("metadata"), new.facets.get("metadata")):
        facets["metadata"] = merged
        gained.append("metadata")
    if new.author and not there.author:
        values["author"] = new.author
        gained.append("author")
    if new.occurred_at is not None and there.occurred_at is None and there.type != EVENT_TYPE:
        values["occurred_at"] = new.occurred_at
        gained.append("occurred_at")
    if (source := _get_source(there, new)) and not facets.get("source"):
        facets["source"] = source
        values["name"] = source.get("file")
        gained.append("source")
        if there.session == new.session and there.position is None:
            values["position"] = new.position
    if facets != there.facets:
        values["facets"] = facets
    return values, gained


def _fill_metadata(there: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the stored metadata with the keys that it lacks. Return None if nothing changes or it gets too long."""
    merged = {**(new or {}), **(there or {})}
    if merged == (there or {}) or len(json.dumps(merged, ensure_ascii=False)) > METADATA_LIMIT:
        return None
    return merged


def list_differences(there: Record, new: Record, gained: Sequence[str]) -> list[str]:
    """Return the names of fields in which the new memory differs and the stored one keeps its value."""
    names = [name for name in ("type", "author", "occurred_at") if name not in gained]
    differing = [n for n in names if getattr(new, n) is not None and getattr(new, n) != getattr(there, n)]
    known, given = there.facets.get("metadata", {}), new.facets.get("metadata", {})
    if any(known[key] != value for key, value in given.items() if key in known):
        differing.append("metadata")
    return differing


def _get_source(there: Record, new: Record) -> FieldValues:
    """Return the source of the new memory. A turn number applies only within the same session."""
    source: FieldValues = dict(new.facets.get("source") or {})
    if there.session != new.session:
        source.pop("conversation_turn", None)
    return source


UNKNOWN_SOURCE = MemorySource()
HOOK_PREFIX = "hook"  # prefix of the tool in the source of an automatic memory


class NewMemory(Value):
    """Memory to store. `session` is None if no session is known."""

    content: str
    type: MemoryType
    scope: Scope
    importance: float = DEFAULT_IMPORTANCE
    session: str | None = None
    tags: Sequence[str] = ()
    source: MemorySource = UNKNOWN_SOURCE
    entities: Sequence[RelatedEntity] = ()
    author: str | None = None
    occurred_at: int | None = None
    pinned: bool = False
    supersedes: str | None = None
    metadata: Mapping[str, Any] | None = None

    @property
    def is_automatic(self) -> bool:
        return (self.source.tool or "").startswith(HOOK_PREFIX)


def check_memory(wanted: NewMemory) -> NewMemory:
    check_entities(wanted.entities, "related_entities")
    for name, value in (("session_id", wanted.session), ("author", wanted.author)):
        if value is not None:
            check_name(value, name)
    return replace(wanted, tags=clean_tags(wanted.tags))


def build_record(wanted: NewMemory, replaced: str | None, at: int) -> Record:
    facets: dict[str, Any] = {
        "source": wanted.source.to_facts(),
        "pinned": wanted.pinned,
        AUTOMATIC: wanted.is_automatic,
        SUPERSEDES: replaced,
        "metadata": wanted.metadata and _merge_metadata({}, wanted.metadata),
    }
    return Record(
        id=create_memory_id(at),
        kind=MEMORY,
        name=wanted.source.file,  # indexed, so that a query with the file finds the memory
        type=wanted.type,
        text=wanted.content,
        name_key=compute_text_key(wanted.content),
        variant=build_variant(wanted.scope, wanted.session, get_event_time(wanted.type, wanted.occurred_at)),
        scope=wanted.scope,
        session=wanted.session,
        position=wanted.source.conversation_turn,
        author=wanted.author,
        importance=wanted.importance,
        occurred_at=wanted.occurred_at,
        tags=tuple(wanted.tags),
        facets={name: value for name, value in facets.items() if value},
        created_at=at,
        updated_at=at,
    )
