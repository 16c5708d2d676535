"""What a transcript says, made ready to be kept: a turn with its marks and its code."""

from dataclasses import dataclass
from typing import Any

from recollect.core.text import clipped
from recollect.core.transcripts import ASSISTANT, Snippet, Turn
from recollect.families.history.code.languages import file_in, language_of
from recollect.families.history.importing.decisions import is_decision
from recollect.families.history.importing.exclusion import has_marker
from recollect.families.history.importing.fences import Block, blocks
from recollect.families.history.importing.problems import has_fix, has_problem
from recollect.families.history.importing.texts import (
    LONGEST_CODE,
    LONGEST_REPLACED,
    LONGEST_TEXT,
    Cleaner,
    clean,
)
from recollect.families.history.model import (
    DECISION,
    SAID,
    SUMMARY,
    code_id,
    conversation_id,
    turn_id,
)

MOST_CODE = 200  # pieces of one turn
MOST_NAMED = 100  # files, and tools, of one turn
NAME_WORDS = 80  # characters of the first turn that name a conversation
TEXT = "text"  # the language of what a program printed


@dataclass(frozen=True, slots=True)
class Piece:
    """Code of a turn, in a fenced block or written by a tool."""

    id: str
    text: str
    language: str | None
    file: str | None
    change: str
    replaced: str | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A turn that can be kept. What it does not know itself is None."""

    id: str
    conversation: str
    parent: str | None  # the conversation that sent an agent
    session: str
    author: str
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
    masked: tuple[str, ...]
    cut: int  # texts of which only the beginning is kept


def made_ready(turn: Turn, source: str, *, masks: bool) -> Said:
    cleaner = Cleaner(masks)
    record_id = turn_id(source, turn.key)
    said = cleaner(turn.text, LONGEST_TEXT)
    failures = [cleaner(failure.strip(), LONGEST_REPLACED) for failure in turn.failures]
    return Said(
        id=record_id,
        conversation=conversation_id(source, turn.session),
        parent=conversation_id(source, turn.part_of) if turn.part_of else None,
        session=clean(turn.session),
        author=clean(turn.author),
        type=_type(turn, said),
        text="\n".join((said, *(f"[error] {failure}" for failure in failures))).lstrip("\n"),
        words=_words(turn, said),
        at=turn.at,
        project=clean(turn.project) if turn.project else None,
        branch=clean(turn.branch) if turn.branch else None,
        facets=_facets(turn, source, said, has_failed=bool(failures)),
        pieces=tuple(_pieces(turn, record_id, said, cleaner)),
        is_marked=has_marker(turn.text),
        is_whole=not failures,
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
    return clipped(text[: 4 * NAME_WORDS], NAME_WORDS) or None


def _facets(turn: Turn, source: str, text: str, *, has_failed: bool) -> dict[str, Any]:
    facets: dict[str, Any] = {
        "source": source,
        "branch": clean(turn.branch) if turn.branch else None,
        "model": clean(turn.model) if turn.model else None,
        "files": _named(turn.files),
        "tools": _named(turn.tools),
        "problem": has_failed or has_problem(text),
        "fix": has_fix(text),
        "part_of": clean(turn.part_of) if turn.part_of else None,
    }
    return {name: value for name, value in facets.items() if value}


def _named(names: tuple[str, ...]) -> list[str]:
    return [clean(name) for name in dict.fromkeys(names)][:MOST_NAMED]


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
    file = clean(snippet.file) if snippet.file else None
    return Piece(
        piece_id,
        cleaner(snippet.text, LONGEST_CODE),
        language_of(snippet.language, file),
        file,
        "edit",
        cleaner(snippet.replaced, LONGEST_REPLACED) if snippet.replaced else None,
    )
