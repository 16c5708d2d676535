"""Conversion of hits to results: excerpts, highlights and adjacent turns."""

import asyncio
import re
from collections.abc import Mapping, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.core.text import clip_text
from everkept.core.times import format_iso
from everkept.families.history.model import CODE, CONVERSATION, DECISION, TURN
from everkept.families.history.relevance import blank_masks, parse_query, round_score
from everkept.families.history.search_answers import (
    LOCAL_SOURCE,
    MemoryResult,
    ProblemResolution,
    ResultType,
    TurnContext,
    flatten_code,
)
from everkept.language.sentences import split_sentences
from everkept.language.telling_words import list_stems
from everkept.retrieval.excerpts import StemSearch, select_excerpt
from everkept.retrieval.profile import SearchHit
from everkept.values import Value, field, replace

NO_TURNS: Mapping[int, Record] = {}
FIRST_TURNS = 4  # turns of a conversation in which usually everyone has spoken


class NearbyTurns(Value):
    """Turns by conversation and position, and conversations by id."""

    turns: Mapping[str, Mapping[int, Record]] = field(default_factory=dict[str, Mapping[int, Record]])
    conversations: Mapping[str, Record] = field(default_factory=dict[str, Record])
    turns_of_code: Mapping[str, Record] = field(default_factory=dict[str, Record])

    def find_turn(self, record: Record) -> Record | None:
        """Return the turn itself, or the turn that contains the code."""
        return record if record.kind == TURN else self.turns_of_code.get(record.parent or "")

    def find_neighbor(self, turn: Record | None, step: int) -> Record | None:
        if turn is None or turn.position is None:
            return None
        return self.turns.get(turn.parent or "", NO_TURNS).get(turn.position + step)

    def list_participants(self, turn: Record | None) -> list[str]:
        """Return the authors of the known turns of a conversation, in order of speaking."""
        known = self.turns.get((turn.parent if turn else None) or "", NO_TURNS)
        return list(dict.fromkeys(a for place in sorted(known) if (a := known[place].author)))

    def find_conversation(self, turn: Record | None) -> Record | None:
        return None if turn is None else self.conversations.get(turn.parent or "")


async def read_nearby_turns(store: RecordStore, records: Sequence[Record], *, beside: bool = True) -> NearbyTurns:
    """Read the turns and conversations of the records. With `beside`, add adjacent and first turns."""
    parents = [record.parent for record in records if record.kind == CODE and record.parent]
    of_code = {turn.id: turn for turn in await store.get(parents)} if parents else {}
    turns = [*(record for record in records if record.kind == TURN), *of_code.values()]
    ids = list(dict.fromkeys(turn.parent for turn in turns if turn.parent))
    around, known = await asyncio.gather(_read_neighbors(store, turns if beside else ()), store.get(ids))
    conversations = {record.id: record for record in known if record.kind == CONVERSATION}
    return NearbyTurns(around, conversations, of_code)


async def read_turns_between(
    store: RecordStore, conversation: str, session: str, first: int, last: int
) -> list[Record]:
    """Read the turns of a conversation between two positions, in order."""
    places = tuple((session, position) for position in range(max(first, 0), last + 1))
    # Another program may use the same session id.
    found = [turn for turn in await _read_at(store, places) if turn.parent == conversation]
    return sorted(found, key=lambda turn: (turn.position or 0, turn.id))


async def _read_neighbors(store: RecordStore, turns: Sequence[Record]) -> dict[str, dict[int, Record]]:
    """Read the turns, their adjacent ones and the first ones of each conversation, by conversation and position."""
    places = {
        (turn.session, place)
        for turn in turns
        if turn.session is not None and turn.position is not None
        for place in (*range(FIRST_TURNS), *range(turn.position - 1, turn.position + 2))
    }
    around: dict[str, dict[int, Record]] = {}
    for turn in await _read_at(store, sorted(places)):
        around.setdefault(turn.parent or "", {})[turn.position or 0] = turn
    return around


async def _read_at(store: RecordStore, places: Sequence[tuple[str, int]]) -> list[Record]:
    return await store.scan(RecordFilter(kinds=(TURN,), places=tuple(places))) if places else []


MAX_CONTENT_CHARACTERS = 600  # of a turn
MAX_CODE_CHARACTERS = 1_200
MAX_NEIGHBOR_CHARACTERS = 240  # of an adjacent turn
_ELLIPSIS_CHARACTERS = 3  # for the ellipses at the cuts


def build_results(
    hits: Sequence[SearchHit],
    query: str,
    around: NearbyTurns,
    *,
    with_context: bool = True,
    resolutions: Mapping[str, Record] | None = None,
    questions: Mapping[str, Record] | None = None,
) -> list[MemoryResult]:
    """Build the results in the given order. `questions` are the turns that some of them answer."""
    known, asked = resolutions or {}, questions or {}
    return [
        _build_result(
            hit,
            query,
            around,
            with_context=with_context,
            resolution=known.get(hit.record.id),
            question=asked.get(hit.record.id),
        )
        for hit in hits
    ]


def _get_type(record: Record) -> ResultType:
    if record.kind == CODE:
        return "code"
    return "decision" if record.type == DECISION else "conversation"


def _build_result(
    hit: SearchHit,
    query: str,
    around: NearbyTurns,
    *,
    with_context: bool,
    resolution: Record | None,
    question: Record | None,
) -> MemoryResult:
    record = hit.record
    is_code = record.kind == CODE
    content = clip_excerpt(record.text, query, MAX_CODE_CHARACTERS if is_code else MAX_CONTENT_CHARACTERS)
    conversation = around.find_conversation(around.find_turn(record))
    return MemoryResult(
        id=record.id,
        type=_get_type(record),
        content=content,
        context=_build_context(record, around, question, with_context=with_context),
        relevance_score=round_score(hit.score),
        source=LOCAL_SOURCE,
        highlights=find_highlights(content, query),
        title=conversation.name if conversation else None,
        language=record.type if is_code else None,
        file=record.name if is_code else None,
        resolution=_build_resolution(resolution, query),
    )


def _build_context(record: Record, around: NearbyTurns, question: Record | None, *, with_context: bool) -> TurnContext:
    turn = around.find_turn(record)
    context = TurnContext(
        session_id=record.session or "",
        project_path=record.scope,
        timestamp=format_iso(record.effective_at),
        participants=around.list_participants(turn) or ([record.author] if record.author else []),
        author=record.author,
        branch=(turn or record).facets.get("branch"),
        program=(turn or record).facets.get("source"),
    )
    if not with_context:
        return context
    return replace(
        context,
        before=_clip_turn(question or around.find_neighbor(turn, -1)),
        after=_clip_turn(around.find_neighbor(turn, 1)),
        said=_clip_turn(turn) if turn is not record else None,
    )


def _clip_turn(turn: Record | None) -> str | None:
    return (clip_text(flatten_code(turn.text), MAX_NEIGHBOR_CHARACTERS) or None) if turn is not None else None


def _build_resolution(turn: Record | None, query: str) -> ProblemResolution | None:
    if turn is None:
        return None
    return ProblemResolution(turn.id, clip_excerpt(turn.text, query, MAX_CONTENT_CHARACTERS))


def clip_excerpt(text: str, query: str, most: int) -> str:
    return select_excerpt(text, query, most - _ELLIPSIS_CHARACTERS).text


MAX_PHRASES = 3
MAX_PHRASE_CHARACTERS = 100  # without the marks
MARGIN_CHARACTERS = 24  # shown on each side of the words
HIGHLIGHT_MARK = "**"

_WORD = re.compile(r"[^\s()\[\]{}<>,;\"`=|]+")
_WORD_CORE = re.compile(r"\w(?:\S*\w)?")


class HighlightPhrase(Value):
    """A part of a line from its first to its last matching word, and the matching stems."""

    text: str
    asked: frozenset[str]


def find_highlights(text: str, query: str) -> list[str]:
    """Return the phrases with the most matching words, in the order of the text."""
    sought = parse_query(query)
    text = blank_masks(text)
    phrases = [
        phrase
        for sentence in split_sentences(text)
        for line in sentence.splitlines()
        if (phrase := _find_phrase(line, sought)) is not None
    ]
    chosen: list[HighlightPhrase] = []
    told: set[str] = set()
    by_words = sorted(range(len(phrases)), key=lambda i: (-len(phrases[i].asked), i))
    for number in by_words:
        # Skip phrases that add no words to those chosen.
        if len(chosen) < MAX_PHRASES and not phrases[number].asked <= told:
            chosen.append(phrases[number])
            told |= phrases[number].asked
    return [phrase.text for phrase in phrases if phrase in chosen]


def _find_phrase(line: str, sought: StemSearch) -> HighlightPhrase | None:
    """Return the matching words of a line with the text between them and some context on both sides."""
    if not sought.can_be_in(line):
        return None
    found = [
        (word, said)
        for word in _WORD.finditer(line)
        if sought.can_be_in_chunk(word[0]) and (said := _find_word_stems(word[0], sought))
    ]
    if not found:
        return None
    first, last = found[0][0], found[0][0]
    said = found[0][1]
    marked = [first]
    for word, more in found[1:]:
        if word.end() - first.start() <= MAX_PHRASE_CHARACTERS - 2 * MARGIN_CHARACTERS:
            last, said = word, said | more
            marked.append(word)
    start = _find_start(line, first.start())
    end = _find_end(line, last.end())
    pieces: list[str] = []
    at = start
    for word in marked:
        left, right = _find_core(word, said)
        pieces += [line[at:left], HIGHLIGHT_MARK, line[left:right][:MAX_PHRASE_CHARACTERS], HIGHLIGHT_MARK]
        at = right
    shown = " ".join("".join([*pieces, line[at:end]]).split())
    return HighlightPhrase(("… " if start else "") + shown + ("…" if end < len(line) else ""), said)


def _find_word_stems(word: str, sought: StemSearch) -> frozenset[str]:
    """Return the matching stems of a word. A number must be the whole word: the 3 of S3 does not match."""
    found = sought.find_stems(word)
    if not any(map(str.isdigit, found)) or len(list_stems(word)) == 1:
        return found
    return frozenset(s for s in found if not s.isdigit())


def _find_core(word: "re.Match[str]", asked: frozenset[str]) -> tuple[int, int]:
    """Return the start and end of a word without punctuation. In scripts without spaces, keep the matching part."""
    pieces = [(at, at + 2) for at in range(len(word[0])) if word[0][at : at + 2] in asked]
    if pieces and not word[0].isascii():
        return word.start() + pieces[0][0], word.start() + _find_run_end(pieces)
    found = _WORD_CORE.search(word[0])
    if found is None:
        return word.span()
    return word.start() + found.start(), word.start() + found.end()


def _find_run_end(pieces: Sequence[tuple[int, int]]) -> int:
    """Return the end of the first overlapping pieces."""
    end = pieces[0][1]
    for left, right in pieces:
        if left <= end:
            end = right
    return end


def _find_start(line: str, at: int) -> int:
    """Return the start of a word before the position."""
    if at <= MARGIN_CHARACTERS:
        return 0
    blank = line.find(" ", at - MARGIN_CHARACTERS, at)
    return at if blank < 0 else blank + 1


def _find_end(line: str, at: int) -> int:
    if len(line) - at <= MARGIN_CHARACTERS:
        return len(line)
    blank = line.rfind(" ", at, at + MARGIN_CHARACTERS)
    return at if blank < 0 else blank
