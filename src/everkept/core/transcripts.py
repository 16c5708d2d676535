"""Port to transcripts of other programs, and the markers that exclude one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from everkept.values import Value, field

USER = "user"
ASSISTANT = "assistant"

# Position in a transcript, in JSON of its reader. Reading from it misses and repeats nothing, except an unfinished
# turn.
Mark = Mapping[str, Any]


class Snippet(Value):
    """Code that a tool wrote into a file, with the code it replaced."""

    text: str
    file: str | None = None
    language: str | None = None  # if the transcript names it; otherwise the file name shows it
    replaced: str | None = None


class Turn(Value):
    """Words and actions of one side without a reply in between.

    `key` is the same for every reading and every copy, and unique in the source.
    """

    key: str
    session: str
    author: str
    text: str
    at: int | None = None
    project: str | None = None  # the working folder
    branch: str | None = None
    model: str | None = None
    files: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    snippets: tuple[Snippet, ...] = ()
    failures: tuple[str, ...] = ()  # errors of tools, a few lines each
    is_summary: bool = False  # a program's own summary of earlier turns
    part_of: str | None = None  # the session that started this agent
    # The program's copy of the conversation that has this turn, if there may be two with different keys: `state` or
    # `file`.
    reader: str | None = None


class TitleEvent(Value):
    """Title that the program gave to a conversation."""

    session: str
    title: str


class RewindEvent(Value):
    """Removal of this turn and all later ones of its conversation."""

    session: str
    key: str


class ExclusionEvent(Value):
    """Request to exclude this conversation."""

    session: str


Event = Turn | TitleEvent | RewindEvent | ExclusionEvent


class Portion(Value):
    """Part of a transcript. Its content and its `mark` are stored together.

    The last one may contain unfinished turns. Its mark is before them, so they come again when they have grown.
    """

    events: tuple[Event, ...]
    mark: Mark
    done: int  # of the transcript's size
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])  # by reason
    # With an invalid mark, reading begins at the start. Stored turns of the transcript that do not come again by the
    # last portion no longer exist in it.
    is_anew: bool = False  # the first portion of such a reading
    is_last: bool = False  # of a reading, which always has a last portion


class Transcript(Protocol):
    """One conversation, or file of conversations, in its current state. Opened read-only."""

    @property
    def source(self) -> str:
        """Return the program that writes it, such as `claude-code`."""
        ...

    @property
    def name(self) -> str:
        """Return its place, which is unique in the source."""
        ...

    @property
    def size(self) -> int:
        """Return its size in bytes, or in the unit of `done`."""
        ...

    @property
    def modified(self) -> int:
        """Return its time of change in microseconds since 1970."""
        ...

    def read_portions(self, mark: Mark | None) -> Iterator[Portion]:
        """Read what follows the mark, or everything without a valid mark.

        Blocks. Raises Unavailable if the file cannot be read.
        """
        ...


class Transcripts(Protocol):
    """All transcripts on this machine."""

    @property
    def sources(self) -> Sequence[str]: ...

    def find_transcripts(self, sources: Sequence[str] = (), files: Sequence[Path] = ()) -> list[Transcript]:
        """Find the transcripts of these sources, or of all. With `files`, only these, which must belong to one source.

        Blocks. Raises InvalidInput for an unknown source, NotFound for a missing file.
        """
        ...


_MARKER = re.compile(
    r"<\s*INSTRUCTIONS-TO-EPISODIC-MEMORY\s*>\s*DO\s+NOT\s+INDEX\s+THIS\s+CHAT\s*"
    r"<\s*/\s*INSTRUCTIONS-TO-EPISODIC-MEMORY\s*>"
    r"|<!--\s*everkept\s*:\s*do\s+not\s+index\s*-->",
    re.IGNORECASE,
)
_BEGINS = re.compile(r"<\s*instructions-to-ep|<!--\s*everkept", re.IGNORECASE)
_WORDS = (b"everkept", b"instructions-to-episodic-memory")  # each marker contains one of them
# Matches from the start of a row of backslashes, because matching from each of them takes quadratic time.
_ESCAPE = re.compile(r"(?<!\\)\\++(?:u00([2-7][0-9a-fA-F])|([nrtbf])|(?=[/\"]))")


def has_marker(text: str) -> bool:
    """Return whether the text asks to be excluded. A quotation counts too, because it cannot be distinguished."""
    return "<" in text and bool(_BEGINS.search(text)) and bool(_MARKER.search(text))


def has_marker_in_json(raw: bytes) -> bool:
    """Return the same for JSON, or JSON inside JSON, with any escapes."""
    folded = raw.lower()
    if not any(word in folded for word in _WORDS):
        return False
    text = raw.decode("utf-8", "replace")
    return has_marker(_ESCAPE.sub(_decode_escape, text) if "\\" in text else text)


def _decode_escape(escape: re.Match[str]) -> str:
    code, blank = escape.groups()
    return chr(int(code, 16)) if code else " " if blank else ""
