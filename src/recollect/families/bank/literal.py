"""Finding a text word for word in a file, line by line, whatever the file's size."""

from collections.abc import Iterator
from dataclasses import dataclass

from recollect.families.bank.encodings import as_utf8
from recollect.families.bank.texts import as_shown

BLOCK = 1024 * 1024  # bytes that are read as text at once
MOST_CONTENT = 500  # characters of a line that are shown
MOST_CONTEXT = 300  # characters of a line before or after it


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line that has the text; `context` is the line between those before and after it."""

    line: int
    content: str
    context: str


class Needle:
    """A text to be found; case counts where it is said so."""

    def __init__(self, text: str, *, case_sensitive: bool) -> None:
        self._case_sensitive = case_sensitive
        self.text = self.fold(text)
        self._bytes = self.text.encode("utf-8", "replace")

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


def found_lines(data: bytes, needle: Needle, most: int) -> Iterator[FoundLine]:
    """The first lines that have the text, in their order."""
    passed, before = 0, ""
    if not needle.may_be_in(data):
        return
    for block, following in _blocks(as_utf8(data)):
        if most <= 0:
            return
        text = block.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.removesuffix("\n").split("\n")
        if needle.place_in(text) >= 0:
            for number, line in enumerate(lines):
                at = needle.place_in(line)
                if at < 0 or most <= 0:
                    continue
                most -= 1
                above = lines[number - 1] if number else before
                below = lines[number + 1] if number + 1 < len(lines) else following
                yield _found(passed + number + 1, line, at, len(needle.text), above, below)
        passed, before = passed + len(lines), lines[-1]


def _blocks(data: bytes) -> Iterator[tuple[str, str | None]]:
    """Whole lines as text, and the line that follows them, as far as it is shown."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + BLOCK - 1) + 1 or len(data)
        following = data[end : end + 4 * MOST_CONTEXT + 4] if end < len(data) else None
        shown = None if following is None else as_shown(following).splitlines() or [""]
        yield as_shown(data[start:end]), shown[0] if shown else None
        start = end


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
