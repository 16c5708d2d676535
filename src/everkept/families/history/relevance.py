"""Search for relevant turns and code, with their selection and order."""

import asyncio
import re
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, tzinfo
from functools import lru_cache

from everkept.core.ports import Embedder, RecordStore
from everkept.core.records import Record, RecordFilter, Weights
from everkept.core.text import compute_name_key
from everkept.families.history.model import CODE, DECISION, TURN
from everkept.language.spellings import fold, stem
from everkept.language.telling_words import has_telling_words, list_stems
from everkept.language.words import FOREIGN_STOP_WORDS
from everkept.retrieval.candidates import MAX_CANDIDATES
from everkept.retrieval.excerpts import StemSearch, select_excerpt
from everkept.retrieval.profile import SearchHit, SearchNotice, SearchPage, SearchPlace, SearchProfile, SignalWeights
from everkept.retrieval.search import find_pending_notice, search
from everkept.values import Value, replace

# Tuned on public conversations. Compared to memories, the author counts a little more.
RECALL_PROFILE = SearchProfile(
    kinds=(TURN, CODE),
    weights=Weights(context=0.5),  # the turns before and after
    reading="any",
    strategy="hybrid",
    parts=SignalWeights(author=0.25),
)
# Words identify an error, and meaning identifies a description. A single turn contains both.
SIMILAR_PROFILE = SearchProfile(
    kinds=(TURN,),
    weights=Weights(context=0.5),
    reading="any",
    strategy="hybrid",
    parts=SignalWeights(keyword=0.4, meaning=0.4, author=0.0, date=0.1, neighbour=0.2, word_power=1.0),
)
# A name in code matches exactly or not at all. Its author and time matter little.
CODE_PROFILE = SearchProfile(
    kinds=(CODE,),
    weights=Weights(name=3.0, context=0.25),
    reading="any",
    strategy="hybrid",
    parts=SignalWeights(keyword=0.5, meaning=0.4, author=0.05, date=0.1, neighbour=0.0, word_power=1.0),
)

BUCKET_WIDTH = 0.1  # scores in one bucket count as equal
BLOCK_RESULTS = 10  # results that are sorted among themselves
MIN_NEARNESS = 0.99  # share of unrelated texts that are less near
MAX_HITS = 2 * MAX_CANDIDATES  # as many as words and meaning can find


class QueryContext(Value):
    """The time and means of a search."""

    embedder: Embedder | None = None
    now: int = 0
    zone: tzinfo = UTC
    time_limit: float | None = None


class MinNearness(Value):
    """Minimum nearness of a hit without matching words. A question of a single word needs more."""

    words: float = MIN_NEARNESS
    one_word: float = 0.999


async def find_turns(
    store: RecordStore,
    query: str,
    *,
    asking: QueryContext,
    profile: SearchProfile = RECALL_PROFILE,
    kinds: Sequence[str] = (),
    types: Sequence[str] = (),
    scopes: Sequence[str] = (),
    after: int | None = None,
    before: int | None = None,
    repeated: bool = False,
    nearness: MinNearness | None = None,
) -> SearchPage:
    """Return all relevant hits, best first, with a turn and its code as one hit. Empty filters do not restrict.

    If only code is requested, all code of a turn is returned. Equal texts are returned once unless `repeated`.
    """
    profile = replace(profile, kinds=tuple(kinds) or profile.kinds)
    where = RecordFilter(types=tuple(types), scopes=tuple(scopes), after=after, before=before)
    searching = search(
        [SearchPlace(store, where)],
        query,
        profile,
        limit=MAX_HITS,
        embedder=asking.embedder,
        now=asking.now,
        zone=asking.zone,
        time_limit=asking.time_limit,
    )
    answer, pending = await asyncio.gather(searching, build_pending_notice(store, asking.embedder))
    # Without a search by meaning, its absence was already reported or requested.
    by_meaning = answer.strategy in ("hybrid", "vector")
    notices = [*answer.notices, pending] if pending and by_meaning else answer.notices
    hits = select_relevant(answer.hits, query, nearness or MinNearness())
    is_lower_bound = _is_capped(hits)
    if not repeated:
        hits = keep_newest_duplicates(hits)
    if profile.kinds != (CODE,):
        hits = merge_code_hits(hits, await _read_turns(store, hits))
    return replace(answer, hits=hits, total=len(hits), is_lower_bound=is_lower_bound, next_cursor=None, notices=notices)


def _is_capped(hits: Sequence[SearchHit]) -> bool:
    """Return whether words or meaning found as many as a search takes, so that there may be more."""
    by_words = sum(bool(hit.why.get("keyword")) for hit in hits)
    by_meaning = sum(hit.nearness is not None and hit.nearness >= MIN_NEARNESS for hit in hits)
    return max(by_words, by_meaning) >= MAX_CANDIDATES


async def _read_turns(store: RecordStore, hits: Sequence[SearchHit]) -> dict[str, Record]:
    """Return the turns of the hits, including the turns that contain code hits."""
    turns = {hit.record.id: hit.record for hit in hits if hit.record.kind == TURN}
    missing = dict.fromkeys(id for hit in hits if (id := get_turn_id(hit)) not in turns)
    return turns | {turn.id: turn for turn in await store.get(list(missing))} if missing else turns


def sort_for_display(hits: Sequence[SearchHit], preferred: Container[str] = ()) -> list[SearchHit]:
    """Return the hits in display order. They come best first.

    Hits with scores in one bucket are sorted by preference (ids in `preferred`) and time, newest first. This happens in
    blocks of ten. Among fifty results, half may be in one bucket, and new hits would displace the best ones.
    """
    return [
        hit
        for start in range(0, len(hits), BLOCK_RESULTS)
        for hit in sorted(hits[start : start + BLOCK_RESULTS], key=lambda hit: _get_sort_key(hit, preferred))
    ]


def round_score(score: float) -> float:
    return round(score, 3)


def get_bucket(score: float) -> int:
    """Return the bucket of the rounded score, so that displayed scores are in order."""
    return int(round_score(score) / BUCKET_WIDTH + 1e-9)


def _get_sort_key(hit: SearchHit, preferred: Container[str]) -> tuple[int, bool, int, float, str]:
    return (-get_bucket(hit.score), hit.record.id not in preferred, -hit.record.effective_at, -hit.score, hit.record.id)


MIN_SCORE_SHARE = 0.25  # of the best score
MIN_TELLING_WORDS = 3  # a turn with fewer telling words says little by itself
MIN_WORD_SHARE = 0.5  # share of the question's words that such a turn needs
# limits of a turn that may say little
SHORT_TURN_CHARACTERS, SHORT_TURN_SPACES = 200, 16
MAX_LITERAL_WORDS = 2  # in a question that may be literal
MAX_RARE_HITS = 5  # hits with a word up to which the word is rare

_TYPED_WORD = re.compile(r"(?<!\S)\S*\w\S*")
_EDGE_PUNCTUATION = re.compile(r"^\W+|\W+$")


def select_relevant(hits: Sequence[SearchHit], query: str, nearness: MinNearness) -> list[SearchHit]:
    """Drop irrelevant hits and those far below the best. The hits come best first."""
    sought = parse_query(query)
    near = nearness.words if len(sought.stems) > 1 else nearness.one_word
    typed = _parse_literal_words(query)
    kept: list[SearchHit] = []
    for hit in hits:
        if kept and not typed and hit.score < MIN_SCORE_SHARE * kept[0].score:
            break  # reading texts takes long
        if _is_relevant(hit, query, sought, near):
            kept.append(hit)
    return drop_low_scores(sorted(_boost_literal_hits(kept, typed), key=get_score_key)) if typed else kept


def drop_low_scores(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Drop the hits far below the best."""
    best = max((hit.score for hit in hits), default=0.0)
    return [hit for hit in hits if hit.score >= MIN_SCORE_SHARE * best]


def _is_uninformative(text: str) -> bool:
    is_short = len(text) <= SHORT_TURN_CHARACTERS and text.count(" ") < SHORT_TURN_SPACES
    return is_short and not has_telling_words(text, MIN_TELLING_WORDS)


def keep_newest_duplicates(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Keep the newest of equal texts, with the best score. The hits come best first."""
    kept: dict[str, SearchHit] = {}
    for hit in hits:
        text = compute_name_key(hit.record.text)
        other = kept.setdefault(text, hit)
        if other is not hit:
            newest = max(hit, other, key=lambda one: (one.record.effective_at, one.record.id))
            kept[text] = replace(newest, score=max(hit.score, other.score))
    return list(kept.values())


def merge_code_hits(hits: Sequence[SearchHit], turns: Mapping[str, Record]) -> list[SearchHit]:
    """Merge each turn with its code into one hit. Code represents both if the turn's text does not contain it."""
    best: dict[str, SearchHit] = {}
    for hit in hits:
        turn = turns.get(get_turn_id(hit))
        if hit.record.kind == CODE and turn is not None and hit.record.text.strip() in turn.text:
            hit = replace(hit, record=turn)
        best.setdefault(get_turn_id(hit), hit)
    return list(best.values())


def get_turn_id(hit: SearchHit) -> str:
    record = hit.record
    return record.parent if record.kind == CODE and record.parent else record.id


def _find_excerpt_words(record: Record, query: str, sought: StemSearch) -> frozenset[str]:
    """Return the matching words in an excerpt, because searching the whole text takes long."""
    if not sought.can_be_in(_get_text(record)):
        return frozenset()
    return find_words(f"{record.name or ''}\n{select_excerpt(record.text, query).text}", sought)


def _get_text(record: Record) -> str:
    return f"{record.name}\n{record.text}" if record.name else record.text


def _is_relevant(hit: SearchHit, query: str, sought: StemSearch, near: float) -> bool:
    """Return whether a hit matches by word, meaning, author or date. Short decisions match through adjacent turns."""
    record = hit.record
    if record.type == DECISION and record.kind == TURN and hit.why.get("keyword"):
        return True
    if record.kind == TURN and _is_uninformative(record.text):
        has = len(_find_excerpt_words(record, query, sought))
        return has > 0 and has >= MIN_WORD_SHARE * len(sought.stems)
    if hit.nearness is not None and hit.nearness >= near:
        return True
    if any(hit.why.get(sign) for sign in ("author", "date")):
        return True
    return bool(_find_excerpt_words(record, query, sought))  # last, because reading the text takes longest


def _parse_literal_words(query: str) -> list[str]:
    """Return the words of a question with one or two words, which may be literal."""
    typed = [_EDGE_PUNCTUATION.sub("", fold(word).lower()) for word in _TYPED_WORD.findall(query)]
    return typed if len(typed) <= MAX_LITERAL_WORDS else []


def _boost_literal_hits(hits: Sequence[SearchHit], typed: Sequence[str]) -> list[SearchHit]:
    """Rank hits with the rare words above those without."""
    texts = [fold(_get_text(hit.record)).lower() for hit in hits]
    rare = [word for word in typed if 0 < sum(word in text for text in texts) <= MAX_RARE_HITS]
    return [
        replace(hit, score=(sum(word in text for word in rare) + hit.score) / (len(rare) + 1))
        for hit, text in zip(hits, texts, strict=True)
    ]


def get_score_key(hit: SearchHit) -> tuple[float, int, str]:
    return -hit.score, -hit.record.effective_at, hit.record.id


NON_DECISION_FACTOR = 0.7  # factor for other turns if the question asks for a decision
DECISION_SHARE = 0.95  # minimum share of the score of the turns that led to a decision
TURNS_BEFORE_DECISION = 3  # turns before a decision that may have led to it

_DECISION_QUESTION = re.compile(
    r"\b(?:decid|decision|choose|chose|agree|settle|go with|went with|why (?:did|do) we)", re.IGNORECASE
)
_DECISION_WORDS = re.compile(
    r"\b(?:decided?|agreed?|settled?|decisions?)\b(?=\W*$|\s+(?:about|on|upon|for|to|between|against)\b)", re.IGNORECASE
)


def strip_decision_words(question: str) -> str:
    """Remove the words that ask for a decision, because every decision has them."""
    if not _DECISION_QUESTION.search(question):
        return question
    rest = _DECISION_WORDS.sub("", question)
    return rest if list_stems(rest) else question


def is_decision_question(question: str) -> bool:
    return bool(_DECISION_QUESTION.search(question))


def prefer_decisions(question: str, hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Sort the hits best first. If the question asks for a decision, raise decisions and lower other turns.

    The turns before a decision resemble the question, so a decision gets nearly their score.
    """
    if is_decision_question(question):
        hits = [_adjust_score(hit, hits) for hit in hits]
    return sorted(hits, key=get_score_key)


def _adjust_score(hit: SearchHit, hits: Sequence[SearchHit]) -> SearchHit:
    record = hit.record
    if record.type != DECISION:
        return replace(hit, score=NON_DECISION_FACTOR * hit.score)
    led = [
        other.score
        for other in hits
        if other.record.parent == record.parent
        and 0 < (record.position or 0) - (other.record.position or 0) <= TURNS_BEFORE_DECISION
    ]
    return replace(hit, score=max(hit.score, DECISION_SHARE * max(led, default=0.0)))


async def build_pending_notice(store: RecordStore, embedder: Embedder | None) -> SearchNotice | None:
    """Return a notice if many turns have no embedding yet."""
    return await find_pending_notice([store], embedder, TURN, ("turn", "turns"))


_MASK = re.compile(r"\[masked: [a-z ]+\]")
_FOREIGN_STOP_STEMS = frozenset(stem(word) for word in FOREIGN_STOP_WORDS)


@lru_cache(8)
def parse_query(query: str) -> StemSearch:
    """Return the stems of the query, without stop words of other languages unless only those remain."""
    asked = list_stems(blank_masks(query))
    return StemSearch((asked - _FOREIGN_STOP_STEMS) or asked)


def find_words(text: str, sought: StemSearch) -> frozenset[str]:
    """Return the matching words of a text. The text of masks does not count."""
    return sought.find_stems(blank_masks(text))


def blank_masks(text: str) -> str:
    if "[masked: " not in text:
        return text
    return _MASK.sub(lambda mask: " " * len(mask[0]), text)
