"""Search in a bank: lines that contain the exact text, then sections by meaning."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

from everkept.core.files import FileInfo
from everkept.core.sessions import ToolCall
from everkept.core.text import format_count
from everkept.core.times import Clock, format_iso
from everkept.errors import EverkeptError, InvalidInput
from everkept.families.bank.bank_files import as_utf8, run_in_thread_if_large
from everkept.families.bank.banks import Bank, Banks
from everkept.families.bank.model import StoreId
from everkept.families.bank.section_records import decode_text, find_named_files, list_searched_files
from everkept.families.bank.section_search import BankSectionSearch, LocatedSection, RankedSections
from everkept.tools.schema import Field
from everkept.tools.tool import ToolFamily, tool
from everkept.values import Value, field

BLOCK_BYTES = 1024 * 1024  # decoded in one step
MAX_CONTENT_CHARACTERS = 500  # of the matching line
MAX_CONTEXT_CHARACTERS = 300  # of the line before or after it


class FoundLine(Value):
    """The line on which the text begins. `context` adds the lines before and after it."""

    line: int
    content: str
    context: str


class Needle:
    """A text to find, on one line or across several."""

    def __init__(self, text: str, *, case_sensitive: bool) -> None:
        self._case_sensitive = case_sensitive
        self.text = self.fold(_normalize_line_ends(text))
        self._has_lines = "\n" in self.text
        self._bytes = max(self.text.split("\n"), key=len).encode("utf-8", "replace")

    def fold(self, text: str) -> str:
        # The second form of the small sigma, used at the end of words, is the same letter.
        return text if self._case_sensitive else text.lower().replace("ς", "σ")

    def can_be_in(self, data: bytes) -> bool:
        """Return False if the bytes cannot contain the text, without decoding them."""
        if not data.isascii():
            return True
        return self._bytes in (data if self._case_sensitive else data.lower())

    def find_in(self, text: str) -> int:
        """Return the position of the text, or -1."""
        return self.fold(text).find(self.text)

    def find_starts(self, text: str, following: str | None) -> list[tuple[int, int]]:
        """Return the line numbers, from 0, and columns at which the needle begins. It may end in `following`."""
        if not self._has_lines:
            if self.find_in(text) < 0:
                return []
            places = enumerate(map(self.find_in, text.split("\n")))
            return [(number, at) for number, at in places if at >= 0]
        begun = self.fold(text)
        whole = f"{begun}\n{self.fold(following or '')}"
        found: list[tuple[int, int]] = []
        number = passed = 0
        at = whole.find(self.text)
        while 0 <= at < len(begun):
            number += whole.count("\n", passed, at)
            found.append((number, at - whole.rfind("\n", 0, at) - 1))
            passed, at = at, whole.find(self.text, at + 1)
        return found


def find_lines(data: bytes, needle: Needle, most: int) -> Iterator[FoundLine]:
    """Yield the first lines on which the text begins, in order."""
    passed, before = 0, ""
    if not needle.can_be_in(data):
        return
    for block, following in _split_blocks(as_utf8(data), max(MAX_CONTEXT_CHARACTERS, 2 * len(needle.text))):
        if most <= 0:
            return
        text = block.removesuffix("\n")
        lines = text.split("\n")
        next_line = None if following is None else following.partition("\n")[0]
        for number, at in needle.find_starts(text, following)[:most]:
            above = lines[number - 1] if number else before
            below = lines[number + 1] if number + 1 < len(lines) else next_line
            yield _build_line(passed + number + 1, lines[number], at, len(needle.text), above, below)
            most -= 1
        passed, before = passed + len(lines), lines[-1]


def _split_blocks(data: bytes, ahead: int) -> Iterator[tuple[str, str | None]]:
    """Yield blocks of whole lines as text, each with at least `ahead` characters of the next block."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + BLOCK_BYTES - 1) + 1 or len(data)
        following = data[end : end + 4 * ahead + 4] if end < len(data) else None
        shown = None if following is None else _normalize_line_ends(decode_text(following))
        yield _normalize_line_ends(decode_text(data[start:end])), shown
        start = end


def _normalize_line_ends(text: str) -> str:
    """Replace line ends with line feeds. Lines end as in `split_lines`."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _build_line(number: int, line: str, at: int, length: int, above: str | None, below: str | None) -> FoundLine:
    shown = _clip_around(line, at, length)
    before = [_clip_line(above)] if number > 1 and above is not None else []
    after = [_clip_line(below)] if below is not None else []
    return FoundLine(number, shown.strip(), "\n".join([*before, shown.rstrip(), *after]))


def _clip_around(line: str, at: int, length: int) -> str:
    """Return the line, or the part around the match if it is long."""
    if len(line) <= MAX_CONTENT_CHARACTERS:
        return line
    room = max(MAX_CONTENT_CHARACTERS - length, 0) // 2
    start = max(min(at - room, len(line) - MAX_CONTENT_CHARACTERS), 0)
    end = start + MAX_CONTENT_CHARACTERS
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def _clip_line(line: str) -> str:
    line = line.rstrip()
    return line if len(line) <= MAX_CONTEXT_CHARACTERS else line[: MAX_CONTEXT_CHARACTERS - 1] + "…"


MAX_QUERY_CHARACTERS = 1_000
MAX_RESULTS = 1_000
MAX_SECTIONS = 5
MAX_RANKED_SECTIONS = 20  # sections examined, because the lines may already show the best of them
CONCURRENT_READS = 16
MAX_SCAN_BYTES = 8 * 1024 * 1024  # in one thread
MAX_SCAN_FILES = 2_048  # in one thread
MAX_FILES_LISTED = 100  # in a result
MAX_WARNINGS = 20


class ResultLine(Value):
    file: str
    line: int
    content: str
    context: str


class ResultSection(Value):
    file: str
    line: int
    text: str
    score: float
    heading: str | None = None


class SearchMetadata(Value):
    """Details of a search. `filesSearched` lists at most MAX_FILES_LISTED names."""

    timestamp: str
    total_results: Annotated[int, Field(name="totalResults")]
    files_searched: Annotated[list[str], Field(name="filesSearched")]
    file_count: Annotated[int, Field(name="fileCount")]
    truncated: bool
    warnings: list[str] | None = None


class SearchAnswer(Value):
    query: str
    results: list[ResultLine]
    sections: list[ResultSection]
    metadata: SearchMetadata


class _ScanState(Value, frozen=False):
    """Results of a scan so far."""

    results: list[ResultLine] = field(default_factory=list[ResultLine])
    names: list[str] = field(default_factory=list[str])
    warnings: dict[str, None] = field(default_factory=dict[str, None])


class SearchTools(ToolFamily):
    def __init__(self, banks: Banks, sections: BankSectionSearch, clock: Clock) -> None:
        self._banks = banks
        self._sections = sections
        self._clock = clock

    @tool()
    async def search_memory_bank(
        self,
        call: ToolCall,
        query: Annotated[str, Field("Text or words to find", max_length=MAX_QUERY_CHARACTERS)],
        files: Annotated[list[str], Field("Only these files; default: all", max_items=1_000)] | None = None,
        max_results: Annotated[
            int,
            Field(
                f"Maximum lines, 1 to {MAX_RESULTS}, default 20; at most {MAX_SECTIONS} sections",
                name="maxResults",
                ge=1,
                le=MAX_RESULTS,
            ),
        ] = 20,
        case_sensitive: Annotated[
            bool,
            Field(
                "true: match case, and find only sections with every word of the query; default false",
                name="caseSensitive",
                listed=False,
            ),
        ] = False,
        store_id: StoreId | None = None,
    ) -> SearchAnswer:
        """Search bank files: lines containing the text first, then the best sections."""
        if not query.strip():
            hint = "Pass the text to find."
            raise InvalidInput("Search query cannot be empty.", hint=hint, argument="query", value=query)
        bank = await self._banks.require_bank(call, store_id)
        looked = _ScanState()
        if files:
            meant, missing = await find_named_files(bank, files)
            looked.warnings |= dict.fromkeys(missing)
        else:
            meant = await list_searched_files(bank)
        needle = Needle(query.strip(), case_sensitive=case_sensitive)
        await self._scan_files(bank, meant, needle, max_results + 1, looked)
        lines = looked.results[:max_results]
        ranked = RankedSections([], [])
        if meant:
            ranked = await self._sections.rank_sections(
                call, bank, query, MAX_RANKED_SECTIONS, files=meant, is_all=not files
            )
        looked.warnings |= dict.fromkeys(ranked.notices)
        found = [section for section in ranked.sections if not case_sensitive or _has_words(section, query)]
        sections = _select_unseen(found, lines)[: min(MAX_SECTIONS, max_results)]
        warnings = list(looked.warnings)[:MAX_WARNINGS]
        if (more := len(looked.warnings) - MAX_WARNINGS) > 0:
            warnings.append(f"And {format_count(more, 'more warning')}.")
        return SearchAnswer(
            query=query,
            results=lines,
            sections=[_build_section(section, query) for section in sections],
            metadata=SearchMetadata(
                timestamp=format_iso(self._clock()),
                total_results=len(lines),
                files_searched=looked.names[:MAX_FILES_LISTED],
                file_count=len(looked.names),
                truncated=len(looked.results) > max_results,
                warnings=warnings or None,
            ),
        )

    async def _scan_files(
        self, bank: Bank, files: Sequence[FileInfo], needle: Needle, most: int, looked: _ScanState
    ) -> None:
        """Scan the files in order until there are enough lines."""
        for some in _split_portions(files):
            read = await self._read_all(bank, some, looked)
            size = sum(len(data) for _, data in read)
            await run_in_thread_if_large(size, partial(_scan_portion, read, needle, most, looked))
            if len(looked.results) >= most:
                return

    async def _read_all(self, bank: Bank, files: Sequence[FileInfo], looked: _ScanState) -> list[tuple[str, bytes]]:
        """Return the readable files in order. Cached files are not read again."""
        found: dict[str, bytes | None] = {**self._sections.texts.get_cached(bank, files)}
        missing = [info for info in files if info.path not in found] if len(found) < len(files) else ()
        for start in range(0, len(missing), CONCURRENT_READS):
            some = missing[start : start + CONCURRENT_READS]
            read = await asyncio.gather(*(self._read_file(bank, info, looked) for info in some))
            found |= {info.path: data for info, data in zip(some, read, strict=True)}
        return [(i.path, data) for i in files if (data := found[i.path]) is not None]

    async def _read_file(self, bank: Bank, info: FileInfo, looked: _ScanState) -> bytes | None:
        try:
            return await self._sections.texts.read(bank, info)
        except EverkeptError as error:
            looked.warnings[f"Cannot read {info.path}: {error.message}"] = None
            return None


def _split_portions(files: Sequence[FileInfo]) -> Iterator[list[FileInfo]]:
    """Yield groups of files: few at first, because the core files may have enough lines, then larger ones."""
    most = CONCURRENT_READS
    portion: list[FileInfo] = []
    size = 0
    for info in files:
        if len(portion) == most or size >= MAX_SCAN_BYTES:
            yield portion
            portion, size, most = [], 0, min(2 * most, MAX_SCAN_FILES)
        portion.append(info)
        size += info.size
    if portion:
        yield portion


def _scan_portion(files: Sequence[tuple[str, bytes]], needle: Needle, most: int, looked: _ScanState) -> None:
    for name, data in files:
        looked.names.append(name)
        looked.results += [
            ResultLine(name, found.line, found.content, found.context)
            for found in find_lines(data, needle, most - len(looked.results))
        ]
        if len(looked.results) >= most:
            return


def _select_unseen(sections: Sequence[LocatedSection], shown: Sequence[ResultLine]) -> list[LocatedSection]:
    """Return the sections of which the result shows no line yet."""
    lines: dict[str, list[int]] = {}
    for result in shown:
        lines.setdefault(result.file, []).append(result.line)
    return [
        section
        for section in sections
        if not any(section.line <= line <= section.last for line in lines.get(section.file, ()))
    ]


def _has_words(section: LocatedSection, query: str) -> bool:
    """Return whether the section has every word of the query in the same case."""
    text = f"{section.heading or ''}\n{section.text}"
    return all(word in text for word in query.split())


def _build_section(section: LocatedSection, query: str) -> ResultSection:
    line, text = section.build_excerpt(query)
    return ResultSection(
        file=section.file, line=line, text=text, score=round(section.score, 4), heading=section.heading
    )
