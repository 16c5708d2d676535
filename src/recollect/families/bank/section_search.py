"""The sections of a bank's files that fit a question, as they stand in the files now."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from recollect.core.ports import Indexing, RecordStore, SectionHit, SectionsFound
from recollect.core.records import Record, Weights, Where
from recollect.core.sessions import Call, Report
from recollect.core.times import Clock
from recollect.errors import RecollectError
from recollect.families.bank.bank_files import etag_of
from recollect.families.bank.banks import Bank, BankRecords, Banks
from recollect.families.bank.model import SECTION
from recollect.families.bank.section_index import SectionIndex, Synced, scope_of
from recollect.families.bank.section_records import indexed_text, line_ranges
from recollect.families.bank.section_writing import holds
from recollect.families.bank.uris import uri_of
from recollect.retrieval.search import Place, Profile, search

SECTIONS = Profile(
    kinds=(SECTION,),
    weights=Weights(name=2.0),
    reading="any",
    strategy="hybrid",
)
SEARCH_TIME = 2.0  # seconds
MOST_TEXT = 600  # characters of a section in an answer
MOST_NAMED = 5  # files in a notice
OUTLINES = 64  # files whose lines are remembered

_WORD = re.compile(r"\w{3,}")


@dataclass(frozen=True, slots=True)
class Located:
    """A section with the lines that it has in its file."""

    file: str
    heading: str | None
    line: int
    last: int
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Ranked:
    sections: list[Located]
    notices: list[str]


class BankSections:
    """Brings the index in step, asks the one search, and looks up what it found in the files."""

    def __init__(
        self,
        banks: Banks,
        records: BankRecords,
        index: SectionIndex,
        indexing: Indexing,
        clock: Clock,
        *,
        time_limit: float | None = SEARCH_TIME,
    ) -> None:
        self.texts = index.texts
        self._banks = banks
        self._records = records
        self._index = index
        self._indexing = indexing
        self._clock = clock
        self._time_limit = time_limit
        self._outlines: OrderedDict[tuple[str, str, str], list[tuple[int, int]]] = OrderedDict()

    async def sections(self, call: Call, query: str, limit: int) -> SectionsFound:
        bank = await self._banks.existing(call)
        ranked = await self.ranked(bank, query, limit, report=call.report)
        hits = [
            SectionHit(
                file=found.file,
                line=found.line,
                text=excerpt(found.text, query),
                score=round(found.score, 4),
                uri=uri_of(found.file),
                heading=found.heading,
            )
            for found in ranked.sections
        ]
        return SectionsFound(hits, ranked.notices)

    async def ranked(
        self,
        bank: Bank,
        query: str,
        limit: int,
        *,
        files: Sequence[str] = (),
        report: Report | None = None,
    ) -> Ranked:
        """The best first, of these files or of all; what is no more in its file is left out."""
        synced = await self._index.sync(bank, report)
        store = await self._records.to_read(bank)
        found = await search(
            [Place(store, Where(scopes=(scope_of(bank),), types=tuple(files)))],
            query,
            SECTIONS,
            limit=limit,
            embedder=self._indexing.embedder,
            now=self._clock(),
            time_limit=self._time_limit,
        )
        notices = [*(notice.message for notice in found.notices), *_notices(synced, files)]
        lines = await self._lines(bank, store, [hit.record for hit in found.hits])
        sections = [
            Located(
                file=str(hit.record.facets["file"]),
                heading=hit.record.facets.get("heading"),
                line=lines[hit.record.id][0],
                last=lines[hit.record.id][1],
                text=hit.record.text,
                score=hit.score,
            )
            for hit in found.hits
            if hit.record.id in lines
        ]
        return Ranked(sections, notices)

    async def _lines(
        self, bank: Bank, store: RecordStore, records: Sequence[Record]
    ) -> dict[str, tuple[int, int]]:
        """The first and the last line of each section that is in its file still."""
        by_file: dict[str, list[Record]] = {}
        for record in records:
            by_file.setdefault(record.parent or "", []).append(record)
        files = {file.id: file for file in await store.get(list(by_file))}
        found: dict[str, tuple[int, int]] = {}
        for file_id, sections in by_file.items():
            if file_id in files:
                found |= await self._lines_in(bank, files[file_id], sections)
        return found

    async def _lines_in(
        self, bank: Bank, file: Record, sections: Sequence[Record]
    ) -> dict[str, tuple[int, int]]:
        name = file.name or ""
        try:
            info = await bank.files.info(name)
            data = await self.texts.read(bank, info) if info else None
        except RecollectError:  # gone, or named in the notices as not readable
            data = None
        if data is None:
            return {}
        etag = etag_of(data)
        if not holds(file, etag):
            return await self._lines_by_text(name, data, sections)
        lines = await self._outline(bank, name, etag, data)
        places = {s.id: (s.position or 0) - int(file.facets["first"]) for s in sections}
        return {key: lines[at] for key, at in places.items() if 0 <= at < len(lines)}

    async def _lines_by_text(
        self, name: str, data: bytes, sections: Sequence[Record]
    ) -> dict[str, tuple[int, int]]:
        """For a file that the index is not in step with."""
        mask = self._banks.options.mask_secrets
        text = await asyncio.to_thread(indexed_text, name, data, mask=mask)
        known = {
            (part.heading or None, part.text): (part.line, part.last)
            for part in reversed(text.masked)
        }
        keys = {section.id: (section.facets.get("heading"), section.text) for section in sections}
        return {section: known[key] for section, key in keys.items() if key in known}

    async def _outline(
        self, bank: Bank, name: str, etag: str, data: bytes
    ) -> list[tuple[int, int]]:
        key = (bank.address, name, etag)
        if key not in self._outlines:
            self._outlines[key] = await asyncio.to_thread(line_ranges, name, data)
            if len(self._outlines) > OUTLINES:
                self._outlines.popitem(last=False)
        return self._outlines[key]


def excerpt(text: str, query: str, most: int = MOST_TEXT) -> str:
    """What fits of a section; a long one begins where it says most of what was asked."""
    if len(text) <= most:
        return text.strip()
    words = {word.lower() for word in _WORD.findall(query)}
    lines = text.splitlines(keepends=True)
    told = [len(words & {w.lower() for w in _WORD.findall(line)}) for line in lines]
    best = max(range(len(lines)), key=lambda at: (told[at], -at))
    while best and len("".join(lines[best - 1 :])) <= most:
        best -= 1
    rest = "".join(lines[best:])
    shown = rest[:most].rstrip() + ("…" if len(rest) > most else "")
    return ("… " if best else "") + shown.strip()


def _notices(synced: Synced, files: Sequence[str]) -> list[str]:
    """What the sections of these files, or of all, leave out, in sentences."""
    faults = {n: fault for n, fault in synced.faults.items() if not files or n in files}
    waiting, partly = (
        [name for name in names if not files or name in files]
        for names in (synced.waiting, synced.partly)
    )
    notices = [f"{name} could not be read: {fault}" for name, fault in faults.items()]
    if waiting:
        notices.append(
            f"Not indexed yet, so that no sections of them are ranked: {_some(waiting)}. "
            "The next search goes on with it."
        )
    if partly:
        notices.append(f"Sections are ranked of the beginning only of {_some(partly)}.")
    return notices


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
