"""Search for code, by what it contains and by what was said about it."""

import asyncio
import re
from collections.abc import Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.core.transcripts import USER
from everkept.families.history.model import CODE, DEFINES, SYMBOL, TURN, build_block_id
from everkept.families.history.relevance import (
    CODE_PROFILE,
    RECALL_PROFILE,
    MinNearness,
    QueryContext,
    drop_low_scores,
    find_turns,
    get_score_key,
    keep_newest_duplicates,
    parse_query,
)
from everkept.families.history.search_results import Exchanges, read_exchanges
from everkept.language.sentences import list_block_surroundings
from everkept.language.telling_words import list_stems
from everkept.language.words import STOP_WORDS
from everkept.retrieval.excerpts import compute_coverage
from everkept.retrieval.intent import analyze_question
from everkept.retrieval.profile import SearchHit, SearchPage
from everkept.values import Value, replace

MAX_INTRODUCTIONS = 24  # turns whose code is read
MAX_PIECES = 6  # of one turn
ASKED_SHARE = 0.85  # share of the score of the user's turn that it answers; code gets the whole score of its turn
AGREEMENT_GAIN = 0.6  # share of the distance to 1 that code gains at most if it also matches itself
MIN_LOCAL_FACTOR = 0.5  # factor for code of a turn whose words are all near another piece
MIN_COVERAGE_FACTOR = 0.75  # factor for code without any word of the question, itself or around it
CODE_WORDS_FACTOR = 0.5  # factor for words in the code itself: a variable is called path in any code
CODE_NEARNESS = MinNearness(0.97, 0.99)  # a purpose is rarely told in the same words

DEFINITION_GAIN = 0.6  # share of the distance to 1 that code gains if it defines a name of the question
USAGE_FACTOR = 0.7  # factor for other code if some code defines the name
MAX_NAME_WORDS = 3  # in a question of at most this many words, any word may be a name
MAX_NAMES = 16
MAX_LINKS = 500

MIN_CODE_SHARE = 0.4  # of a turn that is mostly code
_ASKING_START = re.compile(
    r"\W*(?:what|whats|why|who|whom|whose|when|where|which|how|do|does|did|is|are|was|were|has|have|had|can|could"
    r"|should|would|will|may|must|tell|remind)\b",
    re.IGNORECASE,
)
_CODE_NAME = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::)[A-Za-z_$][\w$]*)*")
_MIN_NAME_CHARACTERS = 3


async def find_code(
    store: RecordStore,
    query: str,
    asking: QueryContext,
    *,
    language: str | None = None,
    scopes: Sequence[str] = (),
    after: int | None = None,
    before: int | None = None,
) -> SearchPage:
    """Return the best code. Code that defines a name of the question comes before code that uses it.

    Code matches by itself, by the turn that contains it, and by the user's turn that this one answers.
    """
    query = _strip_asking_words(query)
    own, told = await asyncio.gather(
        find_turns(
            store,
            query,
            profile=CODE_PROFILE,
            types=(language,) if language else (),
            scopes=scopes,
            after=after,
            before=before,
            asking=asking,
            nearness=CODE_NEARNESS,
        ),
        find_turns(
            store,
            query,
            profile=RECALL_PROFILE,
            kinds=(TURN,),
            scopes=scopes,
            after=after,
            before=before,
            asking=asking,
            repeated=True,
            nearness=CODE_NEARNESS,
        ),
    )
    introduced = await _find_introduced_code(store, query, told.hits[:MAX_INTRODUCTIONS], language)
    hits = drop_low_scores(_merge_hits(query, own.hits, introduced))
    hits = await prefer_definitions(store, query, keep_newest_duplicates(hits))
    notices = list(dict.fromkeys((*own.notices, *told.notices)))
    is_lower_bound = own.is_lower_bound or len(told.hits) > MAX_INTRODUCTIONS
    return replace(own, hits=hits, total=len(hits), is_lower_bound=is_lower_bound, notices=notices)


def _strip_asking_words(query: str) -> str:
    """Return the names and concepts of a question for code: `show me the code for retries` becomes `retries`."""
    intent = analyze_question(query)
    named = intent.entities
    mentions = (*named.functions, *named.files, *named.concepts)
    if intent.primary_intent != "find_code" or not mentions:
        return query
    return " ".join(sorted(mentions, key=query.find))


class IntroducedCode(Value):
    """Code with the score of what was said about it, and those words."""

    code: Record
    score: float
    said: str


async def _find_introduced_code(
    store: RecordStore, query: str, hits: Sequence[SearchHit], language: str | None
) -> list[IntroducedCode]:
    """Return the code of the turns, and of the turns that answer them."""
    exchanges = await read_exchanges(store, [hit.record for hit in hits])
    scores: dict[str, tuple[float, str]] = {}  # of turns with code, with the question that they answer
    turns: dict[str, Record] = {}
    for hit in hits:
        for turn, score, question in _list_turns_with_score(hit, exchanges):
            turns[turn.id] = turn
            known = scores.get(turn.id, (0.0, ""))
            scores[turn.id] = max(score, known[0]), known[1] or question
    if not turns:
        return []
    where = RecordFilter(kinds=(CODE,), parents=tuple(turns), types=(language,) if language else ())
    pieces: dict[str, list[Record]] = {}
    for code in await store.scan(where):
        pieces.setdefault(code.parent or "", []).append(code)
    return [
        introduced
        for turn_id, some in pieces.items()
        for introduced in _introduce_pieces(turns[turn_id], some, *scores[turn_id], query)
    ]


def _list_turns_with_score(hit: SearchHit, exchanges: Exchanges) -> list[tuple[Record, float, str]]:
    turn = hit.record
    answers = exchanges.answers.get(turn.id, ()) if turn.author == USER else ()
    return [(turn, hit.score, ""), *((answer, ASKED_SHARE * hit.score, turn.text) for answer in answers)]


def _introduce_pieces(
    turn: Record, pieces: Sequence[Record], score: float, question: str, query: str
) -> list[IntroducedCode]:
    """Return the code of one turn, best first. If words are near one piece, it counts more than the others."""
    asked = list_stems(query)
    around = {build_block_id(turn.id, n): said for n, said in enumerate(list_block_surroundings(turn.text))}
    near = {code.id: f"{code.name or ''}\n{around.get(code.id, '')}" for code in pieces}
    shares = {code.id: compute_coverage(asked, f"{near[code.id]}\n{code.text}") for code in pieces}
    best = max(shares.values())
    ranked = sorted(pieces, key=lambda code: (-shares[code.id], code.id))
    return [
        IntroducedCode(
            code,
            score * (_scale(shares[code.id] / best, MIN_LOCAL_FACTOR) if best else 1.0),
            # An edit has no place in the text, so all of it is about the edit.
            "\n".join((question, near[code.id], "" if code.id in around else turn.text)),
        )
        for code in ranked[:MAX_PIECES]
    ]


def _merge_hits(query: str, own: Sequence[SearchHit], introduced: Sequence[IntroducedCode]) -> list[SearchHit]:
    """Return each code once. Code with more words of the question, in itself or around it, comes first."""
    asked = parse_query(query).stems
    hits = {hit.record.id: hit for hit in own}
    said: dict[str, str] = {}
    for each in introduced:
        said[each.code.id] = each.said
        known = hits.get(each.code.id)
        score = each.score
        if known is not None:
            high, low = max(score, known.score), min(score, known.score)
            score = high + AGREEMENT_GAIN * low * (1 - high)
        hits[each.code.id] = SearchHit(each.code, score) if known is None else replace(known, score=score)
    covered = {key: _compute_coverage(asked, said.get(key, ""), hit.record) for key, hit in hits.items()}
    most = max(covered.values(), default=0.0)
    if most:
        hits = {
            key: replace(hit, score=hit.score * _scale(covered[key] / most, MIN_COVERAGE_FACTOR))
            for key, hit in hits.items()
        }
    return sorted(hits.values(), key=get_score_key)


def _compute_coverage(asked: frozenset[str], said: str, code: Record) -> float:
    """Return the share of the asked words in what was said and in the name. The code itself counts less."""
    told = f"{said}\n{code.name or ''}"
    return max(compute_coverage(asked, told), CODE_WORDS_FACTOR * compute_coverage(asked, f"{told}\n{code.text}"))


def _scale(share: float, least: float) -> float:
    return least + (1 - least) * share


async def prefer_definitions(store: RecordStore, query: str, hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Sort the hits best first, with code that defines a name of the question before other code."""
    defining = await _find_defining_code(store, query)
    if any(hit.record.id in defining for hit in hits):
        hits = [_adjust_code_score(hit, defining) if hit.record.kind == CODE else hit for hit in hits]
    return sorted(hits, key=get_score_key)


def is_phrase(question: str) -> bool:
    """Return whether the text names a thing, such as `debounce of the search box`, instead of asking."""
    return "?" not in question and _ASKING_START.match(question) is None


async def show_code(store: RecordStore, hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Return the hits with the code of each turn that is mostly code instead of the turn."""
    turns = [hit.record for hit in hits if hit.record.kind == TURN and "```" in hit.record.text]
    longest: dict[str, Record] = {}
    for code in (
        await store.scan(RecordFilter(kinds=(CODE,), parents=tuple(turn.id for turn in turns))) if turns else ()
    ):
        turn_id = code.parent or ""
        longest[turn_id] = max(code, longest.get(turn_id, code), key=lambda each: len(each.text))
    shown = {turn.id: longest[turn.id] for turn in turns if _is_mostly(turn, longest.get(turn.id))}
    known = {hit.record.id for hit in hits}
    return [
        replace(hit, record=code) if (code := shown.get(hit.record.id)) is not None and code.id not in known else hit
        for hit in hits
    ]


def _is_mostly(turn: Record, code: Record | None) -> bool:
    return code is not None and len(code.text) >= MIN_CODE_SHARE * len(turn.text)


async def list_languages(store: RecordStore) -> list[str]:
    """Return the languages of stored code, most frequent first."""
    counts: dict[str, int] = {}
    for tally in await store.tally((CODE,)):
        if tally.type and not tally.is_deleted:
            counts[tally.type] = counts.get(tally.type, 0) + tally.count
    return sorted(counts, key=lambda name: (-counts[name], name))


def _adjust_code_score(hit: SearchHit, defining: frozenset[str]) -> SearchHit:
    is_defining = hit.record.id in defining
    gained = hit.score + DEFINITION_GAIN * (1 - hit.score)
    return replace(hit, score=gained if is_defining else USAGE_FACTOR * hit.score)


async def _find_defining_code(store: RecordStore, query: str) -> frozenset[str]:
    """Return the ids of code that defines a name of the question."""
    wanted = tuple(dict.fromkeys(_parse_code_names(query)))[:MAX_NAMES]
    if not wanted:
        return frozenset()
    symbols = await store.scan(RecordFilter(kinds=(SYMBOL,), name_keys=wanted))
    if not symbols:
        return frozenset()
    links = await store.find_links([symbol.id for symbol in symbols], direction="in", sources=(CODE,), limit=MAX_LINKS)
    return frozenset(link.source for link in links if link.verb == DEFINES)


def _parse_code_names(query: str) -> list[str]:
    """Return possible names of code. In a longer question, only words that look like names count."""
    words = [word for word in _CODE_NAME.findall(query) if word.lower() not in STOP_WORDS]
    long_enough = [word for word in words if len(word) >= _MIN_NAME_CHARACTERS]
    if len(words) <= MAX_NAME_WORDS:
        return long_enough
    return [word for word in long_enough if not (word.isalpha() and word[1:].islower())]
