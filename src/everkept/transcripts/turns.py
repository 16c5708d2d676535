"""Messages of the programs, joined into turns, with the files and code of tool calls."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from everkept.core.transcripts import ASSISTANT, Snippet, Turn
from everkept.transcripts.source_programs import (
    MAX_CODE_CHARACTERS,
    MAX_FAILURE_CHARACTERS,
    MAX_FAILURES,
    MAX_NAME_CHARACTERS,
    MAX_PATH_CHARACTERS,
    MAX_REPLACED_CHARACTERS,
    MAX_SKIPPED_KINDS,
    MAX_TEXT_CHARACTERS,
    MAX_TITLE_CHARACTERS,
    MAX_TURN_ITEMS,
    WRONG_SHAPE,
    as_list,
    as_mapping,
    as_text,
    deduplicate_texts,
)
from everkept.values import Value, field, replace

_PATCH_BEGIN = "*** Begin Patch"
_PATCH_END = "*** End Patch"
_PATCH_FILE_PREFIXES = ("*** Add File: ", "*** Update File: ", "*** Delete File: ")
_PATCH_MOVE_PREFIX = "*** Move to: "


class Patch(Value, frozen=False):
    """The files and code of a patch, empty if the text contains no patch."""

    files: list[str] = field(default_factory=list[str])
    snippets: list[Snippet] = field(default_factory=list[Snippet])


def parse_patch(text: str) -> Patch:
    """Parse the first patch in a text, which may be a command that applies it."""
    patch = Patch()
    start = text.find(_PATCH_BEGIN)
    if start < 0:
        return patch
    end = text.find(_PATCH_END, start)
    hunk = _Hunk()
    for line in text[start : end if end >= 0 else None].split("\n")[1:]:
        if line.startswith(_PATCH_FILE_PREFIXES):
            hunk = _finish_hunk(patch, hunk, line.partition(": ")[2].strip())
            patch.files.append(hunk.file)
        elif line.startswith(_PATCH_MOVE_PREFIX):
            hunk.file = line.removeprefix(_PATCH_MOVE_PREFIX).strip()
            patch.files.append(hunk.file)
        elif line.startswith("@@"):
            hunk = _finish_hunk(patch, hunk, hunk.file)
        else:
            hunk.add_line(line)
    _finish_hunk(patch, hunk, "")
    return patch


class _Hunk(Value, frozen=False):
    file: str = ""
    old: list[str] = field(default_factory=list[str])
    new: list[str] = field(default_factory=list[str])
    adds: bool = False

    def add_line(self, line: str) -> None:
        sign, rest = line[:1], line[1:]
        if sign == "+":
            self.new.append(rest)
            self.adds = True
        elif sign == "-":
            self.old.append(rest)
        elif sign in (" ", ""):
            self.new.append(rest)
            self.old.append(rest)


def _finish_hunk(patch: Patch, hunk: _Hunk, next_file: str) -> _Hunk:
    if hunk.adds:
        replaced = "\n".join(hunk.old).strip("\n") or None
        patch.snippets.append(Snippet("\n".join(hunk.new).strip("\n"), hunk.file, None, replaced))
    return _Hunk(next_file)


_FILE_ARGUMENT_LIST = """
    file_path absolute_path path target_file targetFile filePath relativeWorkspacePath notebook_path target_notebook
"""
_FILE_ARGUMENTS = tuple(_FILE_ARGUMENT_LIST.split())
_NEW_TEXT_ARGUMENTS = ("new_string", "new_str", "newString")
_OLD_TEXT_ARGUMENTS = ("old_string", "old_str", "oldString")
_WHOLE_TEXT_ARGUMENTS = ("content", "contents", "file_text", "code_edit", "new_source", "streamingContent")


def list_files(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the file or folder that the arguments name, at most one per call."""
    return deduplicate_texts(arguments.get(name) for name in _FILE_ARGUMENTS)[:1]


def list_snippets(arguments: Mapping[str, Any]) -> tuple[Snippet, ...]:
    """Return the code that was written into a file: a whole file, or replacements in it."""
    file = next(iter(list_files(arguments)), None)
    if file is None:
        return ()
    edits = [as_mapping(edit) for edit in as_list(arguments.get("edits"))] or [arguments]
    snippets: list[Snippet] = []
    for edit in edits:
        new = _get_first(edit, _NEW_TEXT_ARGUMENTS) or _get_first(edit, _WHOLE_TEXT_ARGUMENTS)
        if new.strip():
            snippets.append(Snippet(new, file, replaced=_get_first(edit, _OLD_TEXT_ARGUMENTS) or None))
    return tuple(snippets)


def clip_failure(said: str) -> str:
    """Return the beginning of a tool's output, which usually names the error."""
    text = said.strip()
    return text if len(text) <= MAX_FAILURE_CHARACTERS else text[: MAX_FAILURE_CHARACTERS - 1] + "…"


def _get_first(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((text for name in names if (text := as_text(arguments.get(name)))), "")


_OPENING_TAG = re.compile(r"\s*<([\w-]{1,60})[^<>]{0,200}>")


def strip_leading_tags(text: str, tags: Collection[str]) -> str:
    """Return the text after its leading wrapper elements."""
    place = 0
    while (found := _OPENING_TAG.match(text, place)) and found[1] in tags:
        end = text.find(f"</{found[1]}", found.end())
        place = text.find(">", end) + 1
        if end < 0 or not place:
            return ""  # The wrapper was cut off, so no words of a person follow.
    return text[place:].strip()


def strip_tags(text: str, tags: Collection[str]) -> str:
    for tag in tags:
        text = _strip_between(text, f"<{tag}>", f"</{tag}>")
    return text.strip()


def extract_tag_text(text: str, tag: str) -> str:
    start = text.find(f"<{tag}>")
    end = text.find(f"</{tag}>", start)
    return text[start + len(tag) + 2 : end].strip() if 0 <= start < end else ""


def _strip_between(text: str, opening: str, closing: str) -> str:
    kept: list[str] = []
    place = 0
    while (start := text.find(opening, place)) >= 0:
        end = text.find(closing, start)
        if end < 0:
            break
        kept.append(text[place:start])
        place = end + len(closing)
    return "".join([*kept, text[place:]])


CLIPPED_TURN = "rest of a very long turn"
LONG_PATH = "path over 1,000 characters"
OTHER_KIND = "other"
_PARAGRAPH_BREAK = "\n\n"
_KIND_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def count_unknown(skipped: Counter[str], what: str, kind: str) -> None:
    """Count a record of an unknown kind under the name in the transcript.

    The name may be any text, even words of the conversation, so only plausible names count, up to a limit.
    """
    named = f"unknown {what}: {kind}" if _KIND_PATTERN.fullmatch(kind) else f"unknown {what}"
    if not kind:
        named = WRONG_SHAPE
    skipped[named if named in skipped or len(skipped) < MAX_SKIPPED_KINDS else OTHER_KIND] += 1


def as_name(value: Any) -> str:
    """Return the value if it can be a name, otherwise an empty text."""
    text = as_text(value).strip()
    return text if len(text) <= MAX_NAME_CHARACTERS else ""


def as_folder(value: Any, skipped: Counter[str] | None = None) -> str:
    """Return the value if it can be a path. Otherwise count it and return an empty text."""
    text = as_text(value)
    if len(text) <= MAX_PATH_CHARACTERS:
        return text
    if skipped is not None:
        skipped[LONG_PATH] += 1
    return ""


def as_title(value: Any) -> str:
    """Return the value on one line."""
    return " ".join(as_text(value).split())[:MAX_TITLE_CHARACTERS]


class OpenTurn:
    """Builder of a turn. Content beyond the limits is skipped and counted."""

    def __init__(self, turn: Turn, skipped: Counter[str]) -> None:
        self._begun = turn
        self._skipped = skipped
        self._parts: list[str] = []
        self._room = MAX_TEXT_CHARACTERS
        self._code = 0
        self._tools: dict[str, None] = {}
        self._files: dict[str, None] = {}
        self._snippets: list[tuple[str, Snippet]] = []
        self._failures: list[str] = []

    @property
    def has_text(self) -> bool:
        return bool(self._parts)

    def add_text(self, text: str) -> None:
        """Add another paragraph to the text."""
        part = self._clip(text.strip(), self._room)
        if part:
            self._parts.append(part)
            self._room = max(self._room - len(part) - len(_PARAGRAPH_BREAK), 0)

    def add_tool(self, tool: str) -> None:
        self._add_item(self._tools, tool)

    def add_files(self, files: Iterable[str]) -> None:
        for file in files:
            self._add_item(self._files, as_folder(file, self._skipped))

    def add_snippets(self, call: str, snippets: Iterable[Snippet]) -> None:
        for snippet in snippets:
            room = MAX_CODE_CHARACTERS - self._code
            if not room or len(self._snippets) == MAX_TURN_ITEMS:
                self._skipped[CLIPPED_TURN] += 1
                return
            text = self._clip(snippet.text, room)
            replaced = snippet.replaced and snippet.replaced[:MAX_REPLACED_CHARACTERS]
            self._code += len(text)
            file = as_folder(snippet.file, self._skipped) or None
            self._snippets.append((call, Snippet(text, file, snippet.language, replaced)))

    def add_failure(self, call: str, said: str) -> None:
        """Record that the call failed, and drop its code because it wrote nothing."""
        self._snippets = [(by, snippet) for by, snippet in self._snippets if by != call or not call]
        if said and len(self._failures) < MAX_FAILURES:
            self._failures.append(said)

    def build_turn(self, project: str | None) -> Turn:
        """Build the turn in its present state."""
        # Called after each line, but the text seldom grows.
        self._parts = [_PARAGRAPH_BREAK.join(self._parts)] if self._parts else []
        return replace(
            self._begun,
            text="".join(self._parts),
            project=project,
            files=tuple(self._files),
            tools=tuple(self._tools),
            snippets=tuple(snippet for _, snippet in self._snippets),
            failures=tuple(self._failures),
        )

    def _add_item(self, things: dict[str, None], thing: str) -> None:
        if not thing or thing in things:
            return
        if len(things) < MAX_TURN_ITEMS:
            things[thing] = None
        else:
            self._skipped[CLIPPED_TURN] += 1

    def _clip(self, text: str, room: int) -> str:
        if len(text) > room:
            self._skipped[CLIPPED_TURN] += 1
        return text[:room]


_MAX_MESSAGES = 200  # per answer, so that an endless answer is split


class TranscriptMessage(Value):
    """One message and the tools it used."""

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


class ConversationInfo(Value):
    """Properties shared by all turns of a conversation."""

    session: str
    project: str | None = None
    branch: str | None = None
    model: str | None = None  # default for messages without a model
    part_of: str | None = None
    reader: str | None = None


def is_continuation(message: TranscriptMessage, answer: Sequence[TranscriptMessage]) -> bool:
    """Return whether the message continues the answer, which has one text and the tool calls around it."""
    if not answer or message.author != ASSISTANT or len(answer) == _MAX_MESSAGES:
        return False
    has_text = any(earlier.text for earlier in answer)
    return not (message.text and has_text) and sum(map(_count_characters, answer)) < MAX_CODE_CHARACTERS


def join_messages(
    messages: Sequence[TranscriptMessage], key: str, setting: ConversationInfo, skipped: Counter[str] | None = None
) -> Turn:
    """Join messages into a turn. To count content beyond the limits, pass `skipped` when the turn is closed."""
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
        turn.add_text(message.text)
        turn.add_files(message.files)
        turn.add_snippets("", message.snippets)
        for tool in message.tools:
            turn.add_tool(tool)
        for failure in message.failures:
            turn.add_failure("", failure)
    return turn.build_turn(setting.project)


def _count_characters(message: TranscriptMessage) -> int:
    code = sum(len(snippet.text) + len(snippet.replaced or "") for snippet in message.snippets)
    return len(message.text) + code
