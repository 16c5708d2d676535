"""What a transcript says, made ready to be kept: a turn with its marks and its code."""

from typing import Any

from everkept.core.transcripts import ASSISTANT, Snippet, Turn, has_marker
from everkept.families.history.code.languages import file_in, language_of
from everkept.families.history.importing.texts import (
    LONGEST_CODE,
    LONGEST_FAILURE,
    LONGEST_REPLACED,
    LONGEST_TEXT,
    Cleaner,
    opening,
    shortened,
)
from everkept.families.history.model import (
    DECISION,
    SAID,
    SUMMARY,
    code_id,
    conversation_id,
    turn_id,
)
from everkept.language.phrases import has_fix, has_problem, is_decision
from everkept.language.sentences import Block, blocks
from everkept.values import Value

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
