"""Sections and lists of Markdown, and edits that keep every other byte."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from everkept.core.text import compute_name_key
from everkept.families.bank.markdown_blocks import (
    BOM,
    ITEM,
    RULE,
    MarkdownItem,
    can_be_mark,
    count_indentation,
    dedent,
    find_headings,
    parse_outline,
    split_lines,
)
from everkept.values import Value

CACHED_TEXTS = 8  # texts with cached sections
MAX_CACHED_CHARACTERS = 1_000_000  # of a cached text

_MAX_PASSES = 5  # ordinary texts need two
_BOX = re.compile(r"\[([ xX])\](?:\s+|$)")
_BLOCK_OPENING = re.compile(r"```|~~~|<!--")


class MarkdownSection(Value):
    """Line index of a heading, and its body from `first` to before `end`, the next heading of its level or above."""

    title: str
    level: int
    heading: int
    first: int
    end: int


def detect_line_end(text: str) -> str:
    """Return the line ending of the first line, which new lines get too."""
    found = re.search(r"\r\n|\r|\n", text)
    return found.group() if found else "\n"


def list_sections(text: str) -> list[MarkdownSection]:
    """Return the sections in order. Headings in code, comments, lists and front matter do not count.

    The next heading below the title ends a fence or comment that is never closed. That is probably what the author
    meant, and the sections after it can still be found.
    """
    return list(_parse_sections(text) if len(text) > MAX_CACHED_CHARACTERS else _list_cached_sections(text))


@lru_cache(CACHED_TEXTS)
def _list_cached_sections(text: str) -> tuple[MarkdownSection, ...]:
    """Return cached sections: one call needs several sections of a file, and the next call often the same file."""
    return tuple(_parse_sections(text))


def find_section(text: str, *titles: str) -> MarkdownSection | None:
    """Return the first section with one of these titles, earlier titles first. Case and whitespace do not count."""
    found = find_sections(text, *titles)
    return found[0] if found else None


def find_sections(text: str, *titles: str) -> list[MarkdownSection]:
    """Return all sections with these titles, in the order of the titles."""
    order = {key: place for place, key in reversed([*enumerate(map(compute_name_key, titles))])}
    found = [part for part in list_sections(text) if compute_name_key(part.title) in order]
    return sorted(found, key=lambda part: order[compute_name_key(part.title)])


def get_body(text: str, of: MarkdownSection) -> str:
    return "".join(split_lines(text)[of.first : of.end])


def list_items(body: str) -> list[str]:
    """Return the items of the outermost lists, with all their lines and checkboxes."""
    return [item.said for item in parse_items(split_lines(body))]


def parse_items(lines: Sequence[str]) -> list[MarkdownItem]:
    return parse_outline(lines).items


def find_block_starts(lines: Sequence[str]) -> list[int]:
    """Return the first lines of paragraphs, code and comments outside lists."""
    return parse_outline(lines).blocks


def find_open_block(text: str) -> str | None:
    """Describe a block that is never closed, such as "a code fence is open from line 7", or return None."""
    if not _BLOCK_OPENING.search(text):
        return None
    lines = split_lines(text)
    at = parse_outline(lines, whole=True).open_from
    if at is None:
        return None
    kind = "comment" if lines[at].lstrip("\ufeff ").startswith("<!--") else "code fence"
    return f"a {kind} is open from line {at + 1}"


def parse_box(item: str) -> bool | None:
    """Return whether the checkbox of an item is ticked, or None if it has none."""
    found = _BOX.match(item)
    return None if found is None else found[1] != " "


def strip_box(item: str) -> str:
    return _BOX.sub("", item, count=1)


def insert_at_top(text: str, titles: Sequence[str], block: str) -> str:
    """Insert the block below the heading and its empty lines. Append a missing heading to the text."""
    found = find_section(text, *titles)
    if found is None:
        return add_section(text, titles[0], block)
    lines, end = split_lines(text), detect_line_end(text)
    old, new = lines[found.first : found.end], _format_block(block, end)
    start, stop = _find_filled(old)
    if start < stop:
        between = [*old[:start], *new, *_build_gap(new, old[start], end), *old[start:]]
    else:
        is_last = found.end == len(lines)
        between = [end, *new, *(old[1:] or ([] if is_last else [end]))]
    return _join_parts(text, lines[: found.first], between, lines[found.end :])


def add_section(text: str, title: str, body: str, level: int = 2) -> str:
    heading = f"{'#' * level} {title}"
    return append_block(text, f"{heading}\n\n{body}" if body.strip() else heading)


def append_block(text: str, block: str) -> str:
    """Append a block that begins with a heading, after an empty line."""
    lines, end = split_lines(text), detect_line_end(text)
    is_apart = not text.removeprefix(BOM).strip() or not lines[-1].strip()
    new = split_lines(block) if is_apart else ["\n", *split_lines(block)]
    return _join_parts(text, lines, _format_block("".join(new), end, leading=True), [])


def close_blocks(text: str) -> str:
    """Close a fence or comment that is open at the end of the text."""
    lines = split_lines(text)
    closing = parse_outline(lines, strict=True).closing
    return _join_parts(text, lines, [closing + detect_line_end(text)]) if closing else text


def contain_text(text: str) -> str:
    """Make free text safe below a heading, so that it cannot change the structure of the file.

    Headings and rules are escaped with a backslash, and open blocks are closed. Code stays.
    """
    lines = split_lines(text)
    found = parse_outline(lines, strict=True)
    # Escaping a line can turn the next one into a mark, so this repeats.
    for turn in range(_MAX_PASSES):
        # An underlined heading is escaped at its underline.
        marks = {part.first - 1 for part in found.headings} | set(found.rules)
        if not marks:
            break
        if turn == _MAX_PASSES - 1:
            marks = {at for at, line in enumerate(lines) if can_be_mark(line)}
        for at in marks:
            bare = lines[at].lstrip(" ")
            lines[at] = f"{lines[at].removesuffix(bare)}\\{bare}"
        found = parse_outline(lines, strict=True)
    text = "".join(lines)
    return f"{text.rstrip()}\n{found.closing}" if found.closing else text


def format_item_lines(text: str) -> list[str]:
    """Format any text as a list item, with further lines indented."""
    first, *rest = text.strip().splitlines() or [""]
    if RULE.match(f"- {first}"):
        first = f"\\{first}"
    return [f"- {first}".rstrip(), *(f"  {line}".rstrip() for line in rest)]


def to_one_line(text: str) -> str:
    """Join a text to one line, for headings and labels."""
    return " ".join(text.split())


def _parse_sections(text: str) -> list[MarkdownSection]:
    headings = find_headings(text)
    ends = [len(split_lines(text))] * len(headings)
    open_ones: list[int] = []
    for at, heading in enumerate(headings):
        while open_ones and headings[open_ones[-1]].level >= heading.level:
            ends[open_ones.pop()] = heading.line
        open_ones.append(at)
    return [
        MarkdownSection(heading.title, heading.level, heading.line, heading.first, end)
        for heading, end in zip(headings, ends, strict=True)
    ]


def _build_gap(new: Sequence[str], follower: str, end: str) -> list[str]:
    """Return the lines that separate a new block from the next line."""
    if not ITEM.match(new[0]):
        return [end]
    if ITEM.match(follower):
        return []
    # Indented text after a list would be part of it. An empty comment ends the list.
    return [end, f"<!-- -->{end}", end] if count_indentation(follower) > 1 else [end]


def _find_filled(lines: Sequence[str]) -> tuple[int, int]:
    """Return the index of the first line with text, and the index after the last one."""
    start = next((at for at, line in enumerate(lines) if line.strip()), None)
    if start is None:
        return 0, 0
    return start, next(at for at in range(len(lines), 0, -1) if lines[at - 1].strip())


def _format_block(text: str, end: str, *, leading: bool = False) -> list[str]:
    """Return the lines of a block with the file's line ending, without surrounding empty lines."""
    lines = [line.rstrip("\r\n") for line in split_lines(text)]
    start, stop = _find_filled(lines)
    return [line + end for line in lines[0 if leading else start : stop]]


def _join_parts(text: str, *parts: Sequence[str]) -> str:
    """Join lines. The result ends with a line end if the old text did or was empty."""
    end = detect_line_end(text)
    lines = [line for part in parts for line in part]
    ended = [line if line.endswith(("\n", "\r")) or line == BOM else line + end for line in lines[:-1]]
    joined = "".join([*ended, *lines[-1:]])
    if text.removeprefix(BOM) and not text.endswith(("\n", "\r")):
        return joined.removesuffix(end)
    return joined


class _InsertPoint(Value):
    """The line before which new items are inserted, and whether an empty line is needed before them."""

    line: int
    apart: bool = False


def list_titled_items(text: str, titles: Sequence[str]) -> list[str]:
    """Return the items below all headings with these titles, as one list."""
    return [item.text for item in find_items_below(text, titles)]


def find_items_below(text: str, titles: Sequence[str]) -> list[MarkdownItem]:
    """Return the items below all headings with these titles. Items of an earlier heading are not repeated."""
    known: set[object] = set()
    found: dict[MarkdownItem, None] = {}
    page = _ParsedText(text)
    for part in find_sections(text, *titles):
        own = [item for item in page.list_items(part) if _get_meaning(item.text) not in known]
        found |= dict.fromkeys(own)
        known.update(_get_meaning(item.text) for item in own)
    return list(found)


def _get_meaning(item: str) -> object:
    """Return a key that is the same for two spellings of an item. Ticked and open items differ."""
    return compute_name_key(strip_box(item)), parse_box(item) is True


def replace_list(text: str, titles: Sequence[str], wanted: Sequence[str], *, in_place: bool = False) -> str:
    """Replace the list below the first title. Prose and other headings stay.

    Items that stay keep their own lines. Items below another title of the same meaning move to the first one, and a
    heading without remaining text is removed. With `in_place`, items below a subheading stay there, although new ones
    come before them.
    """
    text = _use_first_title(text, titles)
    found = find_sections(text, *titles)
    if not found:
        rendered = [line for item in wanted for line in format_item_lines(item)]
        return add_section(text, titles[0], "\n".join(rendered)) if wanted else text
    main, *others = found
    page = _ParsedText(text)
    own = page.list_items(main)
    here = set(own)
    moved = [item for part in others for item in page.list_items(part) if item not in here]
    kept = _select_kept(own, wanted)
    if not in_place and kept and len(kept) < len(wanted) and kept[-1].first >= _find_own_end(text, main):
        kept = []  # some are below a subheading
    edited = _edit_list(text, main, [*own, *dict.fromkeys(moved)], kept, wanted)
    # A heading may be the only end of an open fence.
    return edited if find_open_block(edited) else _remove_empty(edited, titles)


def _use_first_title(text: str, titles: Sequence[str]) -> str:
    """Rename the first matching section to the first title."""
    found = find_sections(text, *titles)
    if not found or compute_name_key(found[0].title) == compute_name_key(titles[0]):
        return text
    lines, part = split_lines(text), found[0]
    heading = lines[part.heading]
    is_underlined = part.first - part.heading > 1
    title = titles[0] if is_underlined else f"{'#' * part.level} {titles[0]}"
    bom = "\ufeff" if heading.startswith("\ufeff") else ""
    end = heading[len(heading.rstrip("\r\n")) :]
    below = lines[part.first - 1 : part.first] if is_underlined else []
    return "".join([*lines[: part.heading], bom + title + end, *below, *lines[part.first :]])


class _ParsedText:
    """The lines and sections of a text, parsed once."""

    def __init__(self, text: str) -> None:
        self._lines = split_lines(text)
        self._sections = list_sections(text)
        self._headings = [part.heading for part in self._sections]
        self._known = {compute_name_key(title) for title in LIST_TITLES}

    def list_items(self, part: MarkdownSection) -> list[MarkdownItem]:
        """Return the items of a section and its subsections, except those that are separate lists.

        Of a level 1 section, which contains the whole file, only the text before its first subsection counts.
        """
        spans = self._list_spans(part)
        return [item.shift(start) for start, end in spans for item in parse_items(self._lines[start:end])]

    def _list_spans(self, part: MarkdownSection) -> list[tuple[int, int]]:
        at = bisect_right(self._headings, part.heading)
        inner = self._sections[at : bisect_right(self._headings, part.end - 1)]
        ends = [s.heading for s in inner] + [part.end]
        spans = [(part.first, ends[0])]
        if part.level == 1:
            return spans
        apart_until = 0
        for section, end in zip(inner, ends[1:], strict=True):
            if compute_name_key(section.title) in self._known:
                apart_until = max(apart_until, section.end)
            if section.heading >= apart_until:
                spans.append((section.first, end))
        return spans


def _select_kept(own: Sequence[MarkdownItem], wanted: Sequence[str]) -> list[MarkdownItem]:
    """Return the items that can stay in place, none if the order changes."""
    left = Counter(wanted)
    kept: list[MarkdownItem] = []
    for item in own:
        if left[item.text]:
            left[item.text] -= 1
            kept.append(item)
    texts = [item.text for item in kept]
    return kept if texts == list(wanted[: len(texts)]) else []


def _find_own_end(text: str, main: MarkdownSection) -> int:
    headings = [s.heading for s in list_sections(text) if main.heading < s.heading < main.end]
    return min([*headings, main.end])


def _edit_list(
    text: str, main: MarkdownSection, items: Sequence[MarkdownItem], kept: Sequence[MarkdownItem], wanted: Sequence[str]
) -> str:
    lines, end = split_lines(text), detect_line_end(text)
    spot = _find_insert_point(text, main, items, kept)
    dropped = set(_iterate_lines(set(items) - set(kept)))
    in_items = set(_iterate_lines(items))
    new = _render_items(lines, items, wanted[len(kept) :], end)
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
        if has_new_neighbour and is_blank and not _has_filled_end(out):
            continue
        # Without an empty line, this line would continue the previous one.
        if has_new_neighbour and not is_blank and _has_filled_end(out) and at not in in_items:
            out.append(end)
        out.append(lines[at])
    joined = "".join(out)
    return joined if text.endswith(("\n", "\r")) else joined.rstrip("\r\n")


def _find_insert_point(
    text: str, main: MarkdownSection, items: Sequence[MarkdownItem], kept: Sequence[MarkdownItem]
) -> _InsertPoint:
    """Return the point after the kept items, otherwise where the list began or after the other text.

    Items inside an open fence or comment would be invisible, so they go before it.
    """
    own_end = _find_own_end(text, main)
    own = [item for item in items if main.first <= item.first < own_end]
    if kept_here := [item for item in kept if item.first < own_end]:
        return _InsertPoint(kept_here[-1].reach)
    if own:
        return _InsertPoint(own[0].first)
    lines = split_lines(text)
    opened = parse_outline(lines[main.first : own_end], strict=True).open_from
    end = own_end if opened is None else main.first + opened
    filled = [at for at in range(main.first, end) if lines[at].strip()]
    if filled:
        return _InsertPoint(filled[-1] + 1, apart=True)
    has_blank = main.first < end
    return _InsertPoint(main.first + has_blank, apart=not has_blank)


def _render_items(lines: Sequence[str], items: Sequence[MarkdownItem], wanted: Sequence[str], end: str) -> list[str]:
    """Return the lines of the items, unchanged for items that only move."""
    known = {item.text: item for item in reversed(items)}
    written = [_outdent(lines, known[text]) if text in known else format_item_lines(text) for text in wanted]
    return [line.rstrip("\r\n") + end for item in written for line in item]


def _outdent(lines: Sequence[str], item: MarkdownItem) -> list[str]:
    """Return an item's lines without its own indentation."""
    indentation = count_indentation(lines[item.first])
    own = lines[item.first : item.end]
    return [dedent(line, min(indentation, count_indentation(line))) for line in own]


def _iterate_lines(items: Iterable[MarkdownItem]) -> Iterator[int]:
    return (at for item in items for at in range(item.first, item.end))


def _has_filled_end(lines: Sequence[str]) -> bool:
    return bool(lines) and bool(lines[-1].strip())


def _remove_empty(text: str, titles: Sequence[str]) -> str:
    """Remove the other headings of the same meaning with no text below."""
    lines, end = split_lines(text), detect_line_end(text)
    filled = [bool(line.strip()) for line in lines]
    dropped = [False] * len(lines)
    others = find_sections(text, *titles)[1:]
    # From the end: removing one may empty the section around it.
    for part in sorted(others, key=lambda part: part.heading, reverse=True):
        if not any(filled[part.first : part.end]):
            count = part.end - part.heading
            filled[part.heading : part.end] = [False] * count
            dropped[part.heading : part.end] = [True] * count
    out: list[str] = []
    for at, line in enumerate(lines):
        if dropped[at]:
            continue
        if at and dropped[at - 1] and _has_filled_end(out):
            out.append(end)
        out.append(line)
    return "".join(out)


HISTORY_TITLES = ("Update History",)
TASK_TITLES = ("Ongoing Tasks", "Current Tasks", "Tasks")
ISSUE_TITLES = ("Known Issues",)
NEXT_STEP_TITLES = ("Next Steps",)
CURRENT_NOTE_TITLES = ("Current Session Notes", "Session Notes")
SESSION_NOTE_TITLES = ("Session Notes", "Current Session Notes")
LIST_TITLES = (*TASK_TITLES, *ISSUE_TITLES, *NEXT_STEP_TITLES, *SESSION_NOTE_TITLES)
