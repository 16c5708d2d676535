"""Turns of a transcript, prepared for storage: cleaned texts, with their properties and code."""

import re
from functools import lru_cache
from typing import Any

from everkept.core.secrets import mask_text
from everkept.core.transcripts import ASSISTANT, Snippet, Turn, has_marker
from everkept.families.history.code_languages import detect_language, find_tag_file
from everkept.families.history.model import (
    DECISION,
    SAID,
    SUMMARY,
    build_block_id,
    build_conversation_id,
    build_edit_id,
    build_turn_id,
)
from everkept.language.sentences import CodeBlock, has_fix, has_problem, is_decision, list_blocks
from everkept.values import Value, field

MAX_TEXT_CHARACTERS = 200_000  # of a turn; a longer text is machine output
MAX_CODE_CHARACTERS = 100_000
MAX_REPLACED_CHARACTERS = 2_000
MAX_NAME_CHARACTERS = 1_000  # of a file, a folder or a session
MAX_TITLE_CHARACTERS = 200
MAX_FAILURE_CHARACTERS = 400  # enough to recognize an error
MAX_OPENING_CHARACTERS = 80  # of the first turn, as the title of a conversation
ELLIPSIS = "…"

# Text beyond the limit that is also masked. Masks are shorter than most secrets, so more text may fit afterwards.
_SPARE_CHARACTERS = 10_000
# Color codes of terminals, control characters, unpaired surrogates and carriage returns.
_INVALID_CHARACTERS = re.compile("\x1b\\[[0-9;?]{0,40}[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+|[\ud800-\udfff]|\r\n?")
_MASK = re.compile(r"\[masked: [a-z ]{1,40}\]")
_MAX_MASK_CHARACTERS = 60
_WHITESPACE = re.compile(r"\s+")


def clean_text(text: str) -> str:
    """Return the text with line feeds as the only line breaks, and without characters that a database rejects."""
    return _INVALID_CHARACTERS.sub(_replace_invalid, text) if _INVALID_CHARACTERS.search(text) else text


def _replace_invalid(found: re.Match[str]) -> str:
    sign = found.group()
    if sign[0] == "\r":
        return "\n"
    return "\ufffd" if "\ud800" <= sign <= "\udfff" else ""


def shorten(text: str, limit: int) -> str:
    """Return the beginning of the text. A mask at the cut is removed completely."""
    if len(text) <= limit:
        return text
    end = limit - len(ELLIPSIS)
    for mask in _MASK.finditer(text, max(0, end - _MAX_MASK_CHARACTERS), end + _MAX_MASK_CHARACTERS):
        if mask.start() < end < mask.end():
            end = mask.start()
    return text[:end] + ELLIPSIS


def build_default_title(text: str) -> str:
    """Return the title of a conversation that begins with this text: some words on one line."""
    return shorten(_WHITESPACE.sub(" ", text[: 4 * MAX_OPENING_CHARACTERS]).strip(), MAX_OPENING_CHARACTERS)


class TextCleaner(Value, frozen=False):
    """Cleaner that masks secrets if requested. It masks before it cuts, because a cut secret is not recognized."""

    masks: bool
    kinds: list[str] = field(default_factory=list[str])
    cut: int = 0  # number of texts that were too long

    def __call__(self, text: str, limit: int) -> str:
        whole = clean_text(text)
        text = whole[: max(2 * limit, limit + _SPARE_CHARACTERS)]
        is_cut = len(text) < len(whole)
        if self.masks:
            text, kinds = mask_text(text)
            self.kinds += kinds
        if is_cut and len(text) <= limit:
            words = text.split()  # the last one may be a truncated secret
            text = (text[: -len(words[-1])] if words else "") + ELLIPSIS
        is_cut = is_cut or len(text) > limit
        self.cut += is_cut
        return shorten(text, limit)

    def clean_name(self, text: str | None) -> str | None:
        """Clean a name that many turns share. Results are cached."""
        if not text:
            return None
        found, kinds = _mask_name(text) if self.masks else (clean_text(text), ())
        self.kinds += kinds
        return shorten(found, MAX_NAME_CHARACTERS)


@lru_cache(8_192)
def _mask_name(text: str) -> tuple[str, tuple[str, ...]]:
    found, kinds = mask_text(clean_text(text[:_SPARE_CHARACTERS]))
    return found, tuple(kinds)


MAX_CODE_PIECES = 200  # per turn
MAX_NAMES = 100  # of files, and of tools, per turn
TEXT_LANGUAGE = "text"  # the language of program output


class CodePiece(Value):
    """Code of a turn, from a fenced block or a tool call."""

    id: str
    text: str
    language: str | None
    file: str | None
    change: str
    replaced: str | None = None


class PreparedTurn(Value):
    """A turn that is ready to be stored. Unknown values are None."""

    id: str
    conversation: str
    parent: str | None  # the conversation that started the agent
    session: str | None
    author: str | None
    type: str
    text: str
    words: str | None  # the title of a conversation that begins with this turn
    at: int | None
    project: str | None
    branch: str | None
    facets: dict[str, Any]
    pieces: tuple[CodePiece, ...]
    is_marked: bool = False
    is_whole: bool = True  # the text contains only what was said, without errors
    reader: str | None = None
    # The original folder and files, to check whether they are excluded.
    place: str | None = None
    files: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    cut: int = 0  # number of texts that were shortened


def prepare_turn(turn: Turn, source: str, *, masks: bool) -> PreparedTurn:
    cleaner = TextCleaner(masks)
    record_id = build_turn_id(source, turn.key)
    said = cleaner(turn.text, MAX_TEXT_CHARACTERS)
    failures = [
        shorten(cleaner(failure.strip(), MAX_REPLACED_CHARACTERS), MAX_FAILURE_CHARACTERS) for failure in turn.failures
    ]
    pieces = tuple(_build_pieces(turn, record_id, said, cleaner))
    facets = _build_facets(turn, source, said, cleaner)
    return PreparedTurn(
        id=record_id,
        conversation=build_conversation_id(source, turn.session),
        parent=build_conversation_id(source, turn.part_of) if turn.part_of else None,
        session=cleaner.clean_name(turn.session),
        author=cleaner.clean_name(turn.author),
        type=_get_type(turn, said),
        text="\n".join((said, *(f"[error] {failure}" for failure in failures))).lstrip("\n"),
        words=None if turn.author == ASSISTANT or turn.is_summary else build_default_title(said) or None,
        at=turn.at,
        project=cleaner.clean_name(turn.project),
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


def _get_type(turn: Turn, text: str) -> str:
    if turn.is_summary:
        return SUMMARY
    return DECISION if is_decision(text) else SAID


def _build_facets(turn: Turn, source: str, text: str, cleaner: TextCleaner) -> dict[str, Any]:
    facets: dict[str, Any] = {
        "source": source,
        "branch": cleaner.clean_name(turn.branch),
        "model": cleaner.clean_name(turn.model),
        "files": _clean_names(turn.files, cleaner),
        "tools": _clean_names(turn.tools, cleaner),
        "problem": bool(turn.failures) or has_problem(text),
        "fix": has_fix(text),
        "part_of": cleaner.clean_name(turn.part_of),
    }
    return {name: value for name, value in facets.items() if value}


def _clean_names(names: tuple[str, ...], cleaner: TextCleaner) -> list[str]:
    found = (cleaner.clean_name(name) for name in tuple(dict.fromkeys(names))[:MAX_NAMES])
    return [name for name in found if name]


def _build_pieces(turn: Turn, record_id: str, text: str, cleaner: TextCleaner) -> list[CodePiece]:
    found = [_build_block_piece(block, build_block_id(record_id, n)) for n, block in enumerate(list_blocks(text))]
    edits = [
        _build_edit_piece(snippet, build_edit_id(record_id, n), cleaner)
        for n, snippet in enumerate(turn.snippets[:MAX_CODE_PIECES])
        if snippet.text.strip()
    ]
    return [*found[:MAX_CODE_PIECES], *edits]


def _build_block_piece(block: CodeBlock, piece_id: str) -> CodePiece:
    file = find_tag_file(block.info)
    language = TEXT_LANGUAGE if block.is_output else detect_language(block.info or None, file)
    return CodePiece(piece_id, block.text[:MAX_CODE_CHARACTERS], language, file, "block")


def _build_edit_piece(snippet: Snippet, piece_id: str, cleaner: TextCleaner) -> CodePiece:
    return CodePiece(
        piece_id,
        cleaner(snippet.text, MAX_CODE_CHARACTERS),
        detect_language(snippet.language, snippet.file),
        cleaner.clean_name(snippet.file),
        "edit",
        cleaner(snippet.replaced, MAX_REPLACED_CHARACTERS) if snippet.replaced else None,
    )
