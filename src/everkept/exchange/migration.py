"""Copy of all data from one database to another, compared page by page."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from everkept.app.engines import MIGRATION_COPIED_NOTE, MIGRATION_ORIGIN_NOTE
from everkept.core.answers import CatalogData, StorePage
from everkept.core.ports import Library, RecordStore, RecordVector
from everkept.core.projects import USER_PROJECT, Project
from everkept.core.records import Change, Record, RecordFilter, RecordLink, Ref
from everkept.core.times import format_iso
from everkept.errors import Conflict
from everkept.values import Value, as_dict, field, replace

PAGE_ROWS = 200  # records, links or log entries per write
MAX_PASSES = 5  # over a store that other processes write to
ALL_RECORDS = RecordFilter(deleted=None)

CopyProgress = Callable[[int], None]  # receives the number of further items


class StoreComparison(Value, frozen=False):
    """Counts and differences of two stores."""

    records: int = 0
    links: int = 0
    changes: int = 0
    vectors: int = 0
    digest: str = ""
    differing: list[Record] = field(default_factory=list[Record])
    differing_links: list[RecordLink] = field(default_factory=list[RecordLink])
    gone: list[Ref] = field(default_factory=list[Ref])
    log_from: int | None = None
    foreign: Change | None = None  # a change that another program made in the copy
    is_whole: bool = True  # nothing was deleted during the comparison

    @property
    def is_equal(self) -> bool:
        differs = self.differing or self.differing_links or self.gone or self.log_from
        return self.is_whole and not differs


async def copy_store(source: RecordStore, target: RecordStore, model: str, step: CopyProgress) -> StoreComparison:
    """Copy a store, and continue an earlier attempt.

    Raise Conflict if the source changes faster than it can be copied, or if another program has written to the target,
    whose data is kept.
    """
    refuse_foreign_change(await find_foreign_change(source, target))
    await _copy_missing(source, target, model, step)
    for _ in range(MAX_PASSES):
        compared = await compare_stores(source, target, model)
        if compared.is_equal:
            return compared
        refuse_foreign_change(compared.foreign)
        await _fix_differences(source, target, model, compared)
    raise Conflict(
        "The source keeps changing, so the copy never becomes equal.",
        hint="Stop the programs that write there, then run the same command again.",
    )


async def find_foreign_change(source: RecordStore, target: RecordStore) -> Change | None:
    """Return the first change that the target has and the source never had."""
    async for mine, theirs in _pair_changes(source, target):
        if theirs is None:
            break
        if not _is_copied(mine, theirs):
            return theirs
    return None


def refuse_foreign_change(foreign: Change | None) -> None:
    if foreign is not None:
        made = f"{foreign.tool} at {format_iso(foreign.at)}"
        raise Conflict(
            f"Another program has written to the unfinished copy ({made}). Its data is not overwritten.",
            hint="Copy to another, empty database, and stop the programs that use this one.",
            change=foreign.seq,
        )


async def compare_stores(source: RecordStore, target: RecordStore, model: str) -> StoreComparison:
    """Compare all records, links and log entries, a page at a time by age.

    The logs come last, so they contain whatever another program has written to the copy by then.
    """
    found = StoreComparison()
    digest = hashlib.sha256()
    async for mine, theirs in _pair_record_pages(source, target):
        for record in mine:
            digest.update(_to_bytes(record))
        found.records += len(mine)
        differing = await _compare_pages(source, target, found, mine, theirs)
        differing |= await _compare_vectors_and_accesses(source, target, model, found, mine)
        found.differing += [record for record in mine if record.id in differing]
    found.is_whole = found.records == await source.count_records(ALL_RECORDS)
    links = {link.id: link for link in await target.scan_links(deleted=None)}
    for link in await source.scan_links(deleted=None):
        found.links += 1
        digest.update(_to_bytes(link))
        if links.pop(link.id, None) != link:
            found.differing_links.append(link)
    found.gone += [Ref("link", link_id) for link_id in links]
    await _compare_logs(source, target, found, digest.update)
    found.digest = digest.hexdigest()
    return found


async def _compare_pages(
    source: RecordStore, target: RecordStore, found: StoreComparison, mine: Sequence[Record], theirs: Sequence[Record]
) -> set[str]:
    """Return the ids of records that differ. If one side has extra records, equal records are on different pages."""
    if mine == theirs:
        return set()
    here, there = ({record.id: record for record in page} for page in (mine, theirs))
    apart = await target.get([each for each in here if each not in there], include_deleted=True)
    there |= {record.id: record for record in apart}
    unknown = [record.id for record in theirs if record.id not in here]
    known = {record.id for record in await source.get(unknown, include_deleted=True)}
    found.gone += [Ref("record", each) for each in unknown if each not in known]
    return {record.id for record in mine if there.get(record.id) != record}


async def _compare_vectors_and_accesses(
    source: RecordStore, target: RecordStore, model: str, found: StoreComparison, page: Sequence[Record]
) -> set[str]:
    """Return the ids whose vector or recall count differs."""
    ids = [record.id for record in page]
    vectors, copied = await source.get_vectors(model, ids), await target.get_vectors(model, ids)
    accesses, noted = await source.get_accesses(ids), await target.get_accesses(ids)
    found.vectors += len(vectors)
    differing = {each for each, access in accesses.items() if noted.get(each) != access}
    return differing | {
        each for each, vector in vectors.items() if each not in copied or copied[each].tobytes() != vector.tobytes()
    }


async def _compare_logs(
    source: RecordStore, target: RecordStore, found: StoreComparison, add: Callable[[bytes], None]
) -> None:
    async for mine, theirs in _pair_changes(source, target):
        if mine is not None:
            found.changes += 1
            add(_to_bytes(mine))
        if mine != theirs and found.log_from is None:
            found.log_from = next(each.seq for each in (mine, theirs) if each)
        if theirs is not None and found.foreign is None and not _is_copied(mine, theirs):
            found.foreign = theirs


def _is_copied(original: Change | None, change: Change) -> bool:
    """Return whether it was copied. Only the original lacks what was purged or redacted since then."""
    if original is None or _get_identity(original) != _get_identity(change):
        return False
    edited = {(edit.subject, edit.id) for edit in change.edits}
    return all((edit.subject, edit.id) in edited for edit in original.edits)


def _get_identity(change: Change) -> tuple[int, int, str, str, int | None]:
    return change.seq, change.at, change.tool, change.client, change.undoes


async def _copy_missing(source: RecordStore, target: RecordStore, model: str, step: CopyProgress) -> None:
    newest = await target.scan(ALL_RECORDS, order="newest", limit=1)
    known = await source.get([record.id for record in newest], include_deleted=True)
    if known:
        step(await target.count_records(ALL_RECORDS))
    async for page in source.scan_pages(ALL_RECORDS, PAGE_ROWS, after=known[0].id if known else None):
        await target.replicate(await _read_store_page(source, page, model))
        step(len(page))
    links = await source.scan_links(deleted=None)
    there = {link.id for link in await target.scan_links(deleted=None)}
    for page in _split_pages([link for link in links if link.id not in there]):
        await target.replicate(StorePage(links=page))
    last = await target.get_revision()
    while changes := await source.read_changes(after=last, limit=PAGE_ROWS):
        await target.replicate(StorePage(changes=changes))
        last = changes[-1].seq


async def _fix_differences(source: RecordStore, target: RecordStore, model: str, compared: StoreComparison) -> None:
    if compared.gone:
        await target.replicate(StorePage(gone=compared.gone))
    # All together, because the different ones may have exchanged names.
    stock = await _read_store_page(source, compared.differing, model)
    await target.replicate(
        StorePage(records=stock.records, links=compared.differing_links, accesses=stock.accesses, vectors=stock.vectors)
    )
    if compared.log_from is not None:
        await target.replicate(StorePage(log_from=compared.log_from))
        last = compared.log_from - 1
        while changes := await source.read_changes(after=last, limit=PAGE_ROWS):
            await target.replicate(StorePage(changes=changes))
            last = changes[-1].seq


async def _read_store_page(source: RecordStore, records: Sequence[Record], model: str) -> StorePage:
    if not records:
        return StorePage()
    ids = [record.id for record in records]
    vectors = await source.get_vectors(model, ids)
    embedded = [
        RecordVector(record.id, record.version, vectors[record.id]) for record in records if record.id in vectors
    ]
    return StorePage(
        records=records, accesses=await source.get_accesses(ids), vectors={model: embedded} if embedded else {}
    )


async def _pair_record_pages(
    source: RecordStore, target: RecordStore
) -> AsyncIterator[tuple[list[Record], list[Record]]]:
    sides = source.scan_pages(ALL_RECORDS, PAGE_ROWS), target.scan_pages(ALL_RECORDS, PAGE_ROWS)
    while any(pages := [await anext(side, list[Record]()) for side in sides]):
        yield pages[0], pages[1]


async def _pair_changes(source: RecordStore, target: RecordStore) -> AsyncIterator[tuple[Change | None, Change | None]]:
    sides = _read_changes(source), _read_changes(target)
    while any(pair := [await anext(side, None) for side in sides]):
        yield pair[0], pair[1]


async def _read_changes(store: RecordStore) -> AsyncIterator[Change]:
    last = 0
    while page := await store.read_changes(after=last, limit=PAGE_ROWS):
        for change in page:
            yield change
        last = page[-1].seq


def _split_pages(links: Sequence[RecordLink]) -> list[Sequence[RecordLink]]:
    return [links[start : start + PAGE_ROWS] for start in range(0, len(links), PAGE_ROWS)]


def _to_bytes(thing: Any) -> bytes:
    return json.dumps(as_dict(thing), sort_keys=True, ensure_ascii=False).encode() + b"\n"


HISTORY_STORE = "@history"
MAX_SEARCHES = 1_000_000

Progress = Callable[[int, int], None]


class MigratedStore(Value):
    """Store that is equal in both places."""

    store: str
    records: int
    links: int
    log_entries: int
    vectors: int
    sha256: str


class MigrationResult(Value):
    source: str
    target: str
    projects: int
    stores: Sequence[MigratedStore]


class MigrationEnd(Value):
    """One side of a migration: a library, and its name for people."""

    library: Library
    name: str


async def migrate_library(
    source: MigrationEnd, target: MigrationEnd, model: str, progress: Progress
) -> MigrationResult:
    """Migrate a library. Running it again continues an interrupted one. Raise Conflict if the target contains other
    data.
    """
    catalog_data = await source.library.read_catalog_data()
    if origin := catalog_data.notes.get(MIGRATION_ORIGIN_NOTE):
        raise _build_unfinished_error(source, origin)
    await _begin(source, target)
    note = {MIGRATION_ORIGIN_NOTE: source.name, MIGRATION_COPIED_NOTE: json.dumps(sorted(_collect_ids(catalog_data)))}
    # Active for now, because stores of archived projects cannot be written.
    active = [replace(project, status="active") for project in catalog_data.projects]
    await target.library.replace_catalog_data(
        replace(catalog_data, projects=active, notes={**catalog_data.notes, **note})
    )
    pairs = await _pair_stores(source.library, target.library, catalog_data.projects, active)
    total = sum([await store.count_records(ALL_RECORDS) for _, store, _ in pairs])
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    copied: list[MigratedStore] = []
    for name, original, replica in pairs:
        found = await copy_store(original, replica, model, step)
        counts = found.records, found.links, found.changes, found.vectors
        copied.append(MigratedStore(name, *counts, found.digest))
    await _copy_searches_and_usage(source.library, target.library)
    await _finish(source.library, target.library, catalog_data)
    return MigrationResult(source.name, target.name, len(catalog_data.projects), copied)


async def _begin(source: MigrationEnd, target: MigrationEnd) -> None:
    begun = await target.library.get_note(MIGRATION_ORIGIN_NOTE)
    if begun == source.name:
        await _require_untouched(source, target)
        return
    if begun is not None:
        raise _build_unfinished_error(target, begun)
    held = await target.library.read_catalog_data()
    stores = [await target.library.open_user_store(), await target.library.open_history_store()]
    if held.projects or held.tokens or any([await store.count_records(ALL_RECORDS) for store in stores]):
        raise Conflict(
            f"{target.name} is not empty, and its data is not overwritten.",
            hint="Use an empty database. To merge two, run `everkept export` and `everkept import`.",
        )
    await target.library.set_note(MIGRATION_ORIGIN_NOTE, source.name)


async def _require_untouched(source: MigrationEnd, target: MigrationEnd) -> None:
    """Check that no other program has written to an unfinished copy, whose data would be lost."""
    there, here = await target.library.read_catalog_data(), await source.library.read_catalog_data()
    brought: list[str] = json.loads(there.notes.get(MIGRATION_COPIED_NOTE, "[]"))
    if foreign := _collect_ids(there) - _collect_ids(here) - set(brought):
        named = [project.name for project in there.projects if project.id in foreign]
        what = f"projects ({', '.join(named)})" if named else "tokens"
        raise Conflict(
            f"Another program created {what} in the unfinished copy at {target.name}.",
            hint="Copy to another, empty database, and stop the programs that use this one.",
        )
    ids = {project.id for project in there.projects}
    both = [project for project in here.projects if project.id in ids]
    copies = [replace(project, status="active") for project in both]
    for _, original, copied in await _pair_stores(source.library, target.library, both, copies):
        refuse_foreign_change(await find_foreign_change(original, copied))


def _collect_ids(catalog_data: CatalogData) -> set[str]:
    tokens: Iterable[str] = (token.id for token, _ in catalog_data.tokens)
    return {*(project.id for project in catalog_data.projects), *tokens}


def _build_unfinished_error(end: MigrationEnd, origin: str) -> Conflict:
    return Conflict(
        f"{end.name} holds an unfinished copy of {origin}.", hint="Finish that copy first, or use another database."
    )


async def _finish(source: Library, target: Library, catalog_data: CatalogData) -> None:
    """Finish the migration. Raise Conflict if projects changed in the meantime."""
    if await source.read_catalog_data() != catalog_data:
        raise Conflict(
            "Projects, tokens or settings changed during the copy.",
            hint="To copy the rest, run the same command again.",
        )
    await target.replace_catalog_data(catalog_data)  # without the note, and with the projects archived as before


async def _pair_stores(
    source: Library, target: Library, projects: Sequence[Project], copies: Sequence[Project]
) -> list[tuple[str, RecordStore, RecordStore]]:
    pairs = [
        (USER_PROJECT, await source.open_user_store(), await target.open_user_store()),
        (HISTORY_STORE, await source.open_history_store(), await target.open_history_store()),
    ]
    for project, copied in zip(projects, copies, strict=True):
        pairs.append((project.name, await source.get_store(project), await target.get_store(copied)))
    return pairs


async def _copy_searches_and_usage(source: Library, target: Library) -> None:
    """Copy the searches and the usage of tools."""
    if not await target.list_searches(limit=1):
        searches = await source.list_searches(limit=MAX_SEARCHES)
        await target.add_searches(searches[::-1])
    if not await target.list_usage():
        await target.add_usage(await source.list_usage())
