"""A file cut into the parts that it is found by: one for each heading, more for a long one."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

from recollect.core.times import parsed
from recollect.families.bank.markdown import lines_of, sections

SHORTEST, LONGEST = 800, 2_000  # characters of a part, where there is more below its heading
SHARE_OF_CUTS = 3  # one of so many entries may begin a new part
PATH_SIGN = " > "  # between a heading and the one below it

_ENTRY = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY = re.compile(
    r"\[(?P<entry>\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)\]"
    r"|\*\*Date:\*\*[ \t]*(?P<date>\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)"
    rf"|\[(?P<month>{'|'.join(_MONTHS)}) (?P<day>\d\d?), (?P<year>\d{{4}})"
)


@dataclass(frozen=True, slots=True)
class Part:
    """Lines of a file; `line` is the first of them, counted from 1, `start` its place in the text.

    A line that is too long for one part is in several.
    """

    heading: str
    line: int
    last: int
    start: int
    text: str


def parts_of(text: str, *, is_markdown: bool) -> list[Part]:
    """In their order. A heading with nothing below it is no part.

    Where a long section is cut depends on what its entries say, not on how many stand before
    them: whoever adds one changes the part it is in, and no other.
    """
    lines = lines_of(text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found: list[Part] = []
    for path, bounds, body in (
        _spans(text, len(lines)) if is_markdown else [("", (0, len(lines)), 0)]
    ):
        first, end = bounds
        if any(lines[at].strip() for at in range(body, end)):
            found += _cut(path, lines, starts, first, end)
    return found


def part_at(parts: Sequence[Part], line: int) -> Part | None:
    """The part that has the line."""
    at = bisect_right(parts, line, key=lambda part: part.line) - 1
    return parts[at] if at >= 0 and parts[at].last >= line else None


def moment_of(text: str) -> int | None:
    """The time of the first dated entry, where the text has one."""
    found = _DAY.search(text)
    if found is None:
        return None
    if found["month"]:
        month = _MONTHS.index(found["month"]) + 1
        day = f"{found['year']}-{month:02}-{int(found['day']):02}"
    else:
        day = found["entry"] or found["date"]
    try:
        return parsed(day)
    except ValueError:
        return None


def _spans(text: str, end: int) -> Iterator[tuple[str, tuple[int, int], int]]:
    """For each heading its path, its lines up to the next heading, and where its body begins."""
    headings = sections(text)
    first = headings[0].heading if headings else end
    yield "", (0, first), 0
    above: list[tuple[int, str]] = []
    for at, section in enumerate(headings):
        above = [(level, title) for level, title in above if level < section.level]
        above.append((section.level, section.title))
        following = headings[at + 1].heading if at + 1 < len(headings) else end
        path = PATH_SIGN.join(title for _, title in above if title)
        yield path, (section.heading, following), section.first


def _cut(
    path: str, lines: Sequence[str], starts: Sequence[int], first: int, end: int
) -> Iterator[Part]:
    if starts[end] - starts[first] <= LONGEST:
        yield from _part(path, lines, starts, first, end)
        return
    begun = first
    for unit, following in pairwise([*_units(lines, starts, first, end), end]):
        size, more = starts[unit] - starts[begun], starts[following] - starts[unit]
        is_cut = crc32(lines[unit].encode("utf-8", "replace")) % SHARE_OF_CUTS == 0
        if unit > begun and (size + more > LONGEST or (size >= SHORTEST and is_cut)):
            yield from _part(path, lines, starts, begun, unit)
            begun = unit
    yield from _part(path, lines, starts, begun, end)


def _units(lines: Sequence[str], starts: Sequence[int], first: int, end: int) -> Iterator[int]:
    """Where something begins that stays together if it can: an entry, a paragraph.

    What is too long for one part is taken line by line.
    """
    begun = first
    for at in range(first, end):
        after_blank = at > first and not lines[at - 1].strip() and lines[at].strip()
        too_long = starts[at + 1] - starts[begun] > LONGEST
        if at == first or after_blank or too_long or _ENTRY.match(lines[at]):
            begun = at
            yield at


def _part(
    path: str, lines: Sequence[str], starts: Sequence[int], first: int, end: int
) -> Iterator[Part]:
    """One part; more of a single line that is longer than a part may be."""
    while end > first and not lines[end - 1].strip():
        end -= 1
    text = "".join(lines[first:end])
    for at in range(0, len(text), LONGEST) if end == first + 1 else [0]:
        piece = text[at : at + LONGEST] if end == first + 1 else text
        if piece.strip():
            yield Part(path, first + 1, end, starts[first] + at, piece)
