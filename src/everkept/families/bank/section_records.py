"""The searched files of a bank, and their sections as records.

A file is read again only if it changes.
"""

import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any
from uuid import uuid4
from zlib import crc32

from everkept.core.files import FileInfo
from everkept.core.records import Delete, Insert, Record, Step, Update
from everkept.core.secrets import find_secrets, mask_text
from everkept.core.times import Clock, parse_time
from everkept.errors import Refused
from everkept.families.bank.bank_entries import MONTHS
from everkept.families.bank.bank_files import as_utf8, compute_etag, find_name
from everkept.families.bank.banks import (
    FILE_SUFFIXES,
    Bank,
    check_name,
    find_matching,
    is_outside_bank,
    list_candidates,
    normalize_name,
)
from everkept.families.bank.core_files import is_placeholder
from everkept.families.bank.markdown_sections import list_sections, split_lines
from everkept.families.bank.model import CORE_FILES, LEGACY_NAMES, SECTION_KIND
from everkept.values import Value, field, replace

MAX_CACHED_BYTES = 32 * 1024 * 1024  # of all files together
# A file that changed shortly before it was read may change again with the same time: SFTP times are whole seconds.
SETTLE_MICROSECONDS = 2_000_000

MAX_SINGLE_LOOKUPS = 16  # for more names the folder is listed

FileStamp = tuple[int, int]  # size and modification time

_CORE_NAMES = frozenset(name.lower() for name in (*CORE_FILES, *LEGACY_NAMES.values()))


class _BankCache(Value, frozen=False):
    files: dict[str, tuple[FileStamp, bytes]] = field(default_factory=dict[str, tuple[FileStamp, bytes]])
    size: int = 0

    def drop(self, name: str) -> None:
        if name in self.files:
            self.size -= len(self.files.pop(name)[1])


class TextCache:
    """Cache of file contents with a size limit.

    A scan reads all files in order, so evicting the oldest file would evict each before its next use. A file is
    therefore cached only if it fits with the other files of its bank. It evicts only other banks, the least recently
    used first.
    """

    def __init__(self, clock: Clock, most: int = MAX_CACHED_BYTES) -> None:
        self._clock = clock
        self._most = most
        self._cached_folders: OrderedDict[str, _BankCache] = OrderedDict()

    async def read(self, bank: Bank, info: FileInfo) -> bytes:
        """Return the content that the file had when `info` was read, or a newer one."""
        cached_folder = self._get_bank_cache(bank)
        stamp, data = cached_folder.files.get(info.path, (None, b""))
        if stamp == get_stamp(info):
            return data
        cached_folder.drop(info.path)
        data = await bank.files.read(info.path)
        if len(data) == info.size and is_settled(info, self._clock()):
            self._cache_text(cached_folder, info, data)
        return data

    def get_cached(self, bank: Bank, files: Sequence[FileInfo]) -> dict[str, bytes]:
        kept = self._get_bank_cache(bank).files
        found: dict[str, bytes] = {}
        for info in files:
            stamp, data = kept.get(info.path, (None, b""))
            if stamp == get_stamp(info):
                found[info.path] = data
        return found

    def drop_others(self, bank: Bank, present: set[str]) -> None:
        """Drop deleted files."""
        if cached_folder := self._cached_folders.get(bank.address):
            for name in cached_folder.files.keys() - present:
                cached_folder.drop(name)

    def _get_bank_cache(self, bank: Bank) -> _BankCache:
        cached_folder = self._cached_folders.setdefault(bank.address, _BankCache())
        self._cached_folders.move_to_end(bank.address)
        return cached_folder

    def _cache_text(self, cached_folder: _BankCache, info: FileInfo, data: bytes) -> None:
        if cached_folder.size + len(data) > self._most:
            return
        cached_folder.drop(info.path)  # another call may have cached it first
        cached_folder.files[info.path] = (get_stamp(info), data)
        cached_folder.size += len(data)
        while sum(each.size for each in self._cached_folders.values()) > self._most:
            oldest = next(address for address, each in self._cached_folders.items() if each is not cached_folder)
            del self._cached_folders[oldest]


def get_stamp(info: FileInfo) -> FileStamp:
    return info.size, info.modified_at


def is_settled(info: FileInfo, now: int) -> bool:
    """Return whether another change would also change the file's time."""
    return abs(now - info.modified_at) >= SETTLE_MICROSECONDS


def decode_text(data: bytes) -> str:
    """Decode for results and the index, with U+FFFD for undecodable bytes and without a byte order mark."""
    return as_utf8(data).decode("utf-8", "replace").removeprefix("\ufeff")


async def list_searched_files(bank: Bank) -> list[FileInfo]:
    """Return the core files in their order, then the others by name."""
    core: list[FileInfo] = []
    others: list[FileInfo] = []
    for info in await bank.files.list():  # sorted by name
        name = info.path.lower()
        if not name.endswith(FILE_SUFFIXES) or name[0] == "." or info.is_folder:
            continue
        if info.target is None or not is_outside_bank(info.target):
            (core if name in _CORE_NAMES else others).append(info)
    return sorted(core, key=_get_sort_key) + others


async def find_named_files(bank: Bank, names: Sequence[str]) -> tuple[list[FileInfo], list[str]]:
    """Return the existing files in search order, and why others are missing. Raise Refused for an invalid name.

    The folder is listed only if a name is spelled differently there, or for many names.
    """
    wanted = list(dict.fromkeys(map(check_name, names)))
    found = {name: await _read_info(bank, name) for name in wanted} if len(wanted) <= MAX_SINGLE_LOOKUPS else {}
    missing = [name for name in wanted if found.get(name) is None]
    if missing:
        listed = {info.path: info for info in await list_searched_files(bank)}
        found |= {name: listed.get(find_matching(listed, name) or "") for name in missing}
    infos = {info.path: info for info in found.values() if info is not None}
    faults = [await _describe_missing(bank, name) for name in wanted if found[name] is None]
    return sorted(infos.values(), key=_get_sort_key), faults


async def _describe_missing(bank: Bank, name: str) -> str:
    try:
        await find_name(bank, name)
    except Refused as error:  # a link that leads outside
        return f"{name}: {error.message}"
    return f"File not found: {name}."


async def _read_info(bank: Bank, name: str) -> FileInfo | None:
    for candidate in list_candidates(name):
        with suppress(Refused):  # a link that leads outside
            info = await bank.files.read_info(candidate)
            if info is not None and not info.is_folder and not is_outside_bank(info.target):
                return info
    return None


def _get_sort_key(info: FileInfo) -> tuple[int, str]:
    today = normalize_name(info.path)
    return (CORE_FILES.index(today) if today in CORE_FILES else len(CORE_FILES), info.path)


# of a part that is cut from a longer section
MIN_PART_CHARACTERS, MAX_PART_CHARACTERS = 800, 2_000
ENTRIES_PER_CUT = 3  # one of this many entries may begin a new part
PATH_SEPARATOR = " > "  # between a heading and its subheading

_MARKER = r"(?:[-*+]|\d{1,9}[.)])[ \t]"
_ENTRY = re.compile(_MARKER)
_DATE = rf"\[(?:\d{{4}}-\d\d-\d\d|(?:{'|'.join(MONTHS)}) \d)"
_DATED_ENTRY = re.compile(_MARKER + r"[ \t]*" + _DATE)
_DATED_TITLE = re.compile(_DATE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
# Prefix of a placeholder: list marker, checkbox or label.
_ITEM_PREFIX = re.compile(rf"(?:{_MARKER}+)?(?:\[[ xX]\][ \t]+)?(?:\*\*[^*]+(?::\*\*|\*\*:))?")
_DAY = re.compile(
    r"\[(?P<entry>\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)\]"
    r"|\*\*Date:\*\*[ \t]*(?P<date>\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)"
    rf"|\[(?P<month>{'|'.join(MONTHS)}) (?P<day>\d\d?), (?P<year>\d{{4}})"
)


class FilePart(Value):
    """Lines of a file from `line`, counted from 1, at offset `start`. A line too long for one part is split."""

    heading: str
    line: int
    last: int
    start: int
    text: str


def split_parts(text: str, *, is_markdown: bool) -> list[FilePart]:
    """Return the parts in order, without headings that have no text or only a template's placeholders below.

    The content of entries decides where a long section is cut, not their number. So a new entry changes only its own
    part.
    """
    lines = split_lines(text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found: list[FilePart] = []
    for path, bounds, body in _split_spans(text, lines) if is_markdown else [("", (0, len(lines)), 0)]:
        first, end = bounds
        if not _is_blank(lines[body:end]) and not (is_markdown and _is_unwritten(lines[body:end])):
            found += _divide_section(path, lines, starts, (first, body, end))
    return found


def find_moment(text: str) -> int | None:
    """Return the time of the first dated entry, or None."""
    found = _DAY.search(text)
    if found is None:
        return None
    if found["month"]:
        month = MONTHS.index(found["month"]) + 1
        day = f"{found['year']}-{month:02}-{int(found['day']):02}"
    else:
        day = found["entry"] or found["date"]
    try:
        return parse_time(day)
    except ValueError:
        return None


def _split_spans(text: str, lines: Sequence[str]) -> Iterator[tuple[str, tuple[int, int], int]]:
    """Yield each heading's path, its lines up to the next heading, and the first line of its body."""
    headings, end = list_sections(text), len(lines)
    first = headings[0].heading if headings else end
    yield "", (0, first), 0
    above: list[tuple[int, str]] = []
    for at, section in enumerate(headings):
        above = [(level, title) for level, title in above if level < section.level]
        above.append((section.level, section.title))
        following = headings[at + 1].heading if at + 1 < len(headings) else end
        path = PATH_SEPARATOR.join(title for _, title in above if title)
        rule = None
        if _DATED_TITLE.match(section.title):
            rule = _find_first_rule(lines, section.first, following)
        if rule is None:
            yield path, (section.heading, following), section.first
        else:  # a rule ends the entry; the text after it belongs to the heading above
            yield path, (section.heading, rule), section.first
            outer = PATH_SEPARATOR.join(title for _, title in above[:-1] if title)
            yield outer, (rule + 1, following), rule + 1


def _find_first_rule(lines: Sequence[str], first: int, end: int) -> int | None:
    """Return the first line with a rule outside code, or None."""
    fence = ""
    for at in range(first, end):
        found = _FENCE.match(lines[at])
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and not found[2].strip():
            fence = ""
        elif not fence and _RULE.match(lines[at].rstrip("\r\n")):
            return at
    return None


def _is_blank(lines: Sequence[str]) -> bool:
    return not any(line.strip() for line in lines)


def _is_unwritten(lines: Sequence[str]) -> bool:
    """Return whether the lines contain only placeholders and their labels."""
    return any("[" in line for line in lines) and all(
        is_placeholder(_ITEM_PREFIX.sub("", line.strip(), count=1)) for line in lines
    )


def _divide_section(
    path: str, lines: Sequence[str], starts: Sequence[int], bounds: tuple[int, int, int]
) -> Iterator[FilePart]:
    """Yield the parts of a section. `bounds` are its first line, the first line of its body, and its end."""
    first, body, end = bounds
    if starts[end] - starts[first] <= MAX_PART_CHARACTERS:
        yield from _build_parts(path, lines, starts, first, end)
        return
    begun = first
    for unit, following in pairwise([*_find_unit_starts(lines, starts, first, end), end]):
        size, more = starts[unit] - starts[begun], starts[following] - starts[unit]
        is_cut = crc32(lines[unit].encode("utf-8", "replace")) % ENTRIES_PER_CUT == 0
        if unit > begun and (
            size + more > MAX_PART_CHARACTERS
            or (size >= MIN_PART_CHARACTERS and is_cut)
            or (_DATED_ENTRY.match(lines[unit]) and not _is_blank(lines[max(begun, body) : unit]))
        ):
            yield from _build_parts(path, lines, starts, begun, unit)
            begun = unit
    yield from _build_parts(path, lines, starts, begun, end)


def _find_unit_starts(lines: Sequence[str], starts: Sequence[int], first: int, end: int) -> Iterator[int]:
    """Yield the first lines of entries and paragraphs, which stay together if possible, and lines of long ones."""
    begun = first
    for at in range(first, end):
        after_blank = at > first and not lines[at - 1].strip() and lines[at].strip()
        too_long = starts[at + 1] - starts[begun] > MAX_PART_CHARACTERS
        if at == first or after_blank or too_long or _ENTRY.match(lines[at]):
            begun = at
            yield at


def _build_parts(path: str, lines: Sequence[str], starts: Sequence[int], first: int, end: int) -> Iterator[FilePart]:
    """Yield one part, or several for a single line that is too long for one."""
    while end > first and not lines[end - 1].strip():
        end -= 1
    while first < end and not lines[first].strip():
        first += 1
    text = "".join(lines[first:end])
    for at in range(0, len(text), MAX_PART_CHARACTERS) if end == first + 1 else [0]:
        piece = text[at : at + MAX_PART_CHARACTERS] if end == first + 1 else text
        if piece.strip():
            yield FilePart(path, first + 1, end, starts[first] + at, piece)


MAX_INDEXED_BYTES = 4 * 1024 * 1024  # from the beginning of a file
MAX_PARTS = 10_000  # of a file, because a search waits while they are written


class IndexedText(Value):
    """The indexed parts of a file, with secrets masked. `is_partial` if they cover only its beginning."""

    etag: str
    masked: list[FilePart]
    is_partial: bool


def build_indexed_text(name: str, data: bytes, *, mask: bool) -> IndexedText:
    """Split the text into parts, then mask it as a whole, because a secret may span two parts."""
    text = _decode_beginning(data)
    parts = _divide_file(name, text)
    is_partial = len(as_utf8(data)) > MAX_INDEXED_BYTES or len(parts) > MAX_PARTS
    parts = parts[:MAX_PARTS]
    masked = list(_mask_parts(parts, find_secrets(text))) if mask else parts
    return IndexedText(compute_etag(data), masked, is_partial)


def list_line_ranges(name: str, data: bytes) -> list[tuple[int, int]]:
    """Return the first and last line of each part."""
    return [(part.line, part.last) for part in _divide_file(name, _decode_beginning(data))[:MAX_PARTS]]


def plan_steps(
    file: str, scope: str, parent: str, old: Sequence[Record], parts: Sequence[FilePart], at: int
) -> tuple[int, list[Step]]:
    """Return the position of the first part, and the steps from the old sections to these parts.

    A part with unchanged text keeps its record. Positions start where most records keep theirs, so that a new entry at
    the top moves nothing. Other records with the same heading are updated.
    """
    same = _pair_records([(_build_name(file, p), p.text) for p in parts], [((r.name, r.text), r) for r in old])
    shifts = Counter((record.position or 0) - number for number, record in same.items())
    first = shifts.most_common(1)[0][0] if shifts else 0
    used = {record.id for record in same.values()}
    names = [None if number in same else _build_name(file, p) for number, p in enumerate(parts)]
    like = _pair_records(names, [(record.name, record) for record in old if record.id not in used])
    used |= {record.id for record in like.values()}
    steps: list[Step] = []
    for number, part in enumerate(parts):
        values = {"text": part.text, "position": first + number, "occurred_at": find_moment(part.text)}
        record = same.get(number) or like.get(number)
        if record is None:
            steps.append(Insert(_build_section(file, scope, parent, part, values, at)))
        elif any(getattr(record, name) != value for name, value in values.items()):
            steps.append(Update(record.id, values, record.version))
    steps += [Delete(record.ref) for record in old if record.id not in used]
    return first, steps


def _decode_beginning(data: bytes) -> str:
    data = as_utf8(data)
    if len(data) > MAX_INDEXED_BYTES:
        data = data[: data.rfind(b"\n", 0, MAX_INDEXED_BYTES) + 1 or MAX_INDEXED_BYTES]
    return decode_text(data)


def _divide_file(name: str, text: str) -> list[FilePart]:
    return split_parts(text, is_markdown=name.lower().endswith(".md"))


def _mask_parts(parts: Sequence[FilePart], spans: Sequence[tuple[int, int, str]]) -> Iterator[FilePart]:
    passed = 0
    for part in parts:
        end = part.start + len(part.text)
        while passed < len(spans) and spans[passed][1] <= part.start:
            passed += 1
        pieces: list[str] = []
        at = part.start
        for start, stop, kind in spans[passed:]:
            if start >= end:
                break
            pieces += [part.text[at - part.start : max(start, at) - part.start]]
            pieces.append(f"[masked: {kind}]")
            at = min(stop, end)
        text = "".join([*pieces, part.text[at - part.start :]]) if pieces else part.text
        yield replace(part, heading=mask_text(part.heading)[0], text=text)


def _pair_records(wanted: Sequence[Any], old: Sequence[tuple[Any, Record]]) -> dict[int, Record]:
    """Map the indices of wanted keys to records with the same key, each used once."""
    waiting: defaultdict[Any, list[Record]] = defaultdict(list)
    for key, record in reversed(old):
        waiting[key].append(record)
    return {number: waiting[key].pop() for number, key in enumerate(wanted) if key is not None and waiting.get(key)}


def _build_name(file: str, part: FilePart) -> str:
    return f"{file}: {part.heading}" if part.heading else file


def _build_section(file: str, scope: str, parent: str, part: FilePart, values: dict[str, Any], at: int) -> Record:
    """Build the record without a session, because neighbors' words of a session would match it too."""
    return Record(
        id=str(uuid4()),
        kind=SECTION_KIND,
        created_at=at,
        updated_at=at,
        name=_build_name(file, part),
        type=file,
        parent=parent,
        scope=scope,
        facets={"file": file, **({"heading": part.heading} if part.heading else {})},
        **values,
    )
