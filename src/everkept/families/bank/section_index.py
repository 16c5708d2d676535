"""The index of a bank's files: their sections as records, kept in step with what is on the disk."""

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
from everkept.core.ports import Indexing, RecordStore
from everkept.core.records import Batch, Delete, Insert, Record, Step, Update, Where
from everkept.core.sessions import Report
from everkept.core.text import digest
from everkept.core.times import Clock
from everkept.errors import Conflict, EverkeptError, NotFound
from everkept.families.bank.banks import SSH, Bank, BankRecords, Banks, exists
from everkept.families.bank.model import INDEX_BANK, INDEXED_FILE, SECTION
from everkept.families.bank.section_records import (
    IndexedText,
    Stamp,
    Texts,
    indexed_text,
    is_settled,
    plan,
    searched_files,
    stamp_of,
)
from everkept.values import Value, field, replace

FORM = 3  # of what is kept: what another form left is made anew
ROWS = 150  # of one commit: others write in between

log = logging.getLogger(__name__)


class Reading(Value):
    """A file as it was read; without a stamp it has to be read again the next time."""

    name: str
    text: IndexedText
    stamp: Stamp | None


class _Plan(Value):
    """The steps for one file; each commit of them changes the file's own record too."""

    reading: Reading
    file: Record  # of version 0 where it is yet to be made
    facets: dict[str, Any]
    steps: list[Step]

    def batches(self) -> Iterator[list[Step]]:
        version = self.file.version
        for start in range(0, len(self.steps) or 1, ROWS):
            left = max(len(self.steps) - start - ROWS, 0)
            facets = {**self.facets, "left": left} if left else self.facets
            yield [self._about(version, facets), *self.steps[start : start + ROWS]]
            version += 1

    def _about(self, version: int, facets: dict[str, Any]) -> Step:
        if version:
            return Update(self.file.id, {"facets": facets}, version)
        return Insert(replace(self.file, facets=facets, version=1))


class IndexWriter:
    """Writes what was read, and removes what is gone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def write(
        self, store: RecordStore, bank: Bank, readings: Sequence[Reading]
    ) -> list[Reading]:
        """Return the readings at which another process was faster each time."""
        late = list(readings)

        async def attempt() -> None:
            plans = await self._plans(store, bank, late)
            late.clear()
            for group in _grouped(plans):
                try:
                    for batch in _batches(group):
                        await self._commit(store, batch)
                except Conflict:
                    late.extend(each.reading for each in group)
            if late:
                raise Conflict("Another process indexes the same files.")

        with suppress(Conflict):
            await retry(attempt)
        return late

    async def remove(self, store: RecordStore, scope: str, names: Sequence[str]) -> None:
        files = await file_records(store, scope, names)
        sections = await _sections_of(store, list(files.values()))
        steps: list[Step] = []
        for file in files.values():
            steps += [*(Delete(section.ref) for section in sections[file.id]), Delete(file.ref)]
        try:
            for start in range(0, len(steps), ROWS):
                await self._commit(store, steps[start : start + ROWS])
        except Conflict as conflict:  # the next look sees what is left
            log.debug("removed by another process too: %s", conflict)

    async def _plans(
        self, store: RecordStore, bank: Bank, readings: Sequence[Reading]
    ) -> list[_Plan]:
        """One look at the store for all of them; those that need nothing are left out."""
        scope = scope_of(bank)
        files = await file_records(store, scope, [reading.name for reading in readings])
        stale = [
            files[reading.name]
            for reading in readings
            if reading.name in files and not holds(files[reading.name], reading.text.etag)
        ]
        sections = await _sections_of(store, stale)
        at = self._clock()
        plans: list[_Plan] = []
        for reading in readings:
            file = files.get(reading.name) or _new_file(scope, reading.name, at)
            facets: dict[str, Any] = {
                "etag": reading.text.etag,
                "form": FORM,
                "bank": bank.address,
            }
            if reading.text.is_partial:
                facets["partial"] = True
            if reading.stamp is not None:
                facets["stamp"] = list(reading.stamp)
            if holds(file, reading.text.etag):
                facets["first"], steps = file.facets["first"], []
            else:
                facets["first"], steps = plan(
                    reading.name, scope, file.id, sections[file.id], reading.text.masked, at
                )
            if steps or facets != file.facets:
                plans.append(_Plan(reading, file, facets, steps))
        return plans

    async def _commit(self, store: RecordStore, steps: Sequence[Step]) -> None:
        await commit(store, Batch(tuple(steps), self._clock(), INDEX_BANK, derived=True))


def scope_of(bank: Bank) -> str:
    """Tells the banks apart that share a project."""
    return digest(bank.address)[:12]


def address_in(file: Record) -> str | None:
    """Of the bank that the file is in; None where another form did not keep it."""
    return file.facets.get("bank")


def holds(file: Record, etag: str) -> bool:
    """Whether all parts of the file, as it is with this tag, are in the index."""
    return file.facets.get("etag") == etag and _is_whole(file)


def stamp_in(file: Record) -> Stamp | None:
    """What the file had when it was indexed as it is, where that is sure."""
    stamp: list[int] | None = file.facets.get("stamp")
    return (stamp[0], stamp[1]) if stamp and _is_whole(file) else None


def is_partial(file: Record) -> bool:
    """Whether only the beginning of the file is in the index, because it is so large."""
    return "partial" in file.facets


def _is_whole(file: Record) -> bool:
    return file.facets.get("form") == FORM and "left" not in file.facets


async def file_records(store: RecordStore, scope: str, names: Sequence[str]) -> dict[str, Record]:
    """What is known of indexed files, by their names."""
    keys = tuple(_key(scope, name) for name in names)
    found = await store.scan(Where(kinds=(INDEXED_FILE,), name_keys=keys))
    return {record.name or "": record for record in found}


async def _sections_of(
    store: RecordStore, files: Sequence[Record]
) -> defaultdict[str, list[Record]]:
    sections: defaultdict[str, list[Record]] = defaultdict(list)
    parents = tuple(file.id for file in files)
    for record in await store.scan(Where(kinds=(SECTION,), parents=parents)) if files else []:
        sections[record.parent or ""].append(record)
    for some in sections.values():
        some.sort(key=lambda record: record.position or 0)
    return sections


def _grouped(plans: Sequence[_Plan]) -> Iterator[list[_Plan]]:
    """Small files together, as many as fit one commit; a large one alone."""
    group: list[_Plan] = []
    rows = 0
    for each in plans:
        size = 1 + len(each.steps)
        if group and rows + size > ROWS:
            yield group
            group, rows = [], 0
        group.append(each)
        rows += size
    if group:
        yield group


def _batches(group: Sequence[_Plan]) -> Iterator[list[Step]]:
    if len(group) == 1:
        yield from group[0].batches()
    else:
        yield [step for each in group for batch in each.batches() for step in batch]


def _new_file(scope: str, name: str, at: int) -> Record:
    return Record(
        id=str(uuid4()),
        kind=INDEXED_FILE,
        created_at=at,
        updated_at=at,
        name=name,
        name_key=_key(scope, name),
        scope=scope,
        version=0,
    )


def _key(scope: str, name: str) -> str:
    return f"{scope} {name}"


MAX_FILES_FORGOTTEN = 64  # files that are forgotten together


async def forget_moved(
    banks: Banks, writer: IndexWriter, store: RecordStore, own: str, limit: float | None
) -> None:
    """Removes the sections of banks whose folder is gone, as far as the seconds suffice.

    A bank in another place has another scope, and indexes its files there. `own` is the scope of
    the bank that is in use.
    """
    where = Where(kinds=(INDEXED_FILE,))
    if await store.how_many(where) == await store.how_many(Where(where.kinds, scopes=(own,))):
        return
    scopes: defaultdict[str, list[Record]] = defaultdict(list)
    for file in await store.scan(where):
        if file.scope != own:
            scopes[file.scope].append(file)
    started = time.monotonic()
    for scope, files in scopes.items():
        if not await _is_gone(banks, files):
            continue
        log.info("forgetting %d files of %s", len(files), address_in(files[0]))
        for start in range(0, len(files), MAX_FILES_FORGOTTEN):
            if limit and time.monotonic() - started > limit:
                return
            some = files[start : start + MAX_FILES_FORGOTTEN]
            await writer.remove(store, scope, [file.name or "" for file in some])


async def _is_gone(banks: Banks, files: Sequence[Record]) -> bool:
    """False for another machine, which may be off, and where it is not known."""
    address = next(filter(None, map(address_in, files)), None)
    if address is None or address.startswith(SSH):
        return False
    try:
        return not await exists(await banks.at(address))
    except EverkeptError:
        return False


TIME_LIMIT = 3.0  # seconds of one look; what is left over is for the next
MAX_FILES_WRITTEN = 64  # files that are read and written together
MOST_BYTES_AT_ONCE = 4 * 1024 * 1024


class _Held(NamedTuple):
    """What a store is known to hold of a file; no stamp where it has to be looked at again."""

    stamp: Stamp | None
    is_partial: bool


Known = dict[str, _Held]


class Synced(Value, frozen=False):
    """How far the index is in step: the names of files that are yet to come in, of those that
    only begin in it, and what was wrong with others."""

    waiting: list[str] = field(default_factory=list[str])
    partly: list[str] = field(default_factory=list[str])
    faults: dict[str, str] = field(default_factory=dict[str, str])


class SectionIndex:
    """Brings the index in step with the files, reading those that changed.

    A record for each file says what the file had when it was indexed. Each commit about the file
    changes that record too, so that of two processes one has to look again.
    """

    def __init__(
        self,
        records: BankRecords,
        indexing: Indexing,
        clock: Clock,
        banks: Banks,
        *,
        time_limit: float | None = TIME_LIMIT,
    ) -> None:
        self.texts = Texts(clock)
        self._records = records
        self._indexing = indexing
        self._clock = clock
        self._banks = banks
        self._time_limit = time_limit
        self._writer = IndexWriter(clock)
        self._known: WeakKeyDictionary[RecordStore, dict[str, Known]] = WeakKeyDictionary()
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
    ) -> Synced:
        """Takes in what changed; who is hurried gets as much as the time suffices for, and some
        of it in any case.

        `files` are those of the bank, where they were listed just now, or with `is_all` false the
        ones that matter: then nothing is known of others.
        """
        if self._banks.options.read_only:
            return Synced()
        async with self._locks[bank.address]:
            files = await searched_files(bank) if files is None else files
            store = await self._records.to_write(bank)
            known = await self._known_of(store, scope_of(bank))
            if is_all:
                await self._forget(bank, store, known, {info.path for info in files})
            changed = [
                info
                for info in files
                if (held := known.get(info.path)) is None or held.stamp != stamp_of(info)
            ]
            synced = Synced()
            if changed:
                limit = self._time_limit if hurried else None
                await self._take_in(bank, store, known, changed, synced, report, limit)
                self._indexing.wake(store)
            if partial := {name for name, held in known.items() if held.is_partial}:
                synced.partly = [info.path for info in files if info.path in partial]
            return synced

    async def _known_of(self, store: RecordStore, scope: str) -> Known:
        """Read from the store again where somebody else added a file to it or took one out."""
        banks, seen = self._known.setdefault(store, {}), self._seen.setdefault(store, {})
        known, revision = banks.get(scope), await store.revision()
        if known is not None and seen[scope] == revision:
            return known
        if not banks:
            await forget_moved(self._banks, self._writer, store, scope, self._time_limit)
            revision = await store.revision()
        where = Where(kinds=(INDEXED_FILE,), scopes=(scope,))
        if known is None or await store.how_many(where) != len(known):
            found = await store.scan(where)
            known = banks[scope] = {
                record.name or "": _Held(stamp_in(record), is_partial(record)) for record in found
            }
        seen[scope] = revision
        return known

    async def _forget(
        self, bank: Bank, store: RecordStore, known: Known, present: set[str]
    ) -> None:
        self.texts.forget_others(bank, present)
        gone = sorted(known.keys() - present)
        for start in range(0, len(gone), MAX_FILES_WRITTEN):
            some = gone[start : start + MAX_FILES_WRITTEN]
            await self._writer.remove(store, scope_of(bank), some)
            for name in some:
                del known[name]

    async def _take_in(
        self,
        bank: Bank,
        store: RecordStore,
        known: Known,
        changed: Sequence[FileInfo],
        synced: Synced,
        report: Report | None,
        limit: float | None,
    ) -> None:
        started = time.monotonic()
        done = 0
        for some in _portions(changed):
            if done and limit and time.monotonic() - started > limit:
                synced.waiting += [info.path for info in changed[done:]]
                return
            if report is not None:
                await report(done, len(changed), f"Indexing {some[0].path}")
            read = await asyncio.gather(*(self._read(bank, info, synced) for info in some))
            readings = [reading for reading in read if reading is not None]
            late = await self._writer.write(store, bank, readings)
            synced.waiting += [reading.name for reading in late]
            known.update(
                {r.name: _Held(r.stamp, r.text.is_partial) for r in readings if r not in late}
            )
            done += len(some)

    async def _read(self, bank: Bank, info: FileInfo, synced: Synced) -> Reading | None:
        try:
            data = await self.texts.read(bank, info)
        except NotFound:  # removed since it was listed
            return None
        except EverkeptError as error:
            synced.faults[info.path] = error.message
            return None
        is_final = is_settled(info, self._clock()) and len(data) == info.size
        mask = self._banks.options.mask_secrets
        text = await asyncio.to_thread(indexed_text, info.path, data, mask=mask)
        return Reading(info.path, text, stamp_of(info) if is_final else None)


def _portions(files: Sequence[FileInfo]) -> Iterator[list[FileInfo]]:
    """Some at a time; large files make a portion smaller."""
    portion: list[FileInfo] = []
    size = 0
    for info in files:
        if portion and (len(portion) == MAX_FILES_WRITTEN or size + info.size > MOST_BYTES_AT_ONCE):
            yield portion
            portion, size = [], 0
        portion.append(info)
        size += info.size
    if portion:
        yield portion
