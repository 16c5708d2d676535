"""Markdown as sections and lists, and edits that leave every byte alone that they do not mean."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from everkept.core.text import normalised
from everkept.families.bank.markdown_blocks import (
    BOM,
    ITEM,
    RULE,
    Item,
    dedented,
    headings_of,
    indentation_of,
    lines_of,
    may_be_mark,
    outline,
)
from everkept.values import Value

REMEMBERED = 8  # texts whose sections are known still
MOST_REMEMBERED = 1_000_000  # characters of one

_MOST_TURNS = 5  # an ordinary text needs two
_BOX = re.compile(r"\[([ xX])\](?:\s+|$)")
_OPENING = re.compile(r"```|~~~|<!--")


class Section(Value):
    """A heading and what stands below it, as indices into the lines of the text.

    The body goes from `first` to before `end`, which is the next heading of this level or above.
    """

    title: str
    level: int
    heading: int
    first: int
    end: int


def line_end_of(text: str) -> str:
    """The end that the first line has, which new lines get too."""
    found = re.search(r"\r\n|\r|\n", text)
    return found.group() if found else "\n"


def sections(text: str) -> list[Section]:
    """In their order. Headings in code, comments, lists and front matter are none.

    Where a fence or comment is never closed, the next heading below the title ends it: that is
    what its author meant, and what is below stays to be found.
    """
    return list(_sections_in(text) if len(text) > MOST_REMEMBERED else _remembered(text))


@lru_cache(REMEMBERED)
def _remembered(text: str) -> tuple[Section, ...]:
    """One call asks for several sections of a file, and the next for those of the same file."""
    return tuple(_sections_in(text))


def section(text: str, *titles: str) -> Section | None:
    """The first of one of these titles, the earlier title first; case and blanks do not count."""
    found = sections_titled(text, *titles)
    return found[0] if found else None


def sections_titled(text: str, *titles: str) -> list[Section]:
    """All of these titles: those of the first title first."""
    order = {key: place for place, key in reversed([*enumerate(map(normalised, titles))])}
    found = [part for part in sections(text) if normalised(part.title) in order]
    return sorted(found, key=lambda part: order[normalised(part.title)])


def body(text: str, of: Section) -> str:
    return "".join(lines_of(text)[of.first : of.end])


def items(body: str) -> list[str]:
    """The items of the outermost lists, each with its further lines; boxes stay in front."""
    return [item.said for item in items_of(lines_of(body))]


def items_of(lines: Sequence[str]) -> list[Item]:
    return outline(lines).items


def block_starts(lines: Sequence[str]) -> list[int]:
    """Where paragraphs, code and comments outside of lists begin."""
    return outline(lines).blocks


def open_line(lines: Sequence[str]) -> int | None:
    """Where a fence or comment begins that these lines do not close."""
    return outline(lines, strict=True).open_from


def left_open(text: str) -> str | None:
    """What of a file is never closed, as in: a code fence is open from line 7."""
    if not _OPENING.search(text):
        return None
    lines = lines_of(text)
    at = outline(lines, whole=True).open_from
    if at is None:
        return None
    kind = "comment" if lines[at].lstrip("\ufeff ").startswith("<!--") else "code fence"
    return f"a {kind} is open from line {at + 1}"


def box_of(item: str) -> bool | None:
    """Whether the box of a task is ticked; None where there is none."""
    found = _BOX.match(item)
    return None if found is None else found[1] != " "


def without_box(item: str) -> str:
    return _BOX.sub("", item, count=1)


def inserted_at_top(text: str, titles: Sequence[str], block: str, level: int = 2) -> str:
    """The block right under the heading, which is made at the end of the text where it is missing.

    Blank lines between the heading and what was first there stay in front of the block.
    """
    found = section(text, *titles)
    if found is None:
        return with_section(text, titles[0], block, level)
    lines, end = lines_of(text), line_end_of(text)
    old, new = lines[found.first : found.end], _block(block, end)
    start, stop = _filled(old)
    if start < stop:
        between = [*old[:start], *new, *_gap(new, old[start], end), *old[start:]]
    else:
        is_last = found.end == len(lines)
        between = [end, *new, *(old[1:] or ([] if is_last else [end]))]
    return _joined(text, lines[: found.first], between, lines[found.end :])


def with_section(text: str, title: str, body: str, level: int = 2) -> str:
    """The text with one more section at its end."""
    heading = f"{'#' * level} {title}"
    return appended(text, f"{heading}\n\n{body}" if body.strip() else heading)


def appended(text: str, block: str) -> str:
    """The block, which begins with a heading, at the end and after a blank line."""
    lines, end = lines_of(text), line_end_of(text)
    is_apart = not text.removeprefix(BOM).strip() or not lines[-1].strip()
    new = lines_of(block) if is_apart else ["\n", *lines_of(block)]
    return _joined(text, lines, _block("".join(new), end, leading=True), [])


def closed(text: str) -> str:
    """The text with a fence or comment closed that is open at its end."""
    lines = lines_of(text)
    closing = outline(lines, strict=True).closing
    return _joined(text, lines, [closing + line_end_of(text)]) if closing else text


def contained(text: str) -> str:
    """Free text that is to stand below a heading, so that it is no structure of its own.

    Headings and rules get a backslash in front, and what is left open is closed. Code stays.
    """
    lines = lines_of(text)
    found = outline(lines, strict=True)
    # A line that is a mark no more may make one of the next: what goes on so is no code.
    for turn in range(_MOST_TURNS):
        # Of a heading with a line below it, that line is what makes it one.
        marks = {part.first - 1 for part in found.headings} | set(found.rules)
        if not marks:
            break
        if turn == _MOST_TURNS - 1:
            marks = {at for at, line in enumerate(lines) if may_be_mark(line)}
        for at in marks:
            blanks = len(lines[at]) - len(lines[at].lstrip(" "))
            lines[at] = f"{lines[at][:blanks]}\\{lines[at][blanks:]}"
        found = outline(lines, strict=True)
    text = "".join(lines)
    return f"{text.rstrip()}\n{found.closing}" if found.closing else text


def item_lines(text: str) -> list[str]:
    """A list item of any text; its further lines are indented and so stay inside it."""
    first, *rest = text.strip().splitlines() or [""]
    if RULE.match(f"- {first}"):
        first = f"\\{first}"
    return [f"- {first}".rstrip(), *(f"  {line}".rstrip() for line in rest)]


def one_line(text: str) -> str:
    """For headings and labels, which have no second line."""
    return " ".join(text.split())


def _sections_in(text: str) -> list[Section]:
    headings = headings_of(text)
    ends = [len(lines_of(text))] * len(headings)
    open_ones: list[int] = []
    for at, heading in enumerate(headings):
        while open_ones and headings[open_ones[-1]].level >= heading.level:
            ends[open_ones.pop()] = heading.line
        open_ones.append(at)
    return [
        Section(heading.title, heading.level, heading.line, heading.first, end)
        for heading, end in zip(headings, ends, strict=True)
    ]


def _gap(new: Sequence[str], follower: str, end: str) -> list[str]:
    """What keeps a new block and the line behind it from becoming one."""
    if not ITEM.match(new[0]):
        return [end]
    if ITEM.match(follower):
        return []
    # What is indented behind a list would be a part of it; an empty comment ends the list.
    return [end, f"<!-- -->{end}", end] if indentation_of(follower) > 1 else [end]


def _filled(lines: Sequence[str]) -> tuple[int, int]:
    """Where the first line that is not blank stands, and after which the last."""
    start = next((at for at, line in enumerate(lines) if line.strip()), None)
    if start is None:
        return 0, 0
    return start, next(at for at in range(len(lines), 0, -1) if lines[at - 1].strip())


def _block(text: str, end: str, *, leading: bool = False) -> list[str]:
    """Lines with the ends of the file, without blank ones around."""
    lines = [line.rstrip("\r\n") for line in lines_of(text)]
    start, stop = _filled(lines)
    return [line + end for line in lines[0 if leading else start : stop]]


def _joined(text: str, *parts: Sequence[str]) -> str:
    """One text of lines; it ends with a line end where the old one did, or was empty."""
    end = line_end_of(text)
    lines = [line for part in parts for line in part]
    ended = [
        line if line.endswith(("\n", "\r")) or line == BOM else line + end for line in lines[:-1]
    ]
    joined = "".join([*ended, *lines[-1:]])
    if text.removeprefix(BOM) and not text.endswith(("\n", "\r")):
        return joined.removesuffix(end)
    return joined


class _Spot(Value):
    """Where new items go, and whether a blank line is needed before them."""

    line: int
    apart: bool = False


def listed(text: str, titles: Sequence[str]) -> list[str]:
    """The items below all headings of these titles, as one list."""
    return [item.text for item in items_below(text, titles)]


def items_below(text: str, titles: Sequence[str]) -> list[Item]:
    """Of all headings of these titles; what one of them has is not listed for the next."""
    known: set[object] = set()
    found: dict[Item, None] = {}
    page = _Page(text)
    for part in sections_titled(text, *titles):
        own = [item for item in page.items(part) if _meaning(item.text) not in known]
        found |= dict.fromkeys(own)
        known.update(_meaning(item.text) for item in own)
    return list(found)


def _meaning(item: str) -> object:
    """What two spellings of one item share; a ticked one is not the same as an open one."""
    return normalised(without_box(item)), box_of(item) is True


def with_list(
    text: str, titles: Sequence[str], wanted: Sequence[str], *, in_place: bool = False
) -> str:
    """The text with this list below the first title; prose and other headings stay.

    An item that stays keeps its own lines. What stands below another title of the same meaning
    moves to the first one, and its heading goes when nothing is left below it. With `in_place`,
    items below a sub-heading stay there, although new ones come before them.
    """
    text = _with_first_title(text, titles)
    found = sections_titled(text, *titles)
    if not found:
        rendered = [line for item in wanted for line in item_lines(item)]
        return with_section(text, titles[0], "\n".join(rendered)) if wanted else text
    main, *others = found
    page = _Page(text)
    own = page.items(main)
    here = set(own)
    moved = [item for part in others for item in page.items(part) if item not in here]
    kept = _kept(own, wanted)
    if not in_place and len(kept) < len(wanted) and _reach_below(text, main, kept):
        kept = []
    edited = _edited(text, main, [*own, *dict.fromkeys(moved)], kept, wanted)
    # A heading may be what ends a fence that nothing closes.
    return edited if left_open(edited) else _without_empty(edited, titles)


def _with_first_title(text: str, titles: Sequence[str]) -> str:
    """The first section of a title with the same meaning gets the first title."""
    found = sections_titled(text, *titles)
    if not found or normalised(found[0].title) == normalised(titles[0]):
        return text
    lines, part = lines_of(text), found[0]
    heading = lines[part.heading]
    is_underlined = part.first - part.heading > 1
    title = titles[0] if is_underlined else f"{'#' * part.level} {titles[0]}"
    bom = "\ufeff" if heading.startswith("\ufeff") else ""
    end = heading[len(heading.rstrip("\r\n")) :]
    below = lines[part.first - 1 : part.first] if is_underlined else []
    return "".join([*lines[: part.heading], bom + title + end, *below, *lines[part.first :]])


class _Page:
    """The lines and the sections of a text, read once for many questions."""

    def __init__(self, text: str) -> None:
        self._lines = lines_of(text)
        self._sections = sections(text)
        self._headings = [part.heading for part in self._sections]
        self._known = {normalised(title) for title in LISTS}

    def items(self, part: Section) -> list[Item]:
        """With those below its sub-headings, unless these are lists of their own.

        Below the title of a whole file all its sections stand; there only its own lines count.
        """
        spans = self._spans(part)
        return [
            item.moved(start) for start, end in spans for item in items_of(self._lines[start:end])
        ]

    def _spans(self, part: Section) -> list[tuple[int, int]]:
        inner = self._inside(part)
        ends = [s.heading for s in inner] + [part.end]
        spans = [(part.first, ends[0])]
        if part.level == 1:
            return spans
        apart_until = 0
        for section, end in zip(inner, ends[1:], strict=True):
            if normalised(section.title) in self._known:
                apart_until = max(apart_until, section.end)
            if section.heading >= apart_until:
                spans.append((section.first, end))
        return spans

    def _inside(self, part: Section) -> list[Section]:
        at = bisect_right(self._headings, part.heading)
        return self._sections[at : bisect_right(self._headings, part.end - 1)]


def _kept(own: Sequence[Item], wanted: Sequence[str]) -> list[Item]:
    """What may stay where it is; nothing where the order of the list is another one."""
    left = Counter(wanted)
    kept: list[Item] = []
    for item in own:
        if left[item.text]:
            left[item.text] -= 1
            kept.append(item)
    texts = [item.text for item in kept]
    return kept if texts == list(wanted[: len(texts)]) else []


def _reach_below(text: str, main: Section, kept: Sequence[Item]) -> bool:
    """Whether some of them stand below a sub-heading."""
    return bool(kept) and kept[-1].first >= _own_end(text, main)


def _own_end(text: str, main: Section) -> int:
    headings = [s.heading for s in sections(text) if main.heading < s.heading < main.end]
    return min([*headings, main.end])


def _edited(
    text: str, main: Section, items: Sequence[Item], kept: Sequence[Item], wanted: Sequence[str]
) -> str:
    lines, end = lines_of(text), line_end_of(text)
    spot = _spot(text, main, items, kept)
    dropped = set(_lines_in(set(items) - set(kept)))
    in_items = set(_lines_in(items))
    new = _rendered(lines, items, wanted[len(kept) :], end)
    out: list[str] = []
    for at in range(len(lines) + 1):
        has_new_neighbour = at - 1 in dropped
        if at == spot.line and new:
            if out and not out[-1].endswith(("\n", "\r")):
                out[-1] += end
            out += [*([end] if spot.apart else []), *new]
            has_new_neighbour = True
        if at == len(lines) or at in dropped:
            continue
        is_blank = not lines[at].strip()
        if has_new_neighbour and is_blank and not _ends_filled(out):
            continue
        # A line that comes up behind another would be read as a part of it.
        if has_new_neighbour and not is_blank and _ends_filled(out) and at not in in_items:
            out.append(end)
        out.append(lines[at])
    joined = "".join(out)
    return joined if text.endswith(("\n", "\r")) else joined.rstrip("\r\n")


def _spot(text: str, main: Section, items: Sequence[Item], kept: Sequence[Item]) -> _Spot:
    """After what is kept of the list, or where it began, or after what else stands there.

    In a fence or comment that nothing closes, items would not be seen: they go before it.
    """
    own_end = _own_end(text, main)
    own = [item for item in items if main.first <= item.first < own_end]
    if kept_here := [item for item in kept if item.first < own_end]:
        return _Spot(kept_here[-1].reach)
    if own:
        return _Spot(own[0].first)
    lines = lines_of(text)
    opened = open_line(lines[main.first : own_end])
    end = own_end if opened is None else main.first + opened
    filled = [at for at in range(main.first, end) if lines[at].strip()]
    if filled:
        return _Spot(filled[-1] + 1, apart=True)
    has_blank = main.first < end
    return _Spot(main.first + has_blank, apart=not has_blank)


def _rendered(
    lines: Sequence[str], items: Sequence[Item], wanted: Sequence[str], end: str
) -> list[str]:
    """Items as they were written before, where they only move."""
    known = {item.text: item for item in reversed(items)}
    written = [
        _outdented(lines, known[text]) if text in known else item_lines(text) for text in wanted
    ]
    return [line.rstrip("\r\n") + end for item in written for line in item]


def _outdented(lines: Sequence[str], item: Item) -> list[str]:
    """An item's lines at the left edge, where it is part of no other item."""
    indentation = indentation_of(lines[item.first])
    own = lines[item.first : item.end]
    return [dedented(line, min(indentation, indentation_of(line))) for line in own]


def _lines_in(items: Iterable[Item]) -> Iterator[int]:
    return (at for item in items for at in range(item.first, item.end))


def _ends_filled(lines: Sequence[str]) -> bool:
    return bool(lines) and bool(lines[-1].strip())


def _without_empty(text: str, titles: Sequence[str]) -> str:
    """Without the other headings of the same meaning that nothing is left below."""
    lines, end = lines_of(text), line_end_of(text)
    filled = [bool(line.strip()) for line in lines]
    dropped = [False] * len(lines)
    others = sections_titled(text, *titles)[1:]
    # The last first: where one of them goes, nothing may be left below the one around it.
    for part in sorted(others, key=lambda part: part.heading, reverse=True):
        if not any(filled[part.first : part.end]):
            count = part.end - part.heading
            filled[part.heading : part.end] = [False] * count
            dropped[part.heading : part.end] = [True] * count
    out: list[str] = []
    for at, line in enumerate(lines):
        if dropped[at]:
            continue
        if at and dropped[at - 1] and _ends_filled(out):
            out.append(end)
        out.append(line)
    return "".join(out)


HISTORY = ("Update History",)
TASKS = ("Ongoing Tasks", "Current Tasks", "Tasks")
ISSUES = ("Known Issues",)
NEXT_STEPS = ("Next Steps",)
CURRENT_NOTES = ("Current Session Notes", "Session Notes")
SESSION_NOTES = ("Session Notes", "Current Session Notes")
LISTS = (*TASKS, *ISSUES, *NEXT_STEPS, *SESSION_NOTES)
