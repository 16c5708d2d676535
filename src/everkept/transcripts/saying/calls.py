"""What a call of a tool says about files and code, by the names that arguments have everywhere."""

from collections.abc import Mapping
from typing import Any

from everkept.core.transcripts import Snippet
from everkept.transcripts.limits import LONGEST_FAILURE
from everkept.transcripts.reading.fields import listed, mapping, string, unique

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
