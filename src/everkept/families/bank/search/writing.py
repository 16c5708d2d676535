"""Committing the sections of many files, little at a time and beside others who do the same."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from everkept.core.commits import commit, retry
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Delete, Insert, Record, Step, Update, Where
from everkept.core.text import digest
from everkept.core.times import Clock
from everkept.errors import Conflict
from everkept.families.bank.banks import Bank
from everkept.families.bank.files.texts import Stamp
from everkept.families.bank.model import INDEX_BANK, INDEXED_FILE, SECTION
from everkept.families.bank.search.records import IndexedText, plan
from everkept.values import Value, replace

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
