"""What a transcript says, ready to be stored: texts, and turns with their marks and code."""

import re
from functools import lru_cache
from typing import Any

from everkept.core.secrets import mask_text
from everkept.core.transcripts import ASSISTANT, Snippet, Turn, has_marker
from everkept.families.history.code_languages import detect_language, find_tag_file
from everkept.families.history.model import DECISION, SAID, SUMMARY, build_code_id, build_conversation_id, build_turn_id
from everkept.language.sentences import CodeBlock, has_fix, has_problem, is_decision, list_blocks
from everkept.values import Value, field

MAX_TEXT_CHARACTERS = 200_000  # characters of a turn; more is what a machine wrote
MAX_CODE_CHARACTERS = 100_000
MAX_REPLACED_CHARACTERS = 2_000
MAX_NAME_CHARACTERS = 1_000  # of a file, a folder, a session
MAX_TITLE_CHARACTERS = 200
MAX_FAILURE_CHARACTERS = 400  # enough to know an error by
MAX_OPENING_CHARACTERS = 80  # of the first turn, by which a conversation is called
ELLIPSIS = "…"

# What is looked at beyond a limit: masks are shorter than most secrets, so more may fit.
_SPARE_CHARACTERS = 10_000
# Colours of terminals, characters that nobody can see, and halves of characters.
_INVALID_CHARACTERS = re.compile("\x1b\\[[0-9;?]{0,40}[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+|[\ud800-\udfff]|\r\n?")
_MASK = re.compile(r"\[masked: [a-z ]{1,40}\]")
_MAX_MASK_CHARACTERS = 60
_WHITESPACE = re.compile(r"\s+")


def clean_text(text: str) -> str:
    """With line feeds alone between lines, and nothing that a database refuses."""
    return _INVALID_CHARACTERS.sub(_replace_invalid, text) if _INVALID_CHARACTERS.search(text) else text


def _replace_invalid(found: re.Match[str]) -> str:
    sign = found.group()
    if sign[0] == "\r":
        return "\n"
    return "\ufffd" if "\ud800" <= sign <= "\udfff" else ""


def shorten(text: str, limit: int) -> str:
    """The beginning; what stands for a secret stays whole or goes."""
    if len(text) <= limit:
        return text
    end = limit - len(ELLIPSIS)
    for mask in _MASK.finditer(text, max(0, end - _MAX_MASK_CHARACTERS), end + _MAX_MASK_CHARACTERS):
        if mask.start() < end < mask.end():
            end = mask.start()
    return text[:end] + ELLIPSIS


def build_default_title(text: str) -> str:
    """What a conversation is called that begins with it: some words, on one line."""
    return shorten(_WHITESPACE.sub(" ", text[: 4 * MAX_OPENING_CHARACTERS]).strip(), MAX_OPENING_CHARACTERS)


class TextCleaner(Value, frozen=False):
    """Cleans texts, masks their secrets where that is wished, and notes what it did.

    Secrets are masked first and the rest is cut off then: nobody knows half a secret for one.
    """

    masks: bool
    kinds: list[str] = field(default_factory=list[str])
    cut: int = 0  # texts that were too long

    def __call__(self, text: str, limit: int) -> str:
        whole = clean_text(text)
        text = whole[: max(2 * limit, limit + _SPARE_CHARACTERS)]
        is_cut = len(text) < len(whole)
        if self.masks:
            text, kinds = mask_text(text)
            self.kinds += kinds
        if is_cut and len(text) <= limit:
            text = _drop_last_word(text) + ELLIPSIS
        is_cut = is_cut or len(text) > limit
        self.cut += is_cut
        return shorten(text, limit)

    def clean_name(self, text: str | None) -> str | None:
        """Of something that many turns name."""
        if not text:
            return None
        found, kinds = _mask_name(text) if self.masks else (clean_text(text), ())
        self.kinds += kinds
        return shorten(found, MAX_NAME_CHARACTERS)


@lru_cache(8_192)
def _mask_name(text: str) -> tuple[str, tuple[str, ...]]:
    found, kinds = mask_text(clean_text(text[:_SPARE_CHARACTERS]))
    return found, tuple(kinds)


def _drop_last_word(text: str) -> str:
    """It may be half a secret."""
    return text[: -len(text.split()[-1])] if text.split() else ""


MAX_CODE_PIECES = 200  # pieces of one turn
MAX_NAMES = 100  # files, and tools, of one turn
TEXT_LANGUAGE = "text"  # the language of what a program printed


class CodePiece(Value):
    """Code of a turn, in a fenced block or written by a tool."""

    id: str
    text: str
    language: str | None
    file: str | None
    change: str
    replaced: str | None = None


class PreparedTurn(Value):
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
    pieces: tuple[CodePiece, ...]
    is_marked: bool
    is_whole: bool  # nothing but what was said is in its text
    reader: str | None
    # The folder and the files as they are called there, to see whether they are excluded.
    place: str | None
    files: tuple[str, ...]
    masked: tuple[str, ...]
    cut: int  # texts of which only the beginning is kept


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
        words=_find_title_words(turn, said),
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


def _find_title_words(turn: Turn, text: str) -> str | None:
    if turn.author == ASSISTANT or turn.is_summary:
        return None
    return build_default_title(text) or None


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
    """Blocks have even numbers and edits odd ones: a turn that grows leaves each its own."""
    found = [_build_block_piece(block, build_code_id(record_id, 2 * n)) for n, block in enumerate(list_blocks(text))]
    edits = [
        _build_edit_piece(snippet, build_code_id(record_id, 2 * n + 1), cleaner)
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
