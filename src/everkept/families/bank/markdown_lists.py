"""The list below a heading, edited item by item so that all else around it stays."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from everkept.core.text import normalised
from everkept.families.bank.markdown_blocks import Item, dedented, indentation_of, lines_of
from everkept.families.bank.markdown_sections import (
    Section,
    box_of,
    item_lines,
    items_of,
    left_open,
    line_end_of,
    open_line,
    sections,
    sections_titled,
    with_section,
    without_box,
)
from everkept.values import Value


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
