"""JSON files of other programs, read item by item, because exports of hundreds of megabytes are usual."""

import codecs
import json
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from everkept.errors import InvalidInput
from everkept.exchange.foreign import NOTHING_IMPORTED
from everkept.transcripts.source_programs import clean_value

CHUNK_CHARACTERS = 1 << 16
MAX_ITEM_VALUES = 2_000_000  # of one item; each takes some 100 bytes of memory
MAX_ITEM_CHARACTERS = 64 * 1024 * 1024  # of one item, such as a conversation

_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_STRUCTURE = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_WHOLE_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SCALAR_END = re.compile(r"[,\]} \t\r\n]")


class NotJsonItems(ValueError):
    """The file is not JSON, or one of its items is too large."""


JsonItem = tuple[str | None, Any]  # the key of the outermost object, and a value


def read_json_items(file: IO[bytes]) -> Iterator[JsonItem]:
    """Yield each item of a list with the key None. Of an object, yield each value with its key; if the value is a list,
    yield its items one by one.

    Raise NotJsonItems. A value that is broken ends the reading only when it is reached.
    """
    reader = _Reader(file)
    opening = reader.peek()
    if opening == "[":
        yield from ((None, value) for value in reader.read_list())
    elif opening == "{":
        yield from reader.read_object()
    else:
        raise NotJsonItems("it is not a JSON list or object")
    if reader.peek():
        raise NotJsonItems("more text follows the end")


@contextmanager
def expect_json(place: Path, title: str, hint: str) -> Generator[None, None, None]:
    """Raise InvalidInput if the file is not JSON or cannot be read."""
    try:
        yield
    except (NotJsonItems, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(
            f"{place} is not {title}: {reason}.", hint=f"{NOTHING_IMPORTED} {hint}", argument="PATH", value=str(place)
        ) from error


class _Reader:
    """Text with a window of what has been read but not used."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._window = ""
        self._at = 0

    def peek(self) -> str:
        """Return the next character that is not whitespace, or an empty text at the end."""
        while True:
            found = _SPACE.match(self._window, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._window):
                return self._window[self._at]
            self._window, self._at = "", 0
            if not self._fill():
                return ""

    def read_list(self) -> Iterator[Any]:
        self._expect("[")
        if self._skip("]"):
            return
        while True:
            yield self._read_value()
            if not self._skip(","):
                break
        self._expect("]")

    def read_object(self) -> Iterator[JsonItem]:
        self._expect("{")
        if self._skip("}"):
            return
        while True:
            key = self._read_value()
            self._expect(":")
            if not isinstance(key, str):
                raise NotJsonItems("a name is not in quotes")
            if self.peek() == "[":
                yield from ((key, value) for value in self.read_list())
            else:
                yield key, self._read_value()
            if not self._skip(","):
                break
        self._expect("}")

    def _read_value(self) -> Any:
        opening = self.peek()
        if self._at > CHUNK_CHARACTERS:
            self._window, self._at = self._window[self._at :], 0
        end = self._find_end(opening)
        text, self._at = self._window[self._at : end], end
        if len(text) > MAX_ITEM_VALUES and sum(map(text.count, ",[{")) > MAX_ITEM_VALUES:
            outside = _WHOLE_STRING.sub("", text)
            if sum(map(outside.count, ",[{")) > MAX_ITEM_VALUES:
                raise NotJsonItems(f"an item has more than {MAX_ITEM_VALUES:,} values")
        try:
            return clean_value(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise NotJsonItems(f"a value is not JSON ({error})") from error

    def _find_end(self, opening: str) -> int:
        """Return the position after the value that begins here."""
        if opening not in ('"', "{", "["):
            return self._search(_SCALAR_END, self._at, at_end=True)
        depth, at = 0, self._at
        while True:
            at = self._search(_STRUCTURE, at)
            sign = self._window[at]
            at += 1
            if sign == '"':
                at = self._find_quote(at)
            else:
                depth += 1 if sign in "{[" else -1
            if depth <= 0:
                return at

    def _find_quote(self, at: int) -> int:
        while True:
            found = _IN_STRING.match(self._window, at)
            at = found.end() if found else at
            if self._window[at : at + 1] == '"':
                return at + 1
            self._require_more()

    def _search(self, pattern: re.Pattern[str], at: int, *, at_end: bool = False) -> int:
        while (found := pattern.search(self._window, at)) is None:
            at = len(self._window)
            if at_end and not self._fill():
                return at
            if not at_end:
                self._require_more()
        return found.start()

    def _require_more(self) -> None:
        if not self._fill():
            raise NotJsonItems("it ends in the middle of a value")

    def _fill(self) -> bool:
        """Read more, and return whether there was any. A larger window grows faster, so that copying stays cheap."""
        if len(self._window) - self._at > MAX_ITEM_CHARACTERS:
            raise NotJsonItems(f"an item is longer than {MAX_ITEM_CHARACTERS:,} characters")
        more = self._file.read(max(CHUNK_CHARACTERS, len(self._window)))
        self._window += self._decoder.decode(more, final=not more)
        return bool(more)

    def _skip(self, sign: str) -> bool:
        if self.peek() != sign:
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            raise NotJsonItems(f"a {sign} is missing")
