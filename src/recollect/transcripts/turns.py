"""The turn that is being read: what was said, and what was done meanwhile."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from recollect.core.transcripts import Snippet, Turn
from recollect.transcripts.fields import string

# Characters and things that a turn can hold, whatever its transcript does.
MOST_TEXT = 1_000_000
MOST_CODE = 2_000_000
MOST_REPLACED = 20_000  # of what stood in place of one snippet
MOST_THINGS = 200  # of a sort: files, tools, snippets
MOST_FAILURES = 20
LONGEST_PATH = 4096
LONGEST_NAME = 200  # of a session, a branch, a model, a tool

CLIPPED = "rest of a very long turn"
OTHER = "other"
_BETWEEN = "\n\n"
_MOST_KINDS = 32  # of what is skipped, told apart


def count(skipped: Counter[str], kind: str) -> None:
    """One more of a kind that the transcript named: there may be any number of those."""
    skipped[kind if kind in skipped or len(skipped) < _MOST_KINDS else OTHER] += 1


def name(value: Any) -> str:
    """The value where it can be a name; else an empty one."""
    text = string(value).strip()
    return text if len(text) <= LONGEST_NAME else ""


def folder(value: Any) -> str:
    """The value where it can be a path; else an empty one."""
    text = string(value)
    return text if len(text) <= LONGEST_PATH else ""


class OpenTurn:
    """Gathers a turn. What goes beyond its bounds is left out and counted."""

    def __init__(self, turn: Turn, skipped: Counter[str]) -> None:
        self._begun = turn
        self._skipped = skipped
        self._parts: list[str] = []
        self._room = MOST_TEXT
        self._code = 0
        self._tools: dict[str, None] = {}
        self._files: dict[str, None] = {}
        self._snippets: list[tuple[str, Snippet]] = []
        self._failures: list[str] = []

    @property
    def has_text(self) -> bool:
        return bool(self._parts)

    def say(self, text: str) -> None:
        """Another part of the text; a blank line stands before it."""
        part = self._fitted(text.strip(), self._room)
        if part:
            self._parts.append(part)
            self._room = max(self._room - len(part) - len(_BETWEEN), 0)

    def use(self, tool: str) -> None:
        self._add(self._tools, tool)

    def touch(self, files: Iterable[str]) -> None:
        for file in files:
            self._add(self._files, folder(file))

    def write(self, call: str, snippets: Iterable[Snippet]) -> None:
        """What the call of a tool wrote."""
        for snippet in snippets:
            room = MOST_CODE - self._code
            if not room or len(self._snippets) == MOST_THINGS:
                self._skipped[CLIPPED] += 1
                return
            text = self._fitted(snippet.text, room)
            replaced = snippet.replaced and snippet.replaced[:MOST_REPLACED]
            self._code += len(text)
            fitted = Snippet(text, snippet.file, snippet.language, replaced)
            self._snippets.append((call, fitted))

    def fail(self, call: str, said: str) -> None:
        """The call did not do what it was made for: it wrote nothing."""
        self._snippets = [(by, snippet) for by, snippet in self._snippets if by != call or not call]
        if said and len(self._failures) < MOST_FAILURES:
            self._failures.append(said)

    def turn(self, project: str | None) -> Turn:
        """As it stands."""
        return replace(
            self._begun,
            text=self._text(),
            project=project,
            files=tuple(self._files),
            tools=tuple(self._tools),
            snippets=tuple(snippet for _, snippet in self._snippets),
            failures=tuple(self._failures),
        )

    def _text(self) -> str:
        # It is asked for after each line, and seldom grows.
        self._parts = [_BETWEEN.join(self._parts)] if self._parts else []
        return "".join(self._parts)

    def _add(self, things: dict[str, None], thing: str) -> None:
        if not thing or thing in things:
            return
        if len(things) < MOST_THINGS:
            things[thing] = None
        else:
            self._skipped[CLIPPED] += 1

    def _fitted(self, text: str, room: int) -> str:
        if len(text) > room:
            self._skipped[CLIPPED] += 1
        return text[:room]
