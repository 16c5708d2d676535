"""Markdown as sections and lists, and edits that leave every byte alone that they do not mean."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from recollect.core.text import normalised

REMEMBERED = 16  # texts whose sections are known still
MOST_REMEMBERED = 256_000  # characters of one

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_ITEM = re.compile(r"( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)")
_BOX = re.compile(r"\[([ xX])\](?:\s+|$)")
_YAML = re.compile(r"\s|#|- |([^\s:]+[^:]*:(?:\s|$))")
_BEGINNINGS = frozenset("#=-`~<*_+0123456789")  # of a block; most lines have another character
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it, as indices into the lines of the text.

    The body goes from `first` to before `end`, which is the next heading of this level or above.
    """

    title: str
    level: int
    heading: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a list: its lines, and its text without the marker and the indentation."""

    first: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class _Heading:
    title: str
    level: int
    line: int
    first: int


@dataclass(frozen=True, slots=True)
class _Outline:
    """What a text is made of: its headings, its items, and what would close what it left open."""

    headings: list[_Heading]
    items: list[Item]
    rules: list[int]
    closing: str | None


def lines_of(text: str) -> list[str]:
    """With their ends; only line feeds and carriage returns end a line."""
    return _LINE.findall(text)


def line_end_of(text: str) -> str:
    """The end that the first line has, which new lines get too."""
    found = re.search(r"\r\n|\r|\n", text)
    return found.group() if found else "\n"


def sections(text: str) -> list[Section]:
    """In their order. Headings in code, comments, lists and front matter are none."""
    if len(text) > MOST_REMEMBERED:
        return _sections_in(lines_of(text))
    return list(_remembered(text))


@lru_cache(REMEMBERED)
def _remembered(text: str) -> tuple[Section, ...]:
    """One call asks for several sections of a file, and the next for those of the same file."""
    return tuple(_sections_in(lines_of(text)))


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
    return [item.text for item in items_of(lines_of(body))]


def items_of(lines: Sequence[str]) -> list[Item]:
    return _outline(lines).items


def box_of(item: str) -> bool | None:
    """Whether the box of a task is ticked; None where there is none."""
    found = _BOX.match(item)
    return None if found is None else found[1] != " "


def without_box(item: str) -> str:
    return _BOX.sub("", item, count=1)


def with_body(text: str, titles: Sequence[str], new_body: str, level: int = 2) -> str:
    """The first section of these titles with another body, or the text with a new one at its end.

    Blank lines around a body stay; an empty one leaves the heading alone.
    """
    found = section(text, *titles)
    if found is None:
        return with_section(text, titles[0], new_body, level)
    lines, end = lines_of(text), line_end_of(text)
    old, new = lines[found.first : found.end], _block(new_body, end)
    if "".join(new).rstrip() == "".join(old).strip("\r\n").rstrip():
        return text
    start, stop = _filled(old)
    blank = [end]
    before = old[:start] if start < stop else blank
    after = old[stop:] if start < stop else old[1:]
    is_last = found.end == len(lines)
    if not new:
        between = [] if is_last else blank
    else:
        between = [*before, *new, *(after or ([] if is_last else blank))]
    return _joined(text, lines[: found.first], between, lines[found.end :])


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
    if start == stop:
        return with_body(text, titles, block, level)
    between = [*old[:start], *new, *_gap(new, old[start], end), *old[start:]]
    return _joined(text, lines[: found.first], between, lines[found.end :])


def with_section(text: str, title: str, body: str, level: int = 2) -> str:
    """The text with one more section at its end; what is left open there is closed first."""
    heading = f"{'#' * level} {title}"
    return appended(text, f"{heading}\n\n{body}" if body.strip() else heading)


def appended(text: str, block: str) -> str:
    """The block at the end, after a blank line; an open fence or comment is closed first."""
    lines, end = lines_of(text), line_end_of(text)
    closing = _outline(lines, whole=True).closing
    new = [*([f"{closing}\n"] if closing else []), "\n", *lines_of(block)]
    if not text.removeprefix(_BOM).strip():
        new = lines_of(block)
    elif closing is None and not lines[-1].strip():
        new = new[1:]
    return _joined(text, lines, _block("".join(new), end, leading=True), [])


def closed(text: str) -> str:
    """The text with a fence or comment closed that is open at its end."""
    lines = lines_of(text)
    closing = _outline(lines, whole=True).closing
    return _joined(text, lines, [closing + line_end_of(text)]) if closing else text


def contained(text: str) -> str:
    """Free text that is to stand below a heading, so that it is no structure of its own.

    Headings and rules get a backslash in front, and what is left open is closed. Code stays.
    """
    while True:
        lines = lines_of(text)
        outline = _outline(lines)
        # Of a heading with a line below it, that line is what makes it one.
        marks = {part.first - 1 for part in outline.headings} | set(outline.rules)
        if not marks:
            break
        for at in marks:
            blanks = len(lines[at]) - len(lines[at].lstrip(" "))
            lines[at] = f"{lines[at][:blanks]}\\{lines[at][blanks:]}"
        text = "".join(lines)
    return f"{text.rstrip()}\n{outline.closing}" if outline.closing else text


def item_lines(text: str) -> list[str]:
    """A list item of any text; its further lines are indented and so stay inside it."""
    first, *rest = text.strip().splitlines() or [""]
    if _RULE.match(f"- {first}"):
        first = f"\\{first}"
    return [f"- {first}".rstrip(), *(f"  {line}".rstrip() for line in rest)]


def one_line(text: str) -> str:
    """For headings and labels, which have no second line."""
    return " ".join(text.split())


def _sections_in(lines: Sequence[str]) -> list[Section]:
    headings = _outline(lines, whole=True).headings
    ends = [len(lines)] * len(headings)
    open_ones: list[int] = []
    for at, heading in enumerate(headings):
        while open_ones and headings[open_ones[-1]].level >= heading.level:
            ends[open_ones.pop()] = heading.line
        open_ones.append(at)
    return [
        Section(heading.title, heading.level, heading.line, heading.first, end)
        for heading, end in zip(headings, ends, strict=True)
    ]


class _Reader:
    """Reads line after line, knowing in which block it is."""

    def __init__(self) -> None:
        self.headings: list[_Heading] = []
        self.items: list[Item] = []
        self.rules: list[int] = []
        self.fence: str | None = None
        self.in_comment = False
        self._item: tuple[int, int, list[str]] | None = None  # first line, indentation, texts
        self._item_end = 0
        self._paragraph: list[str] | None = None  # that a line of dashes would make a heading
        self._after_blank = True

    def read(self, at: int, raw: str) -> None:
        line = raw.rstrip("\r\n")
        if self.fence is not None or self.in_comment:
            self._hidden(line)
        elif not line.strip():
            self._paragraph, self._after_blank = None, True
        else:
            self._visible(at, line)
            self._after_blank = False

    def finish(self) -> None:
        if self._item is not None:
            first, _, texts = self._item
            self.items.append(Item(first, self._item_end, "\n".join(texts).strip()))
            self._item = None

    def _hidden(self, line: str) -> None:
        if self.in_comment:
            self.in_comment = "-->" not in line
        elif (bare := line.strip()) and self.fence is not None:
            closes = set(bare) == {self.fence[0]} and len(bare) >= len(self.fence)
            if closes and _indentation(line) < 4:
                self.fence = None

    def _visible(self, at: int, line: str) -> None:
        indentation = _indentation(line)
        if self._item is not None and indentation >= self._item[1]:
            self._continue_item(at, line, self._item[1])
        elif self._begins_block(at, line):
            self._paragraph = None
        elif self._item is not None and not self._after_blank:
            self._continue_item(at, line, 0)
        else:
            self.finish()
            if self._paragraph is not None:
                self._paragraph.append(line.strip())
            elif indentation < 4 and not line.lstrip().startswith(">"):
                self._paragraph = [line.strip()]

    def _begins_block(self, at: int, line: str) -> bool:
        if line.lstrip(" ")[0] not in _BEGINNINGS:
            return False
        if self._paragraph is not None and (found := _UNDERLINE.match(line)):
            first = at - len(self._paragraph)
            level = 1 if found[1][0] == "=" else 2
            self._add_heading(" ".join(self._paragraph), level, first, at + 1)
        elif found := _ATX.match(line):
            self._add_heading(found[2] or "", len(found[1]), at, at + 1)
        elif found := _FENCE.match(line):
            self.finish()
            self.fence = found[1]
        elif line.lstrip(" ").startswith("<!--") and _indentation(line) < 4:
            self.finish()
            self.in_comment = "-->" not in line
        elif _RULE.match(line):
            self.finish()
            self.rules.append(at)
        elif found := _ITEM.match(line):
            self.finish()
            # More than four blanks after the marker are code inside the item.
            blanks = len(found[3].expandtabs(4))
            inner = len(found[1]) + len(found[2]) + (blanks if 1 <= blanks <= 4 else 1)
            self._item, self._item_end = (at, inner, [line[found.end() :].rstrip()]), at + 1
        else:
            return False
        return True

    def _add_heading(self, title: str, level: int, line: int, first: int) -> None:
        self.finish()
        self.headings.append(_Heading(title.strip(), level, line, first))

    def _continue_item(self, at: int, line: str, indentation: int) -> None:
        assert self._item is not None
        first, inner, texts = self._item
        texts += [""] * (at - first - len(texts))
        texts.append(_dedented(line, indentation).rstrip())
        self._item, self._item_end = (first, inner, texts), at + 1


def _outline(lines: Sequence[str], *, whole: bool = False) -> _Outline:
    """Of a part of a text, or of a whole one, which may begin with front matter."""
    reader = _Reader()
    start = _front_matter(lines) if whole else 0
    for at in range(start, len(lines)):
        reader.read(at, lines[at].removeprefix(_BOM) if at == 0 else lines[at])
    reader.finish()
    closing = "-->" if reader.in_comment else reader.fence
    return _Outline(reader.headings, reader.items, reader.rules, closing)


def _front_matter(lines: Sequence[str]) -> int:
    """How many lines it has; a rule at the beginning is none, as what follows it tells."""
    if len(lines) < 2 or lines[0].removeprefix(_BOM).rstrip() != "---" or not lines[1].strip():
        return 0
    has_key = False
    for at in range(1, len(lines)):
        if lines[at].rstrip() in ("---", "..."):
            return at + 1 if has_key else 0
        found = _YAML.match(lines[at])
        if found is None:
            return 0
        has_key |= found[1] is not None
    return 0


def _indentation(line: str) -> int:
    if line[:1] not in (" ", "\t"):
        return 0
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip(" "))


def _dedented(line: str, indentation: int) -> str:
    if not indentation:
        return line.strip()
    return line.expandtabs(4)[indentation:] if "\t" in line[:indentation] else line[indentation:]


def _gap(new: Sequence[str], follower: str, end: str) -> list[str]:
    """What keeps a new block and the line behind it from becoming one."""
    if not _ITEM.match(new[0]):
        return [end]
    if _ITEM.match(follower):
        return []
    # What is indented behind a list would be a part of it; an empty comment ends the list.
    return [end, f"<!-- -->{end}", end] if _indentation(follower) > 1 else [end]


def _filled(lines: Sequence[str]) -> tuple[int, int]:
    """Where the first line that is not blank stands, and after which the last."""
    filled = [at for at, line in enumerate(lines) if line.strip()]
    return (filled[0], filled[-1] + 1) if filled else (0, 0)


def _block(text: str, end: str, *, leading: bool = False) -> list[str]:
    """Lines with the ends of the file, without blank ones around."""
    lines = [line.rstrip("\r\n") for line in lines_of(text)]
    start, stop = _filled(lines)
    return [line + end for line in lines[0 if leading else start : stop]]


def _joined(text: str, *parts: Sequence[str]) -> str:
    """One text of lines; it ends with a line end where the old one did, or was empty."""
    end = line_end_of(text)
    lines = [line for part in parts for line in part]
    for at in range(len(lines) - 1):
        if lines[at] != _BOM and not lines[at].endswith(("\n", "\r")):
            lines[at] += end
    joined = "".join(lines)
    if text.removeprefix(_BOM) and not text.endswith(("\n", "\r")):
        return joined.removesuffix(end)
    return joined
