"""A file cut into the parts that it is found by: one for each heading, more for a long one."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from zlib import crc32

from everkept.core.times import parsed
from everkept.families.bank.text.entries import MONTHS
from everkept.families.bank.text.markdown import lines_of, sections
from everkept.families.bank.text.templates import is_placeholder
from everkept.values import Value

SHORTEST, LONGEST = 800, 2_000  # characters of a part, where there is more below its heading
SHARE_OF_CUTS = 3  # one of so many entries may begin a new part
PATH_SIGN = " > "  # between a heading and the one below it

_MARKER = r"(?:[-*+]|\d{1,9}[.)])[ \t]"
_ENTRY = re.compile(_MARKER)
_DATE = rf"\[(?:\d{{4}}-\d\d-\d\d|(?:{'|'.join(MONTHS)}) \d)"
_DATED_ENTRY = re.compile(_MARKER + r"[ \t]*" + _DATE)
_DATED_TITLE = re.compile(_DATE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
# What stands before a placeholder: the marker of an item, the box of a task, a label.
_BEFORE = re.compile(rf"(?:{_MARKER}+)?(?:\[[ xX]\][ \t]+)?(?:\*\*[^*]+(?::\*\*|\*\*:))?")
_DAY = re.compile(
    r"\[(?P<entry>\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)\]"
    r"|\*\*Date:\*\*[ \t]*(?P<date>\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)"
    rf"|\[(?P<month>{'|'.join(MONTHS)}) (?P<day>\d\d?), (?P<year>\d{{4}})"
)


class Part(Value):
    """Lines of a file; `line` is the first of them, counted from 1, `start` its place in the text.

    A line that is too long for one part is in several.
    """

    heading: str
    line: int
    last: int
    start: int
    text: str


def parts_of(text: str, *, is_markdown: bool) -> list[Part]:
    """In their order. A heading with nothing below it is no part, nor is one whose text is yet
    to be written, as a template has it.

    Where a long section is cut depends on what its entries say, not on how many stand before
    them: whoever adds one changes the part it is in, and no other.
    """
    lines = lines_of(text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found: list[Part] = []
    for path, bounds, body in _spans(text, lines) if is_markdown else [("", (0, len(lines)), 0)]:
        first, end = bounds
        if not _is_blank(lines[body:end]) and not (is_markdown and _is_unwritten(lines[body:end])):
            found += _cut(path, lines, starts, (first, body, end))
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
        month = MONTHS.index(found["month"]) + 1
        day = f"{found['year']}-{month:02}-{int(found['day']):02}"
    else:
        day = found["entry"] or found["date"]
    try:
        return parsed(day)
    except ValueError:
        return None


def _spans(text: str, lines: Sequence[str]) -> Iterator[tuple[str, tuple[int, int], int]]:
    """For each heading its path, its lines up to the next heading, and where its body begins."""
    headings, end = sections(text), len(lines)
    first = headings[0].heading if headings else end
    yield "", (0, first), 0
    above: list[tuple[int, str]] = []
    for at, section in enumerate(headings):
        above = [(level, title) for level, title in above if level < section.level]
        above.append((section.level, section.title))
        following = headings[at + 1].heading if at + 1 < len(headings) else end
        path = PATH_SIGN.join(title for _, title in above if title)
        rule = None
        if _DATED_TITLE.match(section.title):
            rule = _first_rule(lines, section.first, following)
        if rule is None:
            yield path, (section.heading, following), section.first
        else:  # an entry that a rule ends: what follows belongs to the heading above it
            yield path, (section.heading, rule), section.first
            outer = PATH_SIGN.join(title for _, title in above[:-1] if title)
            yield outer, (rule + 1, following), rule + 1


def _first_rule(lines: Sequence[str], first: int, end: int) -> int | None:
    """The line of it, outside code."""
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
    """Whether there are placeholders alone, with the labels in front of them."""
    return any("[" in line for line in lines) and all(
        is_placeholder(_BEFORE.sub("", line.strip(), count=1)) for line in lines
    )


def _cut(
    path: str, lines: Sequence[str], starts: Sequence[int], bounds: tuple[int, int, int]
) -> Iterator[Part]:
    """From the first line to the last; in between is where the body begins."""
    first, body, end = bounds
    if starts[end] - starts[first] <= LONGEST:
        yield from _part(path, lines, starts, first, end)
        return
    begun = first
    for unit, following in pairwise([*_units(lines, starts, first, end), end]):
        size, more = starts[unit] - starts[begun], starts[following] - starts[unit]
        is_cut = crc32(lines[unit].encode("utf-8", "replace")) % SHARE_OF_CUTS == 0
        if unit > begun and (
            size + more > LONGEST
            or (size >= SHORTEST and is_cut)
            or (_DATED_ENTRY.match(lines[unit]) and not _is_blank(lines[max(begun, body) : unit]))
        ):
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
    while first < end and not lines[first].strip():
        first += 1
    text = "".join(lines[first:end])
    for at in range(0, len(text), LONGEST) if end == first + 1 else [0]:
        piece = text[at : at + LONGEST] if end == first + 1 else text
        if piece.strip():
            yield Part(path, first + 1, end, starts[first] + at, piece)
