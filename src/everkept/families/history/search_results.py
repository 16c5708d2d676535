"""Conversion of hits to results: excerpts, highlights and adjacent turns.

An exchange is a turn of the user with the turns that answer it. The answer may represent its question.
"""

import asyncio
import re
from collections.abc import Container, Iterable, Mapping, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.core.text import clip_text
from everkept.core.times import format_iso
from everkept.core.transcripts import USER
from everkept.families.history.model import CODE, CONVERSATION, DECISION, SUMMARY, TURN
from everkept.families.history.relevance import blank_masks, get_score_key, parse_query, round_score
from everkept.families.history.search_answers import (
    LOCAL_SOURCE,
    MemoryResult,
    ProblemResolution,
    ResultType,
    TurnContext,
    flatten_code,
)
from everkept.language.lasting_statements import find_statements
from everkept.language.sentences import remove_blocks, split_sentences
from everkept.language.spellings import stem
from everkept.language.telling_words import FILLER_WORDS, has_telling_words, list_stems
from everkept.retrieval.excerpts import StemSearch, compute_coverage, select_excerpt
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


MAX_ANSWERS = 4  # turns after a question that may answer it
MIN_TELLING_WORDS = 3  # of an answer to a request; a shorter one says less than the request
MIN_ANSWER_WORDS = 1  # of an answer to a question, such as "Redis"
MAX_FILLER_CHARACTERS = 80  # of an answer that may say nothing, such as "Ok, great"
_FILLER_STEMS = frozenset(map(stem, FILLER_WORDS))

_REQUEST_VERBS = (
    r"add|adjust|allow|analy[sz]e|apply|build|change|check|clean|compare|configure|connect|convert|create|debug|delete"
    r"|describe|design|document|draft|drop|enable|explain|export|extend|extract|find|fix|format|generate|give|handle"
    r"|implement|improve|inline|install|integrate|introduce|investigate|limit|list|log|look|make|merge|migrate|move"
    r"|optimi[sz]e|port|prevent|profile|provide|refactor|remove|rename|render|replace|restructure|review|revert|rewrite"
    r"|run|set|show|simplify|speed|split|store|suggest|summari[sz]e|support|switch|tell|test|try|update|upgrade|use"
    r"|validate|verify|wire|wrap|write"
)
_REQUEST = re.compile(
    rf"(?:^|[.!\n][^\S\n]*+)(?:(?:and|also|now|next|then|ok(?:ay)?|first|so|great|good|thanks|please)[, ]+){{0,3}}"
    rf"(?:(?:can|could|would|will) you(?: please)? |let(?:'s| us) |(?:we|i) (?:need|want)(?: you)? to |help me )?"
    rf"(?:{_REQUEST_VERBS})\b"
    rf"|\b(?:please|can you|could you|would you|help me)\b",
    re.IGNORECASE,
)


def is_asking(turn: Record) -> bool:
    """Return whether a turn of the user asks or requests something, so that another turn answers it.

    A turn that states a rule, a preference or a decision says something itself, whatever it asks besides.
    """
    if turn.kind != TURN or turn.author != USER or turn.type in (DECISION, SUMMARY):
        return False
    if any(find_statements(turn.text)):
        return False
    text = remove_blocks(turn.text)
    return "?" in text or _REQUEST.search(text.replace("’", "'")) is not None


class Exchanges(Value):
    """The answers to turns of the user, in order, by the id of the user's turn."""

    answers: Mapping[str, Sequence[Record]] = field(default_factory=dict[str, Sequence[Record]])

    def find_answer(
        self, turn: Record, query: str, types: Container[str | None] = (), least: int = MIN_TELLING_WORDS
    ) -> Record | None:
        """Return the turn that answers best: a decision, otherwise the one with most words of the query.

        `types` are the accepted types of turns. If it is empty, all are accepted. An answer needs `least` telling words
        unless it is a decision.
        """
        asked = list_stems(query)
        accepted = [each for each in self.answers.get(turn.id, ()) if not types or each.type in types]
        telling = [each for each in accepted if each.type == DECISION or _is_telling(each.text, least)]
        return max(telling, key=lambda each: _rate_answer(each, asked), default=None)


def _is_telling(text: str, least: int) -> bool:
    is_filler = len(text) <= MAX_FILLER_CHARACTERS and list_stems(text) <= _FILLER_STEMS
    return not is_filler and has_telling_words(text, least)


def _rate_answer(turn: Record, asked: frozenset[str]) -> tuple[bool, float, int]:
    return turn.type == DECISION, compute_coverage(asked, turn.text), len(turn.text)


async def read_exchanges(store: RecordStore, turns: Iterable[Record]) -> Exchanges:
    """Read the answers to the turns: what follows until the user speaks again, or the user's decision there."""
    asking = [turn for turn in turns if turn.author == USER and turn.session is not None and turn.position is not None]
    places = {
        (turn.session or "", (turn.position or 0) + step) for turn in asking for step in range(1, MAX_ANSWERS + 1)
    }
    if not places:
        return Exchanges()
    found = await store.scan(RecordFilter(kinds=(TURN,), places=tuple(sorted(places))))
    # Another program may use the same session id.
    by_place = {(turn.parent, turn.position): turn for turn in found}
    return Exchanges({turn.id: _list_answers(turn, by_place) for turn in asking})


def _list_answers(turn: Record, by_place: Mapping[tuple[str | None, int | None], Record]) -> list[Record]:
    answers: list[Record] = []
    for step in range(1, MAX_ANSWERS + 1):
        following = by_place.get((turn.parent, (turn.position or 0) + step))
        if following is None:
            break
        if following.author == USER:
            # The user chooses among what was offered: "let's go with the second one".
            return [*answers, following] if following.type == DECISION else answers
        answers.append(following)
    return answers


class LedHits(Value):
    """Hits of which each represents its exchange. `questions` are the user's turns, by the id of the answer."""

    hits: list[SearchHit]
    questions: Mapping[str, Record] = field(default_factory=dict[str, Record])


async def lead_with_answers(
    store: RecordStore, query: str, hits: Sequence[SearchHit], types: Container[str | None] = ()
) -> LedHits:
    """Replace questions and requests by the turns that answer them. Each turn stays once, with its best score.

    A decision gets the best score of its exchange.
    """
    asking = [hit.record for hit in hits if is_asking(hit.record)]
    exchanges = await read_exchanges(store, asking)
    questions: dict[str, Record] = {}
    for turn in asking:
        least = MIN_ANSWER_WORDS if "?" in turn.text else MIN_TELLING_WORDS
        if (answer := exchanges.find_answer(turn, query, types, least)) is not None:
            questions[answer.id] = turn
    answers = {turn.id: answer_id for answer_id, turn in questions.items()}
    records = {each.id: each for some in exchanges.answers.values() for each in some}
    scores = {hit.record.id: hit.score for hit in hits}
    best: dict[str, SearchHit] = {}
    for hit in hits:
        answer = answers.get(hit.record.id)
        led = hit if answer is None else replace(hit, record=records[answer])
        if answer is not None and led.record.type == DECISION:
            exchange = exchanges.answers[hit.record.id]
            led = replace(led, score=max(hit.score, *(scores.get(each.id, 0.0) for each in exchange)))
        known = best.get(led.record.id)
        if known is None:
            best[led.record.id] = led
        elif hit.score > known.score:
            best[led.record.id] = replace(known, score=hit.score)
    return LedHits(sorted(best.values(), key=get_score_key), questions)
