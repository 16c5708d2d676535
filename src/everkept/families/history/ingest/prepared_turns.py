"""What a transcript says, ready to be stored: texts, and turns with their marks and code."""

import re
from functools import lru_cache
from typing import Any

from everkept.core.secrets import masked
from everkept.core.transcripts import ASSISTANT, Snippet, Turn, has_marker
from everkept.families.history.code_languages import file_in, language_of
from everkept.families.history.model import (
    DECISION,
    SAID,
    SUMMARY,
    code_id,
    conversation_id,
    turn_id,
)
from everkept.language.sentences import Block, blocks, has_fix, has_problem, is_decision
from everkept.values import Value, field

LONGEST_TEXT = 200_000  # characters of a turn; more is what a machine wrote
LONGEST_CODE = 100_000
LONGEST_REPLACED = 2_000
LONGEST_NAME = 1_000  # of a file, a folder, a session
LONGEST_TITLE = 200
LONGEST_FAILURE = 400  # enough to know an error by
NAME_WORDS = 80  # of the first turn, by which a conversation is called
CUT = "…"

# What is looked at beyond a limit: masks are shorter than most secrets, so more may fit.
_SPARE = 10_000
# Colours of terminals, characters that nobody can see, and halves of characters.
_UNFIT = re.compile(
    "\x1b\\[[0-9;?]{0,40}[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+|[\ud800-\udfff]|\r\n?"
)
_MASK = re.compile(r"\[masked: [a-z ]{1,40}\]")
_LONGEST_MASK = 60
_BLANKS = re.compile(r"\s+")


def clean(text: str) -> str:
    """With line feeds alone between lines, and nothing that a database refuses."""
    return _UNFIT.sub(_fit, text) if _UNFIT.search(text) else text


def _fit(found: re.Match[str]) -> str:
    sign = found.group()
    if sign[0] == "\r":
        return "\n"
    return "\ufffd" if "\ud800" <= sign <= "\udfff" else ""


def shortened(text: str, limit: int) -> str:
    """The beginning; what stands for a secret stays whole or goes."""
    if len(text) <= limit:
        return text
    end = limit - len(CUT)
    for mask in _MASK.finditer(text, max(0, end - _LONGEST_MASK), end + _LONGEST_MASK):
        if mask.start() < end < mask.end():
            end = mask.start()
    return text[:end] + CUT


def opening(text: str) -> str:
    """What a conversation is called that begins with it: some words, on one line."""
    return shortened(_BLANKS.sub(" ", text[: 4 * NAME_WORDS]).strip(), NAME_WORDS)


class Cleaner(Value, frozen=False):
    """Cleans texts, masks their secrets where that is wished, and notes what it did.

    Secrets are masked first and the rest is cut off then: nobody knows half a secret for one.
    """

    masks: bool
    kinds: list[str] = field(default_factory=list[str])
    cut: int = 0  # texts that were too long

    def __call__(self, text: str, limit: int) -> str:
        whole = clean(text)
        text = whole[: max(2 * limit, limit + _SPARE)]
        is_cut = len(text) < len(whole)
        if self.masks:
            text, kinds = masked(text)
            self.kinds += kinds
        if is_cut and len(text) <= limit:
            text = _without_last_word(text) + CUT
        is_cut = is_cut or len(text) > limit
        self.cut += is_cut
        return shortened(text, limit)

    def name(self, text: str | None) -> str | None:
        """Of something that many turns name."""
        if not text:
            return None
        found, kinds = _masked_name(text) if self.masks else (clean(text), ())
        self.kinds += kinds
        return shortened(found, LONGEST_NAME)


@lru_cache(8_192)
def _masked_name(text: str) -> tuple[str, tuple[str, ...]]:
    found, kinds = masked(clean(text[:_SPARE]))
    return found, tuple(kinds)


def _without_last_word(text: str) -> str:
    """It may be half a secret."""
    return text[: -len(text.split()[-1])] if text.split() else ""


MOST_CODE = 200  # pieces of one turn
MOST_NAMED = 100  # files, and tools, of one turn
TEXT = "text"  # the language of what a program printed


class Piece(Value):
    """Code of a turn, in a fenced block or written by a tool."""

    id: str
    text: str
    language: str | None
    file: str | None
    change: str
    replaced: str | None = None


class Said(Value):
    """A turn that can be kept. What it does not know itself is None."""

    id: str
    conversation: str
    parent: str | None  # the conversation that sent an agent
    session: str | None
    author: str | None
    type: str
    text: str
    words: str | None  # what a conversation that begins with it is called
    at: int | None
    project: str | None
    branch: str | None
    facets: dict[str, Any]
    pieces: tuple[Piece, ...]
    is_marked: bool
    is_whole: bool  # nothing but what was said is in its text
    reader: str | None
    # The folder and the files as they are called there, to see whether they are excluded.
    place: str | None
    files: tuple[str, ...]
    masked: tuple[str, ...]
    cut: int  # texts of which only the beginning is kept


def made_ready(turn: Turn, source: str, *, masks: bool) -> Said:
    cleaner = Cleaner(masks)
    record_id = turn_id(source, turn.key)
    said = cleaner(turn.text, LONGEST_TEXT)
    failures = [
        shortened(cleaner(failure.strip(), LONGEST_REPLACED), LONGEST_FAILURE)
        for failure in turn.failures
    ]
    pieces = tuple(_pieces(turn, record_id, said, cleaner))
    facets = _facets(turn, source, said, cleaner)
    return Said(
        id=record_id,
        conversation=conversation_id(source, turn.session),
        parent=conversation_id(source, turn.part_of) if turn.part_of else None,
        session=cleaner.name(turn.session),
        author=cleaner.name(turn.author),
        type=_type(turn, said),
        text="\n".join((said, *(f"[error] {failure}" for failure in failures))).lstrip("\n"),
        words=_words(turn, said),
        at=turn.at,
        project=cleaner.name(turn.project),
        branch=facets.get("branch"),
        facets=facets,
        pieces=pieces,
        is_marked=has_marker(turn.text),
        is_whole=not failures,
        reader=turn.reader,
        place=turn.project,
        files=(*turn.files, *(each.file for each in turn.snippets if each.file)),
        masked=tuple(cleaner.kinds),
        cut=cleaner.cut,
    )


def _type(turn: Turn, text: str) -> str:
    if turn.is_summary:
        return SUMMARY
    return DECISION if is_decision(text) else SAID


def _words(turn: Turn, text: str) -> str | None:
    if turn.author == ASSISTANT or turn.is_summary:
        return None
    return opening(text) or None


def _facets(turn: Turn, source: str, text: str, cleaner: Cleaner) -> dict[str, Any]:
    facets: dict[str, Any] = {
        "source": source,
        "branch": cleaner.name(turn.branch),
        "model": cleaner.name(turn.model),
        "files": _named(turn.files, cleaner),
        "tools": _named(turn.tools, cleaner),
        "problem": bool(turn.failures) or has_problem(text),
        "fix": has_fix(text),
        "part_of": cleaner.name(turn.part_of),
    }
    return {name: value for name, value in facets.items() if value}


def _named(names: tuple[str, ...], cleaner: Cleaner) -> list[str]:
    found = (cleaner.name(name) for name in tuple(dict.fromkeys(names))[:MOST_NAMED])
    return [name for name in found if name]


def _pieces(turn: Turn, record_id: str, text: str, cleaner: Cleaner) -> list[Piece]:
    """Blocks have even numbers and edits odd ones: a turn that grows leaves each its own."""
    found = [_block(block, code_id(record_id, 2 * n)) for n, block in enumerate(blocks(text))]
    edits = [
        _edit(snippet, code_id(record_id, 2 * n + 1), cleaner)
        for n, snippet in enumerate(turn.snippets[:MOST_CODE])
        if snippet.text.strip()
    ]
    return [*found[:MOST_CODE], *edits]


def _block(block: Block, piece_id: str) -> Piece:
    file = file_in(block.info)
    language = TEXT if block.is_output else language_of(block.info or None, file)
    return Piece(piece_id, block.text[:LONGEST_CODE], language, file, "block")


def _edit(snippet: Snippet, piece_id: str, cleaner: Cleaner) -> Piece:
    return Piece(
        piece_id,
        cleaner(snippet.text, LONGEST_CODE),
        language_of(snippet.language, snippet.file),
        cleaner.name(snippet.file),
        "edit",
        cleaner(snippet.replaced, LONGEST_REPLACED) if snippet.replaced else None,
    )
