"""Transcripts of other programs: how they are read, and the markers that exclude one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from everkept.values import Value, field

USER = "user"
ASSISTANT = "assistant"

# How far a transcript was read, in its reader's own words; JSON. Whoever reads on from it misses
# nothing and gets nothing twice, but for a turn that was still open.
Mark = Mapping[str, Any]


class Snippet(Value):
    """Code that a tool wrote into a file, with what stood there before."""

    text: str
    file: str | None = None
    language: str | None = None  # where the transcript says so; else the file's name tells it
    replaced: str | None = None


class Turn(Value):
    """What one side said without the other between, and what it did meanwhile.

    `key` is the same whenever it is read, in each copy of it too, and in no other turn of its
    source.
    """

    key: str
    session: str
    author: str
    text: str
    at: int | None = None
    project: str | None = None  # the folder that was worked in
    branch: str | None = None
    model: str | None = None
    files: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    snippets: tuple[Snippet, ...] = ()
    failures: tuple[str, ...] = ()  # what tools said that went wrong, each in a few lines
    is_summary: bool = False  # a program's own summary of what went before
    part_of: str | None = None  # the session that sent an agent to do this
    # Which of a program's own copies of the conversation this is out of, where there may be two
    # whose keys are not the same: `state` or `file`.
    reader: str | None = None


class TitleEvent(Value):
    """What the program calls a conversation."""

    session: str
    title: str


class RewindEvent(Value):
    """This turn, and all that came after it in its conversation, was taken back."""

    session: str
    key: str


class ExclusionEvent(Value):
    """This conversation asks to be left out."""

    session: str


Event = Turn | TitleEvent | RewindEvent | ExclusionEvent


class Portion(Value):
    """Some of a transcript. What is in it and its `mark` are stored together.

    The last one may hold turns that are still open: its mark lies before them, and they come again
    when there is more of them.
    """

    events: tuple[Event, ...]
    mark: Mark
    done: int  # of the transcript's size
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])  # by what was left out
    # Given a mark that does not fit, a reading begins at the start: what of the transcript does
    # not come from there to the last portion is gone from it.
    is_anew: bool = False  # the first of such a reading
    is_last: bool = False  # of a reading, which always has one


class Transcript(Protocol):
    """One conversation, or file of conversations, as it lies there now. Never written to."""

    @property
    def source(self) -> str:
        """The program that keeps it, as in `claude-code`."""
        ...

    @property
    def name(self) -> str:
        """Where it is; no two of a source have the same."""
        ...

    @property
    def size(self) -> int:
        """In bytes, or whatever `done` counts."""
        ...

    @property
    def modified(self) -> int:
        """Microseconds since 1970."""
        ...

    def read_portions(self, mark: Mark | None) -> Iterator[Portion]:
        """What comes after the mark, or all where there is none or it does not fit any more.

        Blocks while it reads. Raises Unavailable where the file cannot be read.
        """
        ...


class Transcripts(Protocol):
    """All that is on this machine."""

    @property
    def sources(self) -> Sequence[str]: ...

    def find_transcripts(self, sources: Sequence[str] = (), files: Sequence[Path] = ()) -> list[Transcript]:
        """Those of the sources, or of all; with `files`, these alone, which one source must have.

        Blocks while it looks. Raises InvalidInput for a source that there is not, NotFound for a
        file that is not there.
        """
        ...


_MARKER = re.compile(
    r"<\s*INSTRUCTIONS-TO-EPISODIC-MEMORY\s*>\s*DO\s+NOT\s+INDEX\s+THIS\s+CHAT\s*"
    r"<\s*/\s*INSTRUCTIONS-TO-EPISODIC-MEMORY\s*>"
    r"|<!--\s*everkept\s*:\s*do\s+not\s+index\s*-->",
    re.IGNORECASE,
)
_BEGINS = re.compile(r"<\s*instructions-to-ep|<!--\s*everkept", re.IGNORECASE)
_WORDS = (b"everkept", b"instructions-to-episodic-memory")  # one is in each marker
# Sought from where a row of backslashes begins: from each of them would take the square of it.
_ESCAPE = re.compile(r"(?<!\\)\\++(?:u00([2-7][0-9a-fA-F])|([nrtbf])|(?=[/\"]))")


def has_marker(text: str) -> bool:
    """Whether it asks to be left out, in a quotation too: nobody can tell that from a wish."""
    return "<" in text and bool(_BEGINS.search(text)) and bool(_MARKER.search(text))


def has_marker_in_json(raw: bytes) -> bool:
    """The same of JSON, or of JSON inside JSON, however it is escaped."""
    folded = raw.lower()
    if not any(word in folded for word in _WORDS):
        return False
    text = raw.decode("utf-8", "replace")
    return has_marker(_ESCAPE.sub(_decode_escape, text) if "\\" in text else text)


def _decode_escape(escape: re.Match[str]) -> str:
    code, blank = escape.groups()
    return chr(int(code, 16)) if code else " " if blank else ""
