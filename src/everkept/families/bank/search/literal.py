"""Finding a text word for word in a file, line by line, whatever the file's size."""

from collections.abc import Iterator

from everkept.families.bank.files.texts import as_shown
from everkept.families.bank.text.encodings import as_utf8
from everkept.values import Value

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
