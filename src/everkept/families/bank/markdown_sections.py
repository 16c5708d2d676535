"""Markdown as sections and lists, and edits that leave every byte alone that they do not mean."""

import re
from collections.abc import Sequence
from functools import lru_cache

from everkept.core.text import normalised
from everkept.families.bank.markdown_blocks import (
    BOM,
    ITEM,
    RULE,
    Item,
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
