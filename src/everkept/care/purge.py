"""Permanent removal: the things that a purge selects, and secrets stored unmasked."""

import json
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from everkept.accounts.project_changes import label_trashed, list_trashed, open_trashed
from everkept.core.ports import Library, PurgeResult, RecordStore
from everkept.core.projects import USER_PROJECT, TrashedProject, is_trash_name
from everkept.core.records import SESSION_SCOPE, Edit, Record, RecordFilter, RecordLink, Ref
from everkept.core.secrets import mask_json, mask_text
from everkept.core.sessions import is_private_name
from everkept.core.text import clip_text, compute_digest, compute_name_key
from everkept.errors import AmbiguousId, EverkeptError, ProjectOff
from everkept.families.memories.memory_identity import compute_text_key, get_title
from everkept.families.memories.stores import find_memories_by_prefix
from everkept.graph.entities import (
    ENTITY,
    ExactNameAndTypeIdentity,
    ExactNameIdentity,
    NameAndTypeIdentity,
    build_ambiguity_error,
    find_entities,
    find_entities_by_prefix,
)
from everkept.values import Value

MAX_MATCHES = 1_000_000  # a purge takes all matches

PurgeItem = Record | RecordLink


async def select_items(
    store: RecordStore, names: Sequence[str], *, deleted: bool, containing: str | None
) -> list[PurgeItem]:
    """Select live and deleted things by name or id, all deleted ones, and those that contain a text."""
    found: list[PurgeItem] = [thing for name in names for thing in await _find_named(store, name)]
    if deleted:
        found += await store.scan(RecordFilter(deleted=True))
        found += await store.scan_links(deleted=True)
    if containing:
        found += await _find_containing(store, containing)
    return list({thing.ref: thing for thing in found}.values())


def get_label(thing: PurgeItem) -> str:
    return thing.verb if isinstance(thing, RecordLink) else get_title(thing)


async def _find_named(store: RecordStore, name: str) -> Sequence[PurgeItem]:
    """Return the things with an id or a name, or nothing.

    The deleted entities with the same name and type are included.
    """
    by_id: list[PurgeItem] = [
        *await store.get([name], include_deleted=True),
        *await store.get_links([name], include_deleted=True),
    ]
    if by_id:
        return by_id
    found = (await find_entities(store, [name], deleted=None))[name]
    if not found:
        return await _find_by_prefix(store, name)
    distinct = {(record.variant, compute_name_key(record.type or "")): record for record in found}
    if len(distinct) > 1:
        raise build_ambiguity_error(name, distinct.values())
    return found


async def _find_by_prefix(store: RecordStore, prefix: str) -> Sequence[PurgeItem]:
    """Return the one memory or entity whose id begins so, even a deleted one. Raise AmbiguousId."""
    memories = [record for _, record in await find_memories_by_prefix([store], prefix)]
    found = {record.id: record for record in memories or await find_entities_by_prefix(store, prefix, deleted=True)}
    if len(found) > 1:
        raise AmbiguousId(
            "memory" if memories else ENTITY, prefix, {i: clip_text(get_title(r)) for i, r in found.items()}
        )
    return [*found.values()]


async def _find_containing(store: RecordStore, text: str) -> list[PurgeItem]:
    wanted = text.lower()
    live = await store.match_text(text, RecordFilter(), MAX_MATCHES)
    return [
        *await store.get([match.id for match in live]),
        *(
            record
            for record in await store.scan(RecordFilter(deleted=True))
            if any(wanted in (part or "").lower() for part in (record.name, record.type, record.text))
        ),
        *await store.scan_links(deleted=None, containing=text),
    ]


PAGE_CHANGES = 50  # of the log, per read
PAGE_ITEMS = 500  # records or links per read
EXCERPT_CHARACTERS = 60  # shown around a secret
OLD_VALUE = "old value"
LINK_KIND = "link"

# Fields that people write. The program creates the others.
TEXT_FIELDS = ("name", "type", "text", "author", "tags", "facets", "verb")
ID_FIELDS = ("id", "session")

# How the unique key of a record is computed, and from which field.
_KEY_FUNCTIONS = (("text", compute_digest), ("text", compute_text_key), ("name", compute_name_key))
_IDENTITIES = (NameAndTypeIdentity(), ExactNameIdentity(), ExactNameAndTypeIdentity())
_SESSION_VARIANT = re.compile(rf"(?:-?\d+ )?{SESSION_SCOPE}:")

log = logging.getLogger(__name__)

StoredValues = Mapping[str, Any]


class SecretFinding(Value):
    """Place and kind of a secret, and the words around it.

    It never contains the secret, except an id, which is stored unchanged. For accounts' private data, it has no words.
    """

    project: str
    kind: str
    id: str
    place: str  # the field, or an old value in the log
    secrets: list[str]
    excerpt: str
    in_id: bool = False

    @property
    def ref(self) -> Ref:
        return Ref("link" if self.kind == LINK_KIND else "record", self.id)


class SecretAudit(Value):
    """Secrets that were found, and projects that could not be searched."""

    findings: list[SecretFinding]
    left_out: list[str]


class MaskResult(Value):
    """Count of masked secrets. `complete` is False while a reader keeps old pages."""

    records: int
    links: int
    complete: bool


async def find_secrets(library: Library, project: str | None = None) -> SecretAudit:
    """Find secrets in one project, or in all of them, the trash and the user's data."""
    audit = SecretAudit([], [])
    trash = [each for each in await list_trashed(library) if project in (None, each.name)]
    await _find_in_trash(library, trash, audit)
    if project is not None:
        if not trash or any(each.name == project for each in await library.list_projects()):
            audit.findings.extend([f async for f in _find_in_store(await _open_store(library, project), project)])
        return audit
    live = [each.name for each in await library.list_projects() if not is_trash_name(each.name)]
    for name in [*live, USER_PROJECT]:
        try:
            store = await _open_store(library, name)
            audit.findings.extend([finding async for finding in _find_in_store(store, name)])
        except EverkeptError as error:
            # An archived, off or damaged project must not hide the findings in others.
            log.warning("project %s skipped: %s", name, error)
            audit.left_out.append(name)
    return audit


async def _find_in_trash(library: Library, trash: Sequence[TrashedProject], audit: SecretAudit) -> None:
    for each in trash:
        label = label_trashed(each)
        if each.is_off:
            audit.left_out.append(label)
            continue
        try:
            store = await library.get_store(each.project)
            audit.findings.extend([finding async for finding in _find_in_store(store, label)])
        except EverkeptError as error:
            log.warning("project %s skipped: %s", label, error)
            audit.left_out.append(label)


async def mask_secrets(library: Library, findings: Sequence[SecretFinding]) -> MaskResult:
    """Mask secrets in records, links, log and index. Only ids stay unchanged."""
    records, links, complete = 0, 0, True
    by_project: dict[str, dict[Ref, None]] = {}
    for finding in findings:
        if not finding.in_id:
            by_project.setdefault(finding.project, {})[finding.ref] = None
    trash = {label_trashed(each): each for each in await list_trashed(library)}
    for project, refs in by_project.items():
        if project in trash:
            async with open_trashed(library, trash[project]) as store:
                redacted = await _mask_in_store(store, list(refs))
        else:
            redacted = await _mask_in_store(await _open_store(library, project), list(refs))
        records += redacted.records
        links += redacted.links
        complete = complete and redacted.complete
    return MaskResult(records, links, complete)


async def _mask_in_store(store: RecordStore, refs: Sequence[Ref]) -> PurgeResult:
    taken = await _find_taken_records(store, refs) | await _find_taken_links(store, refs)
    return await store.redact(refs, partial(_mask_unless_taken, taken))


def mask_values(values: StoredValues, unlike: str | None = None) -> dict[str, Any]:
    """Return the values of a record or link without secrets.

    The unique key follows its name or text. With `unlike`, an id, it differs from the key of another record that now
    has the same words.
    """
    found = {name: _mask_value(values[name]) for name in TEXT_FIELDS if values.get(name)}
    new = {**values, **{name: value for name, (value, kinds) in found.items() if kinds}}
    if "variant" in values:
        new["variant"] = _compute_variant(values, new)
    if new == values:
        return new
    for name in ("name", "verb"):
        if unlike is not None and new.get(name):
            new[name] = f"{new[name]} {unlike}"
    key = values.get("name_key")
    for name, keyed in _KEY_FUNCTIONS:
        if key is not None and values.get(name) and key == keyed(values[name]):
            apart = unlike if unlike and name == "text" else ""
            new["name_key"] = keyed(new[name] + apart)
            break
    return new


def _mask_unless_taken(taken: frozenset[Ref], ref: Ref, values: StoredValues) -> StoredValues:
    return mask_values(values, ref.id if ref in taken else None)


def _compute_variant(values: StoredValues, new: StoredValues) -> str:
    """Compute the variant: of an entity from its name and type, of a memory from its scope or session."""
    variant = values.get("variant") or ""
    for identity in _IDENTITIES:
        if variant == identity.compute_variant(values.get("name") or "", values.get("type") or ""):
            return identity.compute_variant(new.get("name") or "", new.get("type") or "")
    return variant if _SESSION_VARIANT.match(variant) else mask_text(variant)[0]


async def _open_store(library: Library, name: str) -> RecordStore:
    if name == USER_PROJECT:
        return await library.open_user_store()
    project, store = await library.open(name)
    if project.is_off:
        raise ProjectOff(name)
    return store


class _FoundSecret(NamedTuple):
    """Secret in the values of one thing."""

    place: str
    secrets: list[str]
    excerpt: str


async def _find_in_store(store: RecordStore, project: str) -> AsyncIterator[SecretFinding]:
    """Search the log, which has all data that was ever stored, page by page with its things."""
    is_private = is_private_name(project)
    after = 0
    while changes := await store.read_changes(after=after, limit=PAGE_CHANGES):
        after = changes[-1].seq
        edits = [edit for change in changes for edit in change.edits]
        async for thing in _read_inserted(store, edits):
            kind = LINK_KIND if isinstance(thing, RecordLink) else thing.kind
            for found in _find_in_values(_get_values(thing), is_private=is_private):
                yield SecretFinding(project, kind, thing.id, *found, in_id=found.place in ID_FIELDS)
        old = [
            (edit.id, found)
            for edit in edits
            if edit.id
            for found in _find_in_values(edit.before or {}, is_private=is_private)
        ]
        owners = await store.get([record_id for record_id, _ in old], include_deleted=True)
        kinds = {record.id: record.kind for record in owners}
        for record_id, found in old:
            if record_id in kinds:
                told = found._replace(place=f"{OLD_VALUE} of {found.place}")
                in_id = found.place in ID_FIELDS
                yield SecretFinding(project, kinds[record_id], record_id, *told, in_id=in_id)


async def _read_inserted(store: RecordStore, edits: Sequence[Edit]) -> AsyncIterator[Record | RecordLink]:
    new = [Ref(e.subject, e.id) for e in edits if e.operation == "insert" and e.id]
    for at in range(0, len(new), PAGE_ITEMS):
        page = new[at : at + PAGE_ITEMS]
        records = [ref.id for ref in page if ref.subject == "record"]
        for record in await store.get(records, include_deleted=True):
            yield record
        links = [ref.id for ref in page if ref.subject == "link"]
        for link in await store.get_links(links, include_deleted=True):
            yield link


def _get_values(thing: Record | RecordLink) -> dict[str, Any]:
    """Return the values to search, and what depends on them."""
    wanted = (*TEXT_FIELDS, *ID_FIELDS, "name_key", "variant")
    return {name: getattr(thing, name) for name in wanted if hasattr(thing, name)}


def _find_in_values(values: StoredValues, *, is_private: bool) -> Iterator[_FoundSecret]:
    shown = _hide if is_private else _build_excerpt
    in_texts = False
    for name in (*TEXT_FIELDS, *ID_FIELDS):
        value, kinds = _mask_value(values.get(name))
        if kinds:
            in_texts = in_texts or name in TEXT_FIELDS
            yield _FoundSecret(name, kinds, shown(value))
    if not in_texts and values.get("variant") not in (None, _compute_variant(values, values)):
        variant, kinds = mask_text(values["variant"])
        yield _FoundSecret("variant", kinds, shown(variant))


def _hide(_value: Any) -> str:
    return "(an account's own)"


def _build_excerpt(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    at = max(0, text.find("[masked:") - EXCERPT_CHARACTERS // 2)
    return ("…" if at else "") + clip_text(text[at:], EXCERPT_CHARACTERS + len("[masked: ]"))


def _mask_value(value: Any) -> tuple[Any, list[str]]:
    kept, kinds = mask_json(value)
    if kinds and isinstance(kept, tuple):  # tags, each of which is unique
        kept = tuple(dict.fromkeys(cast(tuple[str, ...], kept)))
    return kept, kinds


async def _find_taken_records(store: RecordStore, refs: Sequence[Ref]) -> frozenset[Ref]:
    """Return the records that would equal another live record without their secrets."""
    taken: set[Ref] = set()
    given: set[tuple[object, ...]] = set()
    for record in await store.get([ref.id for ref in refs if ref.subject == "record"]):
        new = mask_values(_get_values(record))
        key, variant = new["name_key"], new["variant"]
        if key is None or (key, variant) == (record.name_key, record.variant):
            continue
        mark = (record.kind, record.parent, variant, key)
        others = await store.scan(RecordFilter(kinds=(record.kind,), name_keys=(key,)))
        is_there = any((o.parent, o.variant) == (record.parent, variant) and o.id != record.id for o in others)
        if is_there or mark in given:
            taken.add(record.ref)
        given.add(mark)
    return frozenset(taken)


async def _find_taken_links(store: RecordStore, refs: Sequence[Ref]) -> frozenset[Ref]:
    """Return the links that would equal another live link without their secrets."""
    taken: set[Ref] = set()
    given: set[tuple[str, str, str]] = set()
    for link in await store.get_links([ref.id for ref in refs if ref.subject == "link"]):
        edge = (link.source, mask_values(_get_values(link))["verb"], link.target)
        beside = await store.find_links([link.source], direction="out")
        others = {(x.source, x.verb, x.target) for x in beside if x.id != link.id}
        if edge in given | others:
            taken.add(link.ref)
        given.add(edge)
    return frozenset(taken)
