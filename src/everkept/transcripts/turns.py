"""Messages as programs write them, joined into turns, with the files and code of tool calls."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from everkept.core.transcripts import ASSISTANT, Snippet, Turn
from everkept.transcripts.source_programs import (
    LONGEST_FAILURE,
    LONGEST_NAME,
    LONGEST_PATH,
    LONGEST_TITLE,
    MOST_CODE,
    MOST_FAILURES,
    MOST_KINDS,
    MOST_REPLACED,
    MOST_TEXT,
    MOST_THINGS,
    WRONG_SHAPE,
    listed,
    mapping,
    string,
    unique,
)
from everkept.values import Value, field, replace

_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_PATCHED_FILE = ("*** Add File: ", "*** Update File: ", "*** Delete File: ")
_MOVED = "*** Move to: "


class Patch(Value, frozen=False):
    """What a patch says; empty where a text holds none."""

    files: list[str] = field(default_factory=list[str])
    snippets: list[Snippet] = field(default_factory=list[Snippet])


def patch_in(text: str) -> Patch:
    """The first patch in a text, which may be a command that applies it."""
    patch = Patch()
    start = text.find(_BEGIN)
    if start < 0:
        return patch
    end = text.find(_END, start)
    hunk = _Hunk()
    for line in text[start : end if end >= 0 else None].split("\n")[1:]:
        if line.startswith(_PATCHED_FILE):
            hunk = _finished(patch, hunk, line.partition(": ")[2].strip())
            patch.files.append(hunk.file)
        elif line.startswith(_MOVED):
            hunk.file = line.removeprefix(_MOVED).strip()
            patch.files.append(hunk.file)
        elif line.startswith("@@"):
            hunk = _finished(patch, hunk, hunk.file)
        else:
            hunk.take(line)
    _finished(patch, hunk, "")
    return patch


class _Hunk(Value, frozen=False):
    file: str = ""
    old: list[str] = field(default_factory=list[str])
    new: list[str] = field(default_factory=list[str])
    adds: bool = False

    def take(self, line: str) -> None:
        sign, rest = line[:1], line[1:]
        if sign == "+":
            self.new.append(rest)
            self.adds = True
        elif sign == "-":
            self.old.append(rest)
        elif sign in (" ", ""):
            self.new.append(rest)
            self.old.append(rest)


def _finished(patch: Patch, hunk: _Hunk, next_file: str) -> _Hunk:
    if hunk.adds:
        replaced = "\n".join(hunk.old).strip("\n") or None
        patch.snippets.append(Snippet("\n".join(hunk.new).strip("\n"), hunk.file, None, replaced))
    return _Hunk(next_file)


_FILE = (
    "file_path",
    "absolute_path",
    "path",
    "target_file",
    "targetFile",
    "filePath",
    "relativeWorkspacePath",
    "notebook_path",
    "target_notebook",
)
_NEW = ("new_string", "new_str", "newString")
_OLD = ("old_string", "old_str", "oldString")
_WHOLE = ("content", "contents", "file_text", "code_edit", "new_source", "streamingContent")


def files_of(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The files or folders that are named as such, one at most for each call."""
    return unique(arguments.get(name) for name in _FILE)[:1]


def snippets_of(arguments: Mapping[str, Any]) -> tuple[Snippet, ...]:
    """What was written into a file: as a whole, or in place of something."""
    file = next(iter(files_of(arguments)), None)
    if file is None:
        return ()
    edits = [mapping(edit) for edit in listed(arguments.get("edits"))] or [arguments]
    snippets: list[Snippet] = []
    for edit in edits:
        new = _first(edit, _NEW) or _first(edit, _WHOLE)
        if new.strip():
            snippets.append(Snippet(new, file, replaced=_first(edit, _OLD) or None))
    return tuple(snippets)


def failure(said: str) -> str:
    """The beginning of what a tool said, which names the error as a rule."""
    text = said.strip()
    return text if len(text) <= LONGEST_FAILURE else text[: LONGEST_FAILURE - 1] + "…"


def _first(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((text for name in names if (text := string(arguments.get(name)))), "")


_OPENING = re.compile(r"\s*<([\w-]{1,60})[^<>]{0,200}>")


def without_leading(text: str, tags: Collection[str]) -> str:
    """The text behind the wrappers that it begins with."""
    place = 0
    while (found := _OPENING.match(text, place)) and found[1] in tags:
        end = text.find(f"</{found[1]}", found.end())
        place = text.find(">", end) + 1
        if end < 0 or not place:
            return ""  # It was cut off: nothing of it was said by a person.
    return text[place:].strip()


def without(text: str, tags: Collection[str]) -> str:
    """The text without these wrappers, wherever they stand."""
    for tag in tags:
        text = _without(text, f"<{tag}>", f"</{tag}>")
    return text.strip()


def inside(text: str, tag: str) -> str:
    """What stands in the first wrapper of that name."""
    start = text.find(f"<{tag}>")
    end = text.find(f"</{tag}>", start)
    return text[start + len(tag) + 2 : end].strip() if 0 <= start < end else ""


def _without(text: str, opening: str, closing: str) -> str:
    kept: list[str] = []
    place = 0
    while (start := text.find(opening, place)) >= 0:
        end = text.find(closing, start)
        if end < 0:
            break
        kept.append(text[place:start])
        place = end + len(closing)
    return "".join([*kept, text[place:]])


CLIPPED = "rest of a very long turn"
LONG_PATH = "path over 1,000 characters"
OTHER = "other"
_BETWEEN = "\n\n"
_KIND = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def unknown(skipped: Counter[str], what: str, kind: str) -> None:
    """Counts one more of a kind that the transcript names, where it can be a name at all.

    Anything may stand in its place, also what was said, and there may be any number of them.
    """
    named = f"unknown {what}: {kind}" if _KIND.fullmatch(kind) else f"unknown {what}"
    if not kind:
        named = WRONG_SHAPE
    skipped[named if named in skipped or len(skipped) < MOST_KINDS else OTHER] += 1


def name(value: Any) -> str:
    """The value where it can be a name; else an empty one."""
    text = string(value).strip()
    return text if len(text) <= LONGEST_NAME else ""


def folder(value: Any, skipped: Counter[str] | None = None) -> str:
    """The value where it can be a path; else an empty one, which is counted."""
    text = string(value)
    if len(text) <= LONGEST_PATH:
        return text
    if skipped is not None:
        skipped[LONG_PATH] += 1
    return ""


def title(value: Any) -> str:
    """The value on one line."""
    return " ".join(string(value).split())[:LONGEST_TITLE]


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
            self._add(self._files, folder(file, self._skipped))

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
            file = folder(snippet.file, self._skipped) or None
            fitted = Snippet(text, file, snippet.language, replaced)
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


_MOST_MESSAGES = 200  # of an answer, so that one without an end has parts


class Message(Value):
    """What was said at once, with the tools that were used along with it."""

    id: str
    author: str
    text: str = ""
    at: int | None = None
    model: str | None = None
    files: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    snippets: tuple[Snippet, ...] = ()
    failures: tuple[str, ...] = ()
    is_summary: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.tools or self.snippets or self.failures)


class Setting(Value):
    """What is the same for all turns of a conversation."""

    session: str
    project: str | None = None
    branch: str | None = None
    model: str | None = None  # where the message names none
    part_of: str | None = None
    reader: str | None = None


def belongs(message: Message, answer: Sequence[Message]) -> bool:
    """Whether it goes on with an answer: that has one text, and the uses of tools around it."""
    if not answer or message.author != ASSISTANT or len(answer) == _MOST_MESSAGES:
        return False
    has_text = any(earlier.text for earlier in answer)
    return not (message.text and has_text) and sum(map(_weight, answer)) < MOST_CODE


def turn_of(
    messages: Sequence[Message], key: str, setting: Setting, skipped: Counter[str] | None = None
) -> Turn:
    """The turn that they are together; there is at least one.

    What is too much for a turn is counted as skipped, where the turn is closed.
    """
    begun = Turn(
        key=key,
        session=setting.session,
        author=messages[0].author,
        text="",
        at=next((message.at for message in messages if message.at is not None), None),
        branch=setting.branch,
        model=next((message.model for message in messages if message.model), setting.model),
        is_summary=any(message.is_summary for message in messages),
        part_of=setting.part_of,
        reader=setting.reader,
    )
    turn = OpenTurn(begun, Counter() if skipped is None else skipped)
    for message in messages:
        turn.say(message.text)
        turn.touch(message.files)
        turn.write("", message.snippets)
        for tool in message.tools:
            turn.use(tool)
        for failure in message.failures:
            turn.fail("", failure)
    return turn.turn(setting.project)


def _weight(message: Message) -> int:
    code = sum(len(snippet.text) + len(snippet.replaced or "") for snippet in message.snippets)
    return len(message.text) + code
