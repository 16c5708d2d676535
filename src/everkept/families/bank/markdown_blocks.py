"""Markdown blocks, parsed line by line: headings, items, code and comments."""

import re
from collections.abc import Sequence
from io import StringIO

from everkept.values import Value, field, replace

BOM = "\ufeff"
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
ITEM = re.compile(r"( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)")
# Text with one of these may have other headings or hide some, so every line is parsed. Patterns that begin with a line
# feed are fast to search.
_UNUSUAL = ("\r", BOM, "```", "~~~", "<!--")
_UNUSUAL_LINE = re.compile(r"\n(?:[ \t]+#| {0,3}(?:=+|-+)[ \t]*(?:\n|\Z))")
_HASH_LINE = re.compile(r"\n(#[^\n]*)")
_YAML_LINE = re.compile(r"\s|#|- |([^\s:][^:]*:(?:\s|$))")
_MAX_HEADING_LEVEL = 6
_BLOCK_FIRST_CHARACTERS = frozenset("#=-`~<*_+0123456789")  # most lines begin with another character


class MarkdownItem(Value):
    """A list item: its lines, and its text without marker and indentation.

    Unindented lines right below belong to `said` and end before `reach`. They are not part of the item and stay when it
    is removed.
    """

    first: int
    end: int
    text: str
    reach: int
    said: str

    def shift(self, by: int) -> "MarkdownItem":
        return MarkdownItem(self.first + by, self.end + by, self.text, self.reach + by, self.said)


class MarkdownHeading(Value):
    title: str
    level: int
    line: int
    first: int


class MarkdownOutline(Value):
    """The headings, items and rules of a text, and the first lines of other blocks.

    `open_from` is the line of a fence or comment that is never closed. `closing` is the text that would close it.
    """

    headings: list[MarkdownHeading]
    items: list[MarkdownItem]
    rules: list[int]
    blocks: list[int]
    open_from: int | None
    closing: str | None


def split_lines(text: str) -> list[str]:
    """Split into lines with their ends. Only line feeds and carriage returns end a line."""
    return list(StringIO(text, newline=""))


class _OpenItem(Value, frozen=False):
    first: int
    inner: int  # indentation of its content
    texts: list[str]
    end: int
    lazy: list[str] = field(default_factory=list[str])  # unindented lines below it

    def add(self, at: int, line: str) -> None:
        self.texts += [""] * (at - self.first - len(self.texts))
        self.texts.append(dedent(line, self.inner).rstrip())
        self.end = at + 1

    def close(self) -> MarkdownItem:
        text = "\n".join(self.texts).strip()
        said = "\n".join([text, *self.lazy]) if self.lazy else text
        return MarkdownItem(self.first, self.end, text, self.end + len(self.lazy), said)


class _BlockReader:
    """Line-by-line parser. With `mending`, a heading below the file's title ends a fence or comment."""

    def __init__(self, mending: bool) -> None:
        self._mending = mending
        self.headings: list[MarkdownHeading] = []
        self.items: list[MarkdownItem] = []
        self.rules: list[int] = []
        self.blocks: list[int] = []
        self.fence: str | None = None
        self.in_comment = False
        self.open_from: int | None = None  # line of the first block that is never closed
        self._opened = 0
        self._item: _OpenItem | None = None
        self._paragraph: list[str] | None = None  # lines that an underline would turn into a heading
        self._in_text = False
        self._after_blank = True

    def read(self, at: int, raw: str) -> None:
        line = raw.rstrip("\r\n")
        if self._is_hidden and not (self._mending and _is_block_end(line)):
            self._read_hidden(line)
            return
        if self._is_hidden:
            self._note_open()
            self.fence, self.in_comment = None, False
        if line.strip():
            self._read_visible(at, line)
            self._after_blank = False
        else:
            if self._item is not None and self._item.lazy:
                self.finish()
            self._paragraph, self._in_text, self._after_blank = None, False, True

    def finish(self) -> None:
        if self._item is not None:
            self.items.append(self._item.close())
            self._item = None

    def end(self) -> None:
        self.finish()
        if self._is_hidden:
            self._note_open()

    @property
    def _is_hidden(self) -> bool:
        return self.fence is not None or self.in_comment

    def _note_open(self) -> None:
        self.open_from = self._opened if self.open_from is None else self.open_from

    def _read_hidden(self, line: str) -> None:
        if self.in_comment:
            self.in_comment = "-->" not in line
        elif (bare := line.strip()) and self.fence is not None:
            closes = set(bare) == {self.fence[0]} and len(bare) >= len(self.fence)
            if closes and count_indentation(line) < 4:
                self.fence = None

    def _read_visible(self, at: int, line: str) -> None:
        item, indentation = self._item, count_indentation(line)
        if item is not None and not item.lazy and indentation >= item.inner:
            item.add(at, line)
        elif self._read_block_start(at, line):
            self._paragraph, self._in_text = None, False
        elif item is not None and (item.lazy or not self._after_blank):
            item.lazy.append(line.strip())
        else:
            self._read_text(at, line, indentation)

    def _read_text(self, at: int, line: str, indentation: int) -> None:
        self.finish()
        if not self._in_text:
            self.blocks.append(at)
            self._in_text = True
        if self._paragraph is not None:
            self._paragraph.append(line.strip())
        elif indentation < 4 and not line.lstrip().startswith(">"):
            self._paragraph = [line.strip()]

    def _read_block_start(self, at: int, line: str) -> bool:
        first = line.lstrip(" ")[0]
        if first not in _BLOCK_FIRST_CHARACTERS:
            return False
        if first in "=-" and self._paragraph is not None and (found := _UNDERLINE.match(line)):
            begun = at - len(self._paragraph)
            level = 1 if first == "=" else 2
            self._add_heading(" ".join(self._paragraph), level, begun, at + 1)
        elif first == "#" and (marked := _parse_heading(line)):
            title, level = marked
            self._add_heading(title, level, at, at + 1)
        elif first in "`~" and (found := _FENCE.match(line)):
            self._open(at)
            self.fence = found[1]
        elif line.lstrip(" ").startswith("<!--") and count_indentation(line) < 4:
            self._open(at)
            self.in_comment = "-->" not in line
        elif RULE.match(line):
            self.finish()
            self.rules.append(at)
        elif found := ITEM.match(line):
            self.finish()
            # After more than four spaces, the item begins with indented code.
            spaces = len(found[3].expandtabs(4))
            inner = len(found[1]) + len(found[2]) + (spaces if 1 <= spaces <= 4 else 1)
            self._item = _OpenItem(at, inner, [line[found.end() :].rstrip()], at + 1)
        else:
            return False
        return True

    def _open(self, at: int) -> None:
        self.finish()
        self.blocks.append(at)
        self._opened = at

    def _add_heading(self, title: str, level: int, line: int, first: int) -> None:
        self.finish()
        self.headings.append(MarkdownHeading(title.strip(), level, line, first))


def _is_block_end(line: str) -> bool:
    """Return whether the line is a heading of level 2 or below. With one `#` it may be a comment in code."""
    found = _parse_heading(line)
    return found is not None and found[1] > 1 and bool(found[0])


def can_be_mark(line: str) -> bool:
    """Return whether the line is a heading, underline or rule in some context."""
    bare = line.rstrip("\r\n")
    return bool(_UNDERLINE.match(bare) or RULE.match(bare) or _parse_heading(bare))


def _parse_heading(line: str) -> tuple[str, int] | None:
    """Return a `#` heading's title and level. A regular expression would be slow on long lines of spaces."""
    bare = line.lstrip(" ")
    text = bare.lstrip("#")
    level = len(bare) - len(text)
    if len(line) - len(bare) > 3 or not 1 <= level <= _MAX_HEADING_LEVEL:
        return None
    if text and text[0] not in " \t":
        return None
    title = text.strip(" \t")
    unclosed = title.rstrip("#")
    is_closed = not unclosed or unclosed[-1] in " \t"
    return (unclosed.rstrip(" \t") if is_closed else title), level


def find_headings(text: str) -> list[MarkdownHeading]:
    """Return the same headings as parse_outline(), faster for ordinary texts."""
    led = f"\n{text}"
    if any(mark in text for mark in _UNUSUAL) or _UNUSUAL_LINE.search(led):
        return parse_outline(split_lines(text), whole=True).headings
    found: list[MarkdownHeading] = []
    line = passed = 0
    for marked in _HASH_LINE.finditer(led):
        line += led.count("\n", passed, marked.start())
        passed = marked.start()
        if heading := _parse_heading(marked[1]):
            title, level = heading
            found.append(MarkdownHeading(title.strip(), level, line, line + 1))
    return found


def parse_outline(lines: Sequence[str], *, whole: bool = False, strict: bool = False) -> MarkdownOutline:
    """Parse a part of a text or, with `whole`, a text that may begin with front matter.

    With `strict`, an open block reaches to the end, as a viewer shows it.
    """
    found = _parse_lines(lines, whole, mending=False)
    if strict or found.closing is None:
        return found
    return replace(_parse_lines(lines, whole, mending=True), closing=found.closing)


def _parse_lines(lines: Sequence[str], whole: bool, mending: bool) -> MarkdownOutline:
    reader = _BlockReader(mending)
    start = _count_front_matter(lines) if whole else 0
    for at in range(start, len(lines)):
        reader.read(at, lines[at].removeprefix(BOM) if at == 0 else lines[at])
    reader.end()
    return MarkdownOutline(
        reader.headings,
        reader.items,
        reader.rules,
        reader.blocks,
        reader.open_from,
        "-->" if reader.in_comment else reader.fence,
    )


def _count_front_matter(lines: Sequence[str]) -> int:
    """Return the number of front matter lines. A rule at the beginning is not front matter if no YAML follows."""
    if len(lines) < 2 or lines[0].removeprefix(BOM).rstrip() != "---" or not lines[1].strip():
        return 0
    has_key = False
    for at in range(1, len(lines)):
        if lines[at].rstrip() in ("---", "..."):
            return at + 1 if has_key else 0
        found = _YAML_LINE.match(lines[at])
        if found is None:
            return 0
        has_key |= found[1] is not None
    return 0


def count_indentation(line: str) -> int:
    if line[:1] not in (" ", "\t"):
        return 0
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip(" "))


def dedent(line: str, indentation: int) -> str:
    """Remove this much indentation from the line."""
    return line.expandtabs(4)[indentation:] if "\t" in line[:indentation] else line[indentation:]
