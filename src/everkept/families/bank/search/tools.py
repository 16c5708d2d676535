"""The search of the bank: lines that have the text word for word, then sections by meaning."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

from everkept.core.files import FileInfo
from everkept.core.sessions import Call
from everkept.core.times import Clock, iso
from everkept.errors import EverkeptError, InvalidInput
from everkept.families.bank.aside import aside
from everkept.families.bank.banks import Bank, Banks
from everkept.families.bank.files.texts import named_files, searched_files
from everkept.families.bank.model import StoreId
from everkept.families.bank.search.literal import Needle, found_lines
from everkept.families.bank.search.ranking import BankSections, Located, Ranked
from everkept.tools.schema import Field
from everkept.tools.tool import Family, tool
from everkept.values import Value, field

QUERY_LIMIT = 1_000  # characters
MOST_RESULTS = 1_000
MOST_SECTIONS = 5
RANKED = 20  # sections that are looked at; the lines may show the best of them already
READ_AT_ONCE = 16  # files
SCANNED_AT_ONCE = 8 * 1024 * 1024  # bytes, in one thread
MOST_SCANNED = 2_048  # files, likewise
MOST_LISTED = 100  # names of files in the answer
MOST_WARNINGS = 20


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
    """`filesSearched` has the first names only where there are very many."""

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


class _Looked(Value, frozen=False):
    """What a look through the files found so far."""

    results: list[ResultLine] = field(default_factory=list[ResultLine])
    names: list[str] = field(default_factory=list[str])
    warnings: dict[str, None] = field(default_factory=dict[str, None])


class SearchTools(Family):
    """Searching the files of a bank."""

    def __init__(self, banks: Banks, sections: BankSections, clock: Clock) -> None:
        self._banks = banks
        self._sections = sections
        self._clock = clock

    @tool()
    async def search_memory_bank(
        self,
        call: Call,
        query: Annotated[str, Field("Text to find.", max_length=QUERY_LIMIT)],
        files: Annotated[list[str], Field("Only these; default all.", max_items=1_000)]
        | None = None,
        max_results: Annotated[
            int,
            Field(
                f"Lines at most; of sections {MOST_SECTIONS}, or as many if fewer.",
                name="maxResults",
                ge=1,
                le=MOST_RESULTS,
            ),
        ] = 20,
        case_sensitive: Annotated[bool, Field("Match case.", name="caseSensitive")] = False,
        store_id: StoreId | None = None,
    ) -> SearchAnswer:
        """Search the memory bank: lines with the text, then sections by words and meaning."""
        if not query.strip():
            raise InvalidInput("Search query cannot be empty.", argument="query", value=query)
        bank = await self._banks.existing(call, store_id)
        looked = _Looked()
        meant = await _meant(bank, files, looked) if files else await searched_files(bank)
        needle = Needle(query.strip(), case_sensitive=case_sensitive)
        await self._look(bank, meant, needle, max_results, looked)
        ranked = Ranked([], [])
        if meant:
            ranked = await self._sections.ranked(
                call, bank, query, RANKED, files=meant, is_all=not files
            )
        looked.warnings |= dict.fromkeys(ranked.notices)
        sections = _unseen(ranked.sections, looked.results)[: min(MOST_SECTIONS, max_results)]
        return SearchAnswer(
            query=query,
            results=looked.results,
            sections=[_shown(section, query) for section in sections],
            metadata=SearchMetadata(
                timestamp=iso(self._clock()),
                total_results=len(looked.results),
                files_searched=looked.names[:MOST_LISTED],
                file_count=len(looked.names),
                truncated=len(looked.results) >= max_results,
                warnings=_few(list(looked.warnings)) or None,
            ),
        )

    async def _look(
        self, bank: Bank, files: Sequence[FileInfo], needle: Needle, most: int, looked: _Looked
    ) -> None:
        """File after file, until there are enough lines."""
        for some in _portions(files):
            read = await self._read_all(bank, some, looked)
            size = sum(len(data) for _, data in read)
            await aside(size, partial(_scan, read, needle, most, looked))
            if len(looked.results) >= most:
                return

    async def _read_all(
        self, bank: Bank, files: Sequence[FileInfo], looked: _Looked
    ) -> list[tuple[str, bytes]]:
        """Those that can be read, in their order; what is at hand is not read again."""
        found: dict[str, bytes | None] = {**self._sections.texts.held(bank, files)}
        missing = (
            [info for info in files if info.path not in found] if len(found) < len(files) else ()
        )
        for start in range(0, len(missing), READ_AT_ONCE):
            some = missing[start : start + READ_AT_ONCE]
            read = await asyncio.gather(*(self._read(bank, info, looked) for info in some))
            found |= {info.path: data for info, data in zip(some, read, strict=True)}
        return [(i.path, data) for i in files if (data := found[i.path]) is not None]

    async def _read(self, bank: Bank, info: FileInfo, looked: _Looked) -> bytes | None:
        try:
            return await self._sections.texts.read(bank, info)
        except EverkeptError as error:
            looked.warnings[f"{info.path} could not be read: {error.message}"] = None
            return None


async def _meant(bank: Bank, names: Sequence[str], looked: _Looked) -> list[FileInfo]:
    found, missing = await named_files(bank, names)
    looked.warnings |= dict.fromkeys(f"File not found: {name}." for name in missing)
    return found


def _portions(files: Sequence[FileInfo]) -> Iterator[list[FileInfo]]:
    """Few at first, since the core files may have enough lines, then more and more."""
    most = READ_AT_ONCE
    portion: list[FileInfo] = []
    size = 0
    for info in files:
        if len(portion) == most or size >= SCANNED_AT_ONCE:
            yield portion
            portion, size, most = [], 0, min(2 * most, MOST_SCANNED)
        portion.append(info)
        size += info.size
    if portion:
        yield portion


def _scan(files: Sequence[tuple[str, bytes]], needle: Needle, most: int, looked: _Looked) -> None:
    for name, data in files:
        looked.names.append(name)
        looked.results += [
            ResultLine(name, found.line, found.content, found.context)
            for found in found_lines(data, needle, most - len(looked.results))
        ]
        if len(looked.results) >= most:
            return


def _unseen(sections: Sequence[Located], shown: Sequence[ResultLine]) -> list[Located]:
    """Those of which no line is in the answer already."""
    lines: dict[str, list[int]] = {}
    for result in shown:
        lines.setdefault(result.file, []).append(result.line)
    return [
        section
        for section in sections
        if not any(section.line <= line <= section.last for line in lines.get(section.file, ()))
    ]


def _shown(section: Located, query: str) -> ResultSection:
    line, text = section.excerpt(query)
    return ResultSection(
        file=section.file,
        line=line,
        text=text,
        score=round(section.score, 4),
        heading=section.heading,
    )


def _few(warnings: Sequence[str]) -> list[str]:
    more = len(warnings) - MOST_WARNINGS
    return [*warnings[:MOST_WARNINGS], *([f"And {more:,} more of the kind."] if more > 0 else [])]
