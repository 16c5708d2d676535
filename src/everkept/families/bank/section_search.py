"""Search for matching sections of a bank's files, located in the current files."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from everkept.core.answers import SectionHit, SectionHits
from everkept.core.files import FileInfo
from everkept.core.ports import Embedder, Level, RecordStore, VectorIndexer
from everkept.core.records import Record, RecordFilter, Weights
from everkept.core.sessions import Session, ToolCall
from everkept.core.text import format_count
from everkept.core.times import Clock
from everkept.errors import BankNotFound, EverkeptError
from everkept.families.bank.bank_files import compute_etag, format_names, run_in_thread_if_large
from everkept.families.bank.banks import Bank, BankRecords, Banks, build_uri
from everkept.families.bank.model import SECTION_KIND
from everkept.families.bank.section_index import IndexSyncResult, SectionIndex, compute_scope, is_indexed
from everkept.families.bank.section_records import build_indexed_text, list_line_ranges, list_searched_files
from everkept.retrieval.excerpts import select_excerpt
from everkept.retrieval.profile import SearchPlace, SearchProfile
from everkept.retrieval.scores import calibrate_hits
from everkept.retrieval.search import search
from everkept.values import Value, replace

# A command has no background task, so without this wait it finds nothing by meaning.
COMMAND_WAIT_SECONDS = 3.0
WAIT_SECONDS = 0.3
MAX_AWAITED_SECTIONS = 32  # a conversation waits for at most this many, about one edit


class SectionEmbeddings:
    """Short wait for pending embeddings, so that text that was just written is also found by meaning."""

    def __init__(self, indexing: VectorIndexer) -> None:
        self._indexing = indexing
        # Revision at which no embedding was pending.
        self._complete: WeakKeyDictionary[RecordStore, int] = WeakKeyDictionary()

    async def wait_for_pending(self, store: RecordStore, session: Session) -> int:
        """Return how many embeddings are pending after the wait, 0 without an embedding model."""
        embedder = self._indexing.embedder
        if embedder is None or self._indexing.fault is not None:
            return 0
        revision = await store.get_revision()
        if self._complete.get(store) == revision:
            return 0
        if count := await _count_pending(store, embedder):
            self._indexing.wake(store)
            if count <= MAX_AWAITED_SECTIONS or not session.is_conversation:
                patience = WAIT_SECONDS if session.is_conversation else COMMAND_WAIT_SECONDS
                await self._indexing.wait_until_settled(patience)
                count = await _count_pending(store, embedder)
        if not count:
            self._complete[store] = revision
        return count


async def _count_pending(store: RecordStore, embedder: Embedder) -> int:
    _, waiting = await store.count_vectors(embedder.name, (SECTION_KIND,))
    return waiting


# Of 36 questions that a bank answers, 29 had a section above the least nearness for sections without a common word. Of
# 56 unrelated questions, 51 had none.
SECTION_PROFILE = SearchProfile(
    kinds=(SECTION_KIND,),
    weights=Weights(name=2.0),
    reading="any",
    strategy="hybrid",
    least_meaning=Level("unrelated", 0.98),
)
KEYWORD_PROFILE = replace(SECTION_PROFILE, strategy="keyword")  # for a query without any word
SEARCH_SECONDS = 2.0
MAX_FILES_NAMED = 5  # in a warning
MAX_CACHED_OUTLINES = 64  # files with cached line ranges

log = logging.getLogger(__name__)


class LocatedSection(Value):
    file: str
    heading: str | None
    line: int
    last: int
    text: str
    score: float
    probability: float  # that it answers the query

    def build_excerpt(self, query: str) -> tuple[int, str]:
        """Return the line on which the excerpt begins, and the excerpt."""
        shown = select_excerpt(self.text, query)
        return self.line + shown.skipped, shown.text


class RankedSections(Value):
    sections: list[LocatedSection]
    notices: list[str]


class BankSectionSearch:
    """Section search: updates the index, searches it, and locates the results in the files."""

    def __init__(
        self,
        banks: Banks,
        records: BankRecords,
        index: SectionIndex,
        indexing: VectorIndexer,
        clock: Clock,
        *,
        time_limit: float | None = SEARCH_SECONDS,
    ) -> None:
        self.texts = index.texts
        self._banks = banks
        self._records = records
        self._index = index
        self._indexing = indexing
        self._vectors = SectionEmbeddings(indexing)
        self._clock = clock
        self._time_limit = time_limit
        self._outlines: OrderedDict[tuple[str, str, str], list[tuple[int, int]]] = OrderedDict()

    async def find_sections(self, call: ToolCall, query: str, limit: int) -> SectionHits:
        bank = await self._banks.require_bank(call)
        ranked = await self.rank_sections(call, bank, query, limit)
        return SectionHits([_build_hit(found, query) for found in ranked.sections], ranked.notices)

    async def index_all(self, call: ToolCall) -> RecordStore | None:
        """Index all files of the active bank, however long it takes. Return its records, or None without a bank."""
        try:
            bank = await self._banks.require_bank(call)
        except BankNotFound:
            return None
        synced = await self._index.sync(bank, hurried=False)
        for notice in _build_notices(synced):
            log.warning("%s", notice)
        return await self._records.open_to_read(bank)

    async def rank_sections(
        self,
        call: ToolCall,
        bank: Bank,
        query: str,
        limit: int,
        *,
        files: Sequence[FileInfo] | None = None,
        is_all: bool = True,
    ) -> RankedSections:
        """Return the sections, best first. Sections that are no longer in their file are omitted.

        `files` are all files of the bank if they were just listed or, if `is_all` is false, the files to search.
        """
        files = await list_searched_files(bank) if files is None else files
        synced = await self._index.sync(bank, files, call.report, is_all=is_all)
        store = await self._records.open_to_read(bank)
        waiting = await self._vectors.wait_for_pending(store, call.session)
        types = () if is_all else tuple(info.path for info in files)
        has_words = any(sign.isalnum() for sign in query)
        found = await search(
            [SearchPlace(store, RecordFilter(scopes=(compute_scope(bank),), types=types))],
            query,
            SECTION_PROFILE if has_words else KEYWORD_PROFILE,
            limit=limit,
            embedder=self._indexing.embedder,
            now=self._clock(),
            time_limit=self._time_limit,
        )
        notices = [*(notice.message for notice in found.notices), *_build_notices(synced)]
        if waiting and has_words:
            pending = format_count(waiting, "section")
            notices.append(f"Search by meaning does not cover {pending} yet, because embeddings are pending.")
        infos = {info.path: info for info in files} if found.hits else {}
        lines = await self._find_lines(bank, store, infos, [hit.record for hit in found.hits])
        sections = [
            LocatedSection(
                file=str(hit.record.facets["file"]),
                heading=hit.record.facets.get("heading"),
                line=lines[hit.record.id][0],
                last=lines[hit.record.id][1],
                text=hit.record.text,
                score=hit.score,
                probability=likely.score,
            )
            for hit, likely in zip(found.hits, calibrate_hits(found.hits, found.fit), strict=True)
            if hit.record.id in lines
        ]
        return RankedSections(sections, notices)

    async def _find_lines(
        self, bank: Bank, store: RecordStore, infos: Mapping[str, FileInfo], records: Sequence[Record]
    ) -> dict[str, tuple[int, int]]:
        """Return the first and last line of each section that is still in its file."""
        by_file: dict[str, list[Record]] = {}
        for record in records:
            by_file.setdefault(record.parent or "", []).append(record)
        files = {file.id: file for file in await store.get(list(by_file))}
        found: dict[str, tuple[int, int]] = {}
        for file_id, sections in by_file.items():
            file = files.get(file_id)
            info = infos.get(file.name or "") if file else None
            if file and info:
                found |= await self._find_lines_in_file(bank, info, file, sections)
        return found

    async def _find_lines_in_file(
        self, bank: Bank, info: FileInfo, file: Record, sections: Sequence[Record]
    ) -> dict[str, tuple[int, int]]:
        name = info.path
        try:
            data = await self.texts.read(bank, info)
        except EverkeptError:  # deleted, or already in the warnings
            return {}
        etag = compute_etag(data)
        if not is_indexed(file, etag):
            return await self._find_lines_by_text(name, data, sections)
        lines = await self._get_line_ranges(bank, name, etag, data)
        places = {s.id: (s.position or 0) - int(file.facets["first"]) for s in sections}
        return {key: lines[at] for key, at in places.items() if 0 <= at < len(lines)}

    async def _find_lines_by_text(
        self, name: str, data: bytes, sections: Sequence[Record]
    ) -> dict[str, tuple[int, int]]:
        """Locate sections by their text, in a file that changed since it was indexed."""
        mask = self._banks.options.mask_secrets
        text = await asyncio.to_thread(build_indexed_text, name, data, mask=mask)
        known = {(part.heading or None, part.text): (part.line, part.last) for part in reversed(text.masked)}
        keys = {section.id: (section.facets.get("heading"), section.text) for section in sections}
        return {section: known[key] for section, key in keys.items() if key in known}

    async def _get_line_ranges(self, bank: Bank, name: str, etag: str, data: bytes) -> list[tuple[int, int]]:
        key = (bank.address, name, etag)
        if key not in self._outlines:
            self._outlines[key] = await run_in_thread_if_large(len(data), lambda: list_line_ranges(name, data))
            if len(self._outlines) > MAX_CACHED_OUTLINES:
                self._outlines.popitem(last=False)
        return self._outlines[key]


def _build_hit(found: LocatedSection, query: str) -> SectionHit:
    line, text = found.build_excerpt(query)
    return SectionHit(
        file=found.file,
        line=line,
        text=text,
        score=round(found.probability, 4),
        uri=build_uri(found.file),
        heading=found.heading,
    )


def _build_notices(synced: IndexSyncResult) -> list[str]:
    """Describe the files and sections that the search does not cover."""
    notices = [f"Cannot read {name}: {fault}" for name, fault in synced.faults.items()]
    if synced.waiting:
        waiting = format_names(synced.waiting, MAX_FILES_NAMED)
        notices.append(f"Results have no sections of {waiting}, which the next search will index.")
    if synced.partly:
        notices.append(f"Only the beginning is indexed of {format_names(synced.partly, MAX_FILES_NAMED)}.")
    return notices
