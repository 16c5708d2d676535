"""Index of a bank's files: their sections as records, updated when files change."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

from everkept.core.commits import commit, retry
from everkept.core.files import FileInfo
from everkept.core.ports import RecordStore, VectorIndexer
from everkept.core.records import Batch, Delete, Insert, Record, RecordFilter, Step, Update
from everkept.core.sessions import Report
from everkept.core.text import compute_digest
from everkept.core.times import Clock
from everkept.errors import Conflict, EverkeptError, NotFound
from everkept.families.bank.bank_files import group_by_size
from everkept.families.bank.banks import SSH_SCHEME, Bank, BankRecords, Banks, exists
from everkept.families.bank.model import INDEX_BANK, INDEXED_FILE_KIND, SECTION_KIND
from everkept.families.bank.section_records import (
    FileStamp,
    IndexedText,
    TextCache,
    build_indexed_text,
    get_stamp,
    is_settled,
    list_searched_files,
    plan_steps,
)
from everkept.values import Value, field, replace

INDEX_FORMAT = 3  # files indexed in another format are indexed again
ROWS_PER_COMMIT = 150  # other processes can write between two commits

log = logging.getLogger(__name__)


class FileReading(Value):
    """The content of a file that was read. Without a stamp it is read again next time."""

    name: str
    text: IndexedText
    stamp: FileStamp | None


class _FilePlan(Value):
    """The steps for one file. Each commit also changes the file's own record."""

    reading: FileReading
    file: Record  # version 0 if it does not exist yet
    facets: dict[str, Any]
    steps: list[Step]

    def split_batches(self) -> Iterator[list[Step]]:
        version = self.file.version
        for start in range(0, len(self.steps) or 1, ROWS_PER_COMMIT):
            left = max(len(self.steps) - start - ROWS_PER_COMMIT, 0)
            facets = {**self.facets, "left": left} if left else self.facets
            yield [self._build_file_step(version, facets), *self.steps[start : start + ROWS_PER_COMMIT]]
            version += 1

    def _build_file_step(self, version: int, facets: dict[str, Any]) -> Step:
        if version:
            return Update(self.file.id, {"facets": facets}, version)
        return Insert(replace(self.file, facets=facets, version=1))


class IndexWriter:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def write(self, store: RecordStore, bank: Bank, readings: Sequence[FileReading]) -> list[FileReading]:
        """Index the files. Return the readings for which another process was faster each time."""
        late = list(readings)

        async def attempt() -> None:
            plans = await self._plan_files(store, bank, late)
            late.clear()
            for group in group_by_size(plans, lambda plan: 1 + len(plan.steps), ROWS_PER_COMMIT):
                try:
                    for batch in _split_batches(group):
                        await self._commit(store, batch)
                except Conflict:
                    late.extend(each.reading for each in group)
            if late:
                raise Conflict("Another process indexes the same files.", hint="Try again.")

        with suppress(Conflict):
            await retry(attempt)
        return late

    async def remove(self, store: RecordStore, scope: str, names: Sequence[str]) -> None:
        files = await read_file_records(store, scope, names)
        sections = await _read_sections(store, list(files.values()))
        steps: list[Step] = []
        for file in files.values():
            steps += [*(Delete(section.ref) for section in sections[file.id]), Delete(file.ref)]
        try:
            for start in range(0, len(steps), ROWS_PER_COMMIT):
                await self._commit(store, steps[start : start + ROWS_PER_COMMIT])
        except Conflict as conflict:  # the next sync finds the rest
            log.debug("sections also removed by another process: %s", conflict)

    async def _plan_files(self, store: RecordStore, bank: Bank, readings: Sequence[FileReading]) -> list[_FilePlan]:
        """Return the plans of all files that need a change, with one query for all."""
        scope = compute_scope(bank)
        files = await read_file_records(store, scope, [reading.name for reading in readings])
        stale = [
            files[reading.name]
            for reading in readings
            if reading.name in files and not is_indexed(files[reading.name], reading.text.etag)
        ]
        sections = await _read_sections(store, stale)
        at = self._clock()
        plans: list[_FilePlan] = []
        for reading in readings:
            file = files.get(reading.name) or _build_file_record(scope, reading.name, at)
            facets: dict[str, Any] = {"etag": reading.text.etag, "form": INDEX_FORMAT, "bank": bank.address}
            if reading.text.is_partial:
                facets["partial"] = True
            if reading.stamp is not None:
                facets["stamp"] = list(reading.stamp)
            if is_indexed(file, reading.text.etag):
                facets["first"], steps = file.facets["first"], []
            else:
                facets["first"], steps = plan_steps(
                    reading.name, scope, file.id, sections[file.id], reading.text.masked, at
                )
            if steps or facets != file.facets:
                plans.append(_FilePlan(reading, file, facets, steps))
        return plans

    async def _commit(self, store: RecordStore, steps: Sequence[Step]) -> None:
        await commit(store, Batch(tuple(steps), self._clock(), INDEX_BANK, derived=True))


def compute_scope(bank: Bank) -> str:
    """Return a key that distinguishes the banks of one project."""
    return compute_digest(bank.address)[:12]


def find_address(file: Record) -> str | None:
    """Return the address of the file's bank, or None if an older format did not store it."""
    return file.facets.get("bank")


def is_indexed(file: Record, etag: str) -> bool:
    """Return whether all parts of the file with this ETag are in the index."""
    return file.facets.get("etag") == etag and _is_whole(file)


def find_stamp(file: Record) -> FileStamp | None:
    """Return the file's stamp when it was completely indexed, or None if it is not certain."""
    stamp: list[int] | None = file.facets.get("stamp")
    return (stamp[0], stamp[1]) if stamp and _is_whole(file) else None


def is_partial(file: Record) -> bool:
    """Return whether only the beginning of a large file is in the index."""
    return "partial" in file.facets


def _is_whole(file: Record) -> bool:
    return file.facets.get("form") == INDEX_FORMAT and "left" not in file.facets


async def read_file_records(store: RecordStore, scope: str, names: Sequence[str]) -> dict[str, Record]:
    keys = tuple(_build_key(scope, name) for name in names)
    found = await store.scan(RecordFilter(kinds=(INDEXED_FILE_KIND,), name_keys=keys))
    return {record.name or "": record for record in found}


async def _read_sections(store: RecordStore, files: Sequence[Record]) -> defaultdict[str, list[Record]]:
    sections: defaultdict[str, list[Record]] = defaultdict(list)
    parents = tuple(file.id for file in files)
    for record in await store.scan(RecordFilter(kinds=(SECTION_KIND,), parents=parents)) if files else []:
        sections[record.parent or ""].append(record)
    for some in sections.values():
        some.sort(key=lambda record: record.position or 0)
    return sections


def _split_batches(group: Sequence[_FilePlan]) -> Iterator[list[Step]]:
    if len(group) == 1:
        yield from group[0].split_batches()
    else:
        yield [step for each in group for batch in each.split_batches() for step in batch]


def _build_file_record(scope: str, name: str, at: int) -> Record:
    return Record(
        id=str(uuid4()),
        kind=INDEXED_FILE_KIND,
        created_at=at,
        updated_at=at,
        name=name,
        name_key=_build_key(scope, name),
        scope=scope,
        version=0,
    )


def _build_key(scope: str, name: str) -> str:
    return f"{scope} {name}"


MAX_FILES_REMOVED = 64  # in one step


async def remove_moved_banks(
    banks: Banks, writer: IndexWriter, store: RecordStore, own: str, limit: float | None
) -> None:
    """Remove the sections of banks whose folder no longer exists, within the time limit in seconds.

    A bank in another place has another scope and is indexed there. `own` is the scope of the current bank.
    """
    where = RecordFilter(kinds=(INDEXED_FILE_KIND,))
    if await store.count_records(where) == await store.count_records(RecordFilter(where.kinds, scopes=(own,))):
        return
    scopes: defaultdict[str, list[Record]] = defaultdict(list)
    for file in await store.scan(where):
        if file.scope != own:
            scopes[file.scope].append(file)
    started = time.monotonic()
    for scope, files in scopes.items():
        if not await _is_gone(banks, files):
            continue
        log.info("removing %d files of %s from the index", len(files), find_address(files[0]))
        for start in range(0, len(files), MAX_FILES_REMOVED):
            if limit and time.monotonic() - started > limit:
                return
            some = files[start : start + MAX_FILES_REMOVED]
            await writer.remove(store, scope, [file.name or "" for file in some])


async def _is_gone(banks: Banks, files: Sequence[Record]) -> bool:
    """Return whether the folder is gone. False if it is unknown or on another machine, which may be off."""
    address = next(filter(None, map(find_address, files)), None)
    if address is None or address.startswith(SSH_SCHEME):
        return False
    try:
        return not await exists(await banks.open_at(address))
    except EverkeptError:
        return False


SYNC_SECONDS = 3.0  # limit of one sync; the next one continues
MAX_FILES_WRITTEN = 64  # read and written in one step
MAX_BATCH_BYTES = 4 * 1024 * 1024


class _IndexedFile(NamedTuple):
    """Cached state of an indexed file. Without a stamp the file is checked again."""

    stamp: FileStamp | None
    is_partial: bool


KnownFiles = dict[str, _IndexedFile]


class IndexSyncResult(Value, frozen=False):
    """Result of a sync: names of files that are not indexed yet or only partly, and errors by file."""

    waiting: list[str] = field(default_factory=list[str])
    partly: list[str] = field(default_factory=list[str])
    faults: dict[str, str] = field(default_factory=dict[str, str])


class SectionIndex:
    """Index of sections, updated by reading changed files.

    The record of each file has the stamp with which it was indexed. Each commit about the file changes that record, so
    that of two processes one has to check again.
    """

    def __init__(
        self,
        records: BankRecords,
        indexing: VectorIndexer,
        clock: Clock,
        banks: Banks,
        *,
        time_limit: float | None = SYNC_SECONDS,
    ) -> None:
        self.texts = TextCache(clock)
        self._records = records
        self._indexing = indexing
        self._clock = clock
        self._banks = banks
        self._time_limit = time_limit
        self._writer = IndexWriter(clock)
        self._known: WeakKeyDictionary[RecordStore, dict[str, KnownFiles]] = WeakKeyDictionary()
        self._seen: WeakKeyDictionary[RecordStore, dict[str, int]] = WeakKeyDictionary()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def sync(
        self,
        bank: Bank,
        files: Sequence[FileInfo] | None = None,
        report: Report | None = None,
        *,
        is_all: bool = True,
        hurried: bool = True,
    ) -> IndexSyncResult:
        """Index changed files. If `hurried`, stop after the time limit, but index at least some files.

        `files` are all files of the bank if they were just listed or, if `is_all` is false, the files to sync.
        """
        if self._banks.options.read_only:
            return IndexSyncResult()
        async with self._locks[bank.address]:
            files = await list_searched_files(bank) if files is None else files
            store = await self._records.open_to_write(bank)
            known = await self._read_known(store, compute_scope(bank))
            if is_all:
                await self._remove_missing(bank, store, known, {info.path for info in files})
            changed = [
                info for info in files if (held := known.get(info.path)) is None or held.stamp != get_stamp(info)
            ]
            synced = IndexSyncResult()
            if changed:
                limit = self._time_limit if hurried else None
                await self._index_changed(bank, store, known, changed, synced, report, limit)
                self._indexing.wake(store)
            if partial := {name for name, held in known.items() if held.is_partial}:
                synced.partly = [info.path for info in files if info.path in partial]
            return synced

    async def _read_known(self, store: RecordStore, scope: str) -> KnownFiles:
        """Return the indexed files, read again if another process added or removed one."""
        banks, seen = self._known.setdefault(store, {}), self._seen.setdefault(store, {})
        known, revision = banks.get(scope), await store.get_revision()
        if known is not None and seen[scope] == revision:
            return known
        if not banks:
            await remove_moved_banks(self._banks, self._writer, store, scope, self._time_limit)
            revision = await store.get_revision()
        where = RecordFilter(kinds=(INDEXED_FILE_KIND,), scopes=(scope,))
        if known is None or await store.count_records(where) != len(known):
            found = await store.scan(where)
            known = banks[scope] = {
                record.name or "": _IndexedFile(find_stamp(record), is_partial(record)) for record in found
            }
        seen[scope] = revision
        return known

    async def _remove_missing(self, bank: Bank, store: RecordStore, known: KnownFiles, present: set[str]) -> None:
        self.texts.drop_others(bank, present)
        gone = sorted(known.keys() - present)
        for start in range(0, len(gone), MAX_FILES_WRITTEN):
            some = gone[start : start + MAX_FILES_WRITTEN]
            await self._writer.remove(store, compute_scope(bank), some)
            for name in some:
                del known[name]

    async def _index_changed(
        self,
        bank: Bank,
        store: RecordStore,
        known: KnownFiles,
        changed: Sequence[FileInfo],
        synced: IndexSyncResult,
        report: Report | None,
        limit: float | None,
    ) -> None:
        started = time.monotonic()
        done = 0
        for some in group_by_size(changed, lambda info: info.size, MAX_BATCH_BYTES, MAX_FILES_WRITTEN):
            if done and limit and time.monotonic() - started > limit:
                synced.waiting += [info.path for info in changed[done:]]
                return
            if report is not None:
                await report(done, len(changed), f"Indexing {some[0].path}")
            read = await asyncio.gather(*(self._read_file(bank, info, synced) for info in some))
            readings = [reading for reading in read if reading is not None]
            late = await self._writer.write(store, bank, readings)
            synced.waiting += [reading.name for reading in late]
            known.update({r.name: _IndexedFile(r.stamp, r.text.is_partial) for r in readings if r not in late})
            done += len(some)

    async def _read_file(self, bank: Bank, info: FileInfo, synced: IndexSyncResult) -> FileReading | None:
        try:
            data = await self.texts.read(bank, info)
        except NotFound:  # deleted since it was listed
            return None
        except EverkeptError as error:
            synced.faults[info.path] = error.message
            return None
        is_final = is_settled(info, self._clock()) and len(data) == info.size
        mask = self._banks.options.mask_secrets
        text = await asyncio.to_thread(build_indexed_text, info.path, data, mask=mask)
        return FileReading(info.path, text, get_stamp(info) if is_final else None)
