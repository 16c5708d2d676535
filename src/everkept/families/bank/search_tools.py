"""The search of a bank: lines that have the text word for word, then sections by meaning."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

from everkept.core.files import FileInfo
from everkept.core.sessions import Call
from everkept.core.times import Clock, iso
from everkept.errors import EverkeptError, InvalidInput
from everkept.families.bank.bank_files import as_utf8, aside
from everkept.families.bank.banks import Bank, Banks
from everkept.families.bank.model import StoreId
from everkept.families.bank.section_records import as_shown, named_files, searched_files
from everkept.families.bank.section_search import BankSections, Located, Ranked
from everkept.tools.schema import Field
from everkept.tools.tool import Family, tool
from everkept.values import Value, field

BLOCK = 1024 * 1024  # bytes that are read as text at once
MOST_CONTENT = 500  # characters of a line that are shown
MOST_CONTEXT = 300  # characters of a line before or after it


class FoundLine(Value):
    """The line on which the text begins; `context` is that line between its neighbours."""

    line: int
    content: str
    context: str


class Needle:
    """A text to be found, in one line or over several; case counts where it is said so."""

    def __init__(self, text: str, *, case_sensitive: bool) -> None:
        self._case_sensitive = case_sensitive
        self.text = self.fold(_with_line_feeds(text))
        self._has_lines = "\n" in self.text
        self._bytes = max(self.text.split("\n"), key=len).encode("utf-8", "replace")

    def fold(self, text: str) -> str:
        # Of the two small sigmas one stands at the end of words: it is the same letter.
        return text if self._case_sensitive else text.lower().replace("ς", "σ")

    def may_be_in(self, data: bytes) -> bool:
        """False where that can be said without reading the bytes as text."""
        if not data.isascii():
            return True
        return self._bytes in (data if self._case_sensitive else data.lower())

    def place_in(self, text: str) -> int:
        """-1 where it is not."""
        return self.fold(text).find(self.text)

    def begins_in(self, text: str, following: str | None) -> list[tuple[int, int]]:
        """The lines of the text on which it begins, from 0, and where on them; what follows the
        text may have its end."""
        if not self._has_lines:
            if self.place_in(text) < 0:
                return []
            places = enumerate(map(self.place_in, text.split("\n")))
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


def found_lines(data: bytes, needle: Needle, most: int) -> Iterator[FoundLine]:
    """The first lines on which the text begins, in their order."""
    passed, before = 0, ""
    if not needle.may_be_in(data):
        return
    for block, following in _blocks(as_utf8(data), max(MOST_CONTEXT, 2 * len(needle.text))):
        if most <= 0:
            return
        text = block.removesuffix("\n")
        lines = text.split("\n")
        next_line = None if following is None else following.partition("\n")[0]
        for number, at in needle.begins_in(text, following)[:most]:
            above = lines[number - 1] if number else before
            below = lines[number + 1] if number + 1 < len(lines) else next_line
            yield _found(passed + number + 1, lines[number], at, len(needle.text), above, below)
            most -= 1
        passed, before = passed + len(lines), lines[-1]


def _blocks(data: bytes, ahead: int) -> Iterator[tuple[str, str | None]]:
    """Whole lines as text, and at least so many characters of what follows them."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + BLOCK - 1) + 1 or len(data)
        following = data[end : end + 4 * ahead + 4] if end < len(data) else None
        shown = None if following is None else _with_line_feeds(as_shown(following))
        yield _with_line_feeds(as_shown(data[start:end])), shown
        start = end


def _with_line_feeds(text: str) -> str:
    """Lines end as everywhere else in a bank: see `markdown.lines_of`."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _found(
    number: int, line: str, at: int, length: int, above: str | None, below: str | None
) -> FoundLine:
    content = _clipped_around(line, at, length).strip()
    before = [_clipped(above)] if number > 1 and above is not None else []
    after = [_clipped(below)] if below is not None else []
    middle = _clipped_around(line, at, length).rstrip()
    return FoundLine(number, content, "\n".join([*before, middle, *after]))


def _clipped_around(line: str, at: int, length: int) -> str:
    """The line, or what is around the match where it is long."""
    if len(line) <= MOST_CONTENT:
        return line
    room = max(MOST_CONTENT - length, 0) // 2
    start = max(min(at - room, len(line) - MOST_CONTENT), 0)
    end = start + MOST_CONTENT
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def _clipped(line: str) -> str:
    line = line.rstrip()
    return line if len(line) <= MOST_CONTEXT else line[: MOST_CONTEXT - 1] + "…"


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
