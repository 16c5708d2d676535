"""What a tool call says about files and code."""

from collections.abc import Mapping
from typing import Any

from everkept.core.transcripts import Snippet
from everkept.transcripts.fields import listed, mapping, string, unique
from everkept.transcripts.programs import LONGEST_FAILURE
from everkept.values import Value, field

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
