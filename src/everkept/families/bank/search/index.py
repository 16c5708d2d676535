"""The index of a bank's files: their parts as records, in step with what lies on the disk."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from everkept.core.files import FileInfo
from everkept.core.ports import Indexing, RecordStore
from everkept.core.records import Where
from everkept.core.sessions import Report
from everkept.core.times import Clock
from everkept.errors import EverkeptError, NotFound
from everkept.families.bank.banks import Bank, BankRecords, Banks
from everkept.families.bank.files.texts import Stamp, Texts, is_settled, searched_files, stamp_of
from everkept.families.bank.model import INDEXED_FILE
from everkept.families.bank.search.orphans import forget_moved
from everkept.families.bank.search.records import indexed_text
from everkept.families.bank.search.writing import (
    IndexWriter,
    Reading,
    is_partial,
    scope_of,
    stamp_in,
)
from everkept.values import Value, field

TIME_LIMIT = 3.0  # seconds of one look; what is left over is for the next
MOST_AT_ONCE = 64  # files that are read and written together
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
        for start in range(0, len(gone), MOST_AT_ONCE):
            some = gone[start : start + MOST_AT_ONCE]
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
        if portion and (len(portion) == MOST_AT_ONCE or size + info.size > MOST_BYTES_AT_ONCE):
            yield portion
            portion, size = [], 0
        portion.append(info)
        size += info.size
    if portion:
        yield portion
