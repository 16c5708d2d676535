"""Candidates of a search: by words, by meaning, and among records that no index holds.

The name of an author dominates the vector of a short text. A question about Caroline finds what was said to her, not
what she said. So the names of authors stay in the query for words and are removed from the query for meaning.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from everkept.core.answers import decode_cursor, encode_cursor
from everkept.core.fallback_answers import is_match, is_selected, split_fields
from everkept.core.ports import Embedder, RecordStore
from everkept.core.records import Edit, Match, Record, RecordFilter
from everkept.core.transcripts import ASSISTANT, USER
from everkept.errors import InvalidInput, ModelUnavailable
from everkept.language.telling_words import compute_rarity
from everkept.language.words import STOP_WORDS, AllOf, AnyOf, TypedQuery, Without, WordPhrase, WordQuery, parse_query
from everkept.retrieval.dates import remove_dates
from everkept.retrieval.profile import Deadline, SearchHit, SearchPage, SearchPlace, SearchProfile, Tier
from everkept.values import Value, field, replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_CANDIDATES = 100  # of each leg (words, meaning), in each place
MAX_QUESTION_CHARACTERS = 1_000  # the rest of a longer query is not embedded
MAX_SUBSTRING_CHARACTERS = 1_000
MAX_SUBSTRING_WORDS = 3  # a longer text is not searched as a substring, because that reads every record

Key = tuple[int, str]  # number of the place, id of the record
Scores = dict[Key, float]


class WordMatches(Value):
    scores: Scores = field(default_factory=dict[Key, float])
    tier: Tier | None = None

    @property
    def is_capped(self) -> bool:
        """Return whether a place may have more matches."""
        return MAX_CANDIDATES in Counter(place for place, _ in self.scores).values()


class MeaningQuestion(Value):
    """The text to embed for a query, and the authors that the query names."""

    text: str
    authors: frozenset[str] = frozenset()


async def find_by_words(places: Sequence[SearchPlace], query: TypedQuery, profile: SearchProfile) -> WordMatches:
    """Return the best matches of the expression (keyword strategy only), of any word, otherwise of the text."""
    readings: list[tuple[Tier, WordQuery | None]] = [("any", query.build_any_query())]
    if profile.strategy == "keyword":
        readings.insert(0, ("expression", query.expression))
    for tier, words in readings:
        if words is not None and (found := await _match_words(places, words, profile)):
            return WordMatches(found, tier)
    # If no record has any of several words, none contains the whole text either.
    is_short = len(query.text.split()) <= MAX_SUBSTRING_WORDS and len(query.text) <= MAX_SUBSTRING_CHARACTERS
    if not query.text or not is_short:
        return WordMatches()
    found = await _ask_all(places, lambda store, where: store.match_text(query.text, where, MAX_CANDIDATES))
    return WordMatches(found, "substring" if found else None)


async def find_by_meaning(
    places: Sequence[SearchPlace], model: str, vector: "NDArray[np.float32]", also: Iterable[Key]
) -> Scores:
    """Return the cosines of the nearest records and of the records in `also`."""
    wanted: list[list[str]] = [[] for _ in places]
    for number, record_id in also:
        wanted[number].append(record_id)
    found = await asyncio.gather(
        *(
            place.store.find_near(model, vector, place.where, MAX_CANDIDATES, also=ids)
            for place, ids in zip(places, wanted, strict=True)
        )
    )
    return _collect_scores(found)


async def parse_question(places: Sequence[SearchPlace], text: str) -> MeaningQuestion:
    """Return the query without dates and authors. Other names are part of its meaning."""
    asked = text[:MAX_QUESTION_CHARACTERS]
    known = await asyncio.gather(*(place.store.list_authors() for place in places))
    authors = find_named_authors(asked, chain.from_iterable(known))
    meant = remove_names(remove_dates(asked), [*authors])
    return MeaningQuestion(meant if is_telling(meant) else asked, authors)


async def embed_question(embedder: Embedder, text: str) -> "NDArray[np.float32] | ModelUnavailable":
    """Return the vector of a query, or the error if the model is unavailable."""
    try:
        return (await embedder.embed([text]))[0]
    except ModelUnavailable as error:
        return error


async def _match_words(places: Sequence[SearchPlace], words: WordQuery, profile: SearchProfile) -> Scores:
    return await _ask_all(places, lambda store, where: store.match(words, where, profile.weights, MAX_CANDIDATES))


async def _ask_all(
    places: Sequence[SearchPlace], ask: Callable[[RecordStore, RecordFilter], Awaitable[list[Match]]]
) -> Scores:
    return _collect_scores(await asyncio.gather(*(ask(place.store, place.where) for place in places)))


def _collect_scores(found: Sequence[Sequence[Match]]) -> Scores:
    return {(number, match.id): match.score for number, some in enumerate(found) for match in some}


ROLE_NAMES = frozenset((USER, ASSISTANT))  # authors without a name; "user" occurs in many questions
MIN_TELLING_WORDS = 2  # a query with fewer words left is embedded unshortened

_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_POSSESSIVE = re.compile(r"['’]s?$")


def find_named_authors(text: str, authors: Iterable[str]) -> frozenset[str]:
    """Return the authors named in the text. A name that is a common word, such as Will, must be capitalized."""
    typed = {_strip_possessive(word) for word in _WORD.findall(text)}
    lowered = {word.lower() for word in typed if word.lower() not in STOP_WORDS}

    def is_named(author: str) -> bool:
        return any(
            (word.lower() in lowered) or (word in typed and word.istitle() and len(word) > 1)
            for word in _WORD.findall(author)
        )

    return frozenset(author for author in authors if author not in ROLE_NAMES and is_named(author))


def remove_names(text: str, names: Sequence[str]) -> str:

    unwanted = {word.lower() for name in names for word in _WORD.findall(name)}
    left = _WORD.sub(lambda found: "" if _strip_possessive(found[0]).lower() in unwanted else found[0], text)
    return " ".join(left.split())


def is_telling(text: str) -> bool:
    """Return whether the text has enough content words to search for its meaning."""
    telling = [word for word in _WORD.findall(text) if word.lower() not in STOP_WORDS]
    return len(telling) >= MIN_TELLING_WORDS


def _strip_possessive(word: str) -> str:
    return _POSSESSIVE.sub("", word)


TIERS: tuple[Tier, ...] = ("expression", "all", "any", "substring")
Ask = Callable[[int], Awaitable[list[Match]]]


async def search_by_tiers(
    places: Sequence[SearchPlace], query: str, profile: SearchProfile, limit: int, cursor: str | None
) -> SearchPage:
    """Search with the first reading that finds anything: expression, all words, any word, substring.

    An expression with AND or NOT has no other reading, because a looser one would return what it excludes.
    """
    page = await find_page_by_tiers(places, query, profile, limit, cursor)
    records = await _read_records(places, page.matches)
    hits = [
        SearchHit(records[place, match.id], match.score, {"keyword": match.score}, place)
        for place, match in page.matches
        if (place, match.id) in records
    ]
    if page.tier is None:
        return SearchPage([])
    has_more = page.next_cursor is not None
    return SearchPage(hits, page.total, "keyword", page.tier, page.next_cursor, is_lower_bound=has_more)


class MatchedPage(NamedTuple):
    """Page of matches of one tier, each with the number of its place."""

    matches: list[tuple[int, Match]]
    total: int = 0
    tier: Tier | None = None
    next_cursor: str | None = None


async def find_page_by_tiers(
    places: Sequence[SearchPlace], query: str, profile: SearchProfile, limit: int, cursor: str | None
) -> MatchedPage:
    """Find a page of matches like `search_by_tiers`, without reading the records."""
    parsed = parse_query(query)
    wanted, offset = _parse_position(cursor)
    end = offset + limit
    for tier, words in _list_tiers(parsed, wanted):
        if parsed.is_strict and words is not None and profile.merge_children:
            found = await _find_owners(places, words, profile)
        else:
            found = await _find_matches(places, words, parsed.text, profile, end + 1)
        if page := found[offset:end]:
            next_cursor = encode_cursor(tier, end) if len(found) > end else None
            return MatchedPage(page, len(found), tier, next_cursor)
    return MatchedPage([])


def _list_tiers(query: TypedQuery, wanted: Tier | None) -> list[tuple[Tier, WordQuery | None]]:
    """Return the tiers that the query has, or only the wanted one."""
    readings: dict[Tier, WordQuery | None] = {
        "expression": query.expression,
        "all": query.build_all_query(),
        "any": query.build_any_query(),
    }
    return [
        (tier, readings.get(tier))
        for tier in (("expression",) if query.is_strict else TIERS if wanted is None else (wanted,))
        if readings.get(tier) is not None or (tier == "substring" and query.text)
    ]


async def _find_matches(
    places: Sequence[SearchPlace], words: WordQuery | None, text: str, profile: SearchProfile, needed: int
) -> list[tuple[int, Match]]:
    found: list[tuple[int, Match]] = []
    for number, place in enumerate(places):
        ask = _build_ask(place.store, words, text, profile.narrow(place.where), profile)
        found += [(number, match) for match in await _ask_until_enough(ask, profile, needed)]
    if len(places) > 1:
        found.sort(key=lambda entry: -entry[1].score)
    return found[:needed]


async def _find_owners(
    places: Sequence[SearchPlace], words: WordQuery, profile: SearchProfile
) -> list[tuple[int, Match]]:
    """Find the records for which the expression is true of the record and all its children together."""
    found = [
        (number, Match(owner, None, score))
        for number, place in enumerate(places)
        for owner, score in (await _OwnerSearch(place, profile).find(words)).items()
    ]
    return sorted(found, key=lambda entry: -entry[1].score)


MAX_EXPRESSION_ROWS = 20_000  # of one word or phrase in an expression with AND or NOT


class _OwnerSearch:
    """Evaluation of an expression. Each word may be in another child of the same record."""

    def __init__(self, place: SearchPlace, profile: SearchProfile) -> None:
        self._store = place.store
        self._where = profile.narrow(place.where)
        self._weights = profile.weights

    async def find(self, words: WordQuery, among: Collection[str] | None = None) -> dict[str, float]:
        """Return each record with its score, out of `among` if it is given."""
        match words:
            case AllOf(parts):
                scores = await self.find(parts[0], among)
                for part in parts[1:]:
                    more = await self.find(part, scores)
                    scores = {owner: scores[owner] + score for owner, score in more.items()}
                return scores
            case Without(wanted, unwanted):
                scores = await self.find(wanted, among)
                excluded = await self.find(unwanted, scores)
                return {owner: score for owner, score in scores.items() if owner not in excluded}
            case AnyOf(parts) if not all(isinstance(part, WordPhrase) for part in parts):
                scores = dict[str, float]()
                for part in parts:
                    for owner, score in (await self.find(part, among)).items():
                        scores[owner] = max(score, scores.get(owner, score))
                return scores
            case _:
                return await self._match(words, among)

    async def _match(self, words: WordQuery, among: Collection[str] | None) -> dict[str, float]:
        if among is None:
            return self._collect(await self._ask(words, self._where, MAX_EXPRESSION_ROWS))
        scores: dict[str, float] = {}
        left = list(among)
        while left:
            ids = tuple(left[:CHUNK_RECORDS])
            own = await self._ask(words, replace(self._where, ids=ids), CHUNK_RECORDS)
            of_children = await self._ask(words, replace(self._where, parents=ids), MAX_EXPRESSION_ROWS)
            for owner, score in self._collect([*own, *of_children]).items():
                scores[owner] = max(score, scores.get(owner, score))
            # If rows were cut off, ask again for the records that have none yet.
            is_cut = len(of_children) == MAX_EXPRESSION_ROWS
            left = [owner for owner in ids if is_cut and owner not in scores] + left[CHUNK_RECORDS:]
        return scores

    async def _ask(self, words: WordQuery, where: RecordFilter, rows: int) -> list[Match]:
        return await self._store.match(words, where, self._weights, rows)

    def _collect(self, matches: Sequence[Match]) -> dict[str, float]:
        scores: dict[str, float] = {}
        for match in matches:
            owner = match.parent or match.id
            scores[owner] = max(match.score, scores.get(owner, match.score))
        return scores


def _build_ask(
    store: RecordStore, words: WordQuery | None, text: str, where: RecordFilter, profile: SearchProfile
) -> Ask:
    if words is None:
        return lambda rows: store.match_text(text, where, rows)
    return lambda rows: store.match(words, where, profile.weights, rows)


async def _ask_until_enough(ask: Ask, profile: SearchProfile, needed: int) -> list[Match]:
    """Ask for more rows until they yield enough distinct matches, or no more rows exist."""
    rows = needed * 4 if profile.merge_children else needed
    while True:
        matches = await ask(rows)
        merged = _merge_children(matches) if profile.merge_children else matches
        if len(merged) >= needed or len(matches) < rows:
            return merged[:needed]
        rows *= 4


def _merge_children(matches: list[Match]) -> list[Match]:
    """Return each parent once, at the position of its best row."""
    best: dict[str, Match] = {}
    for match in matches:
        owner = match.parent or match.id
        best.setdefault(owner, Match(owner, None, match.score))
    return list(best.values())


async def _read_records(
    places: Sequence[SearchPlace], page: Sequence[tuple[int, Match]]
) -> dict[tuple[int, str], Record]:
    records: dict[tuple[int, str], Record] = {}
    for number, place in enumerate(places):
        ids = [match.id for at, match in page if at == number]
        records |= {(number, r.id): r for r in await place.store.get(ids)} if ids else {}
    return records


def _parse_position(cursor: str | None) -> tuple[Tier | None, int]:
    if cursor is None:
        return None, 0
    tier, offset = decode_cursor(cursor, str, int)
    if tier not in TIERS or offset < 0:
        raise InvalidInput(
            "`cursor` is not valid for this query.", hint="Omit it to start again.", argument="cursor", value=cursor
        )
    return tier, offset


CHUNK_RECORDS = 500  # records per read without an index, newest first
REST_TIME_SHARE = 0.5  # of the remaining time, kept for the rest of the search
SLICE_RECORDS = 100  # records judged before other tasks get a turn
LATE_PART = "search in past or forgotten records"


class UnindexedRecords(Value):
    """Records that the index cannot find, and records whose current state does not answer the query."""

    records: dict[Key, Record] = field(default_factory=dict[Key, Record])
    hidden: frozenset[Key] = frozenset()
    retold: frozenset[Key] = frozenset()  # records that had another text then, so their vectors do not apply
    is_whole: bool = True  # False if the time was too short to read all


async def read_unindexed(places: Sequence[SearchPlace], as_of: int | None, deadline: Deadline) -> UnindexedRecords:
    """Read past and deleted records, if the places ask for them, until the time is up."""
    if as_of is None and all(place.where.deleted is False for place in places):
        return UnindexedRecords()
    found = [_PlaceRecords() for _ in places]
    reading = _read_all(places, as_of, found)
    is_whole = await deadline.with_reserve(REST_TIME_SHARE).run(reading) is not None
    return UnindexedRecords(
        {(i, record.id): record for i, one in enumerate(found) for record in one.records},
        frozenset((i, record_id) for i, one in enumerate(found) for record_id in one.touched),
        frozenset((i, record_id) for i, one in enumerate(found) for record_id in one.retold),
        is_whole,
    )


def is_unchanged_since(record: Record, as_of: int | None) -> bool:
    """Return whether the record has not been changed or deleted since then. A changed record never counts as past."""
    return as_of is None or max(record.updated_at, record.deleted_at or 0) <= as_of


async def score_by_words(
    places: Sequence[SearchPlace], records: Mapping[Key, Record], query: TypedQuery, deadline: Deadline
) -> tuple[Scores, bool]:
    """Score records by their share of the words, rare ones counting more. Also return whether all were judged."""
    whole = query.build_any_query()
    terms = whole.parts if isinstance(whole, AnyOf) else (whole,) if whole else ()
    weights = await _compute_rarities(places, terms)
    found: Scores = {}
    for number, (key, record) in enumerate(records.items()):
        if number % SLICE_RECORDS == 0:
            await asyncio.sleep(0)
            if number and deadline.has_passed:
                return found, False
        described = "\n".join(part for part in (record.type, record.text) if part)
        fields = split_fields(record.name or "", described, "")
        score = sum(w for term, w in zip(terms, weights, strict=True) if is_match(fields, term))
        if score:
            found[key] = score
    return found, True


class _PlaceRecords(Value, frozen=False):
    records: list[Record] = field(default_factory=list[Record])
    touched: set[str] = field(default_factory=set[str])
    retold: set[str] = field(default_factory=set[str])


async def _read_all(places: Sequence[SearchPlace], as_of: int | None, found: Sequence[_PlaceRecords]) -> bool:
    """Add records to `found` in chunks, so that partial results exist when the time is up."""
    asked = zip(places, found, strict=True)
    await asyncio.gather(*(_read_place(place, as_of, one) for place, one in asked))
    return True


async def _read_place(place: SearchPlace, as_of: int | None, found: _PlaceRecords) -> None:
    store, where = place.store, place.where
    if as_of is not None:
        await _read_touched(store, where, as_of, found)
    if where.deleted is not False:
        async for gone in store.scan_pages(replace(where, deleted=True), CHUNK_RECORDS, order="newest"):
            found.records += [record for record in gone if is_unchanged_since(record, as_of)]


async def _read_touched(store: RecordStore, where: RecordFilter, as_of: int, found: _PlaceRecords) -> None:
    last = await _find_last_change(store, as_of)
    since = RecordFilter(kinds=where.kinds, ids=where.ids, created_before=as_of, touched_after=as_of, deleted=None)
    async for now in store.scan_pages(since, CHUNK_RECORDS, order="newest"):
        for record, then in await _rewind_records(store, now, last, as_of):
            found.touched.add(record.id)
            if then is not None and is_selected(then, replace(where, touched_after=None)):
                found.records.append(then)
                if (then.text, then.name) != (record.text, record.name):
                    found.retold.add(record.id)


async def _rewind_records(
    store: RecordStore, now: Sequence[Record], last: int, as_of: int
) -> list[tuple[Record, Record | None]]:
    """Pair each record with its state after change `last`, or with None if it did not exist yet."""
    edits: dict[str, list[Edit]] = {record.id: [] for record in now}
    for _, edit in await store.read_history([record.ref for record in now], after=last):
        edits[edit.id or ""].append(edit)
    return [(record, _rewind(record, edits[record.id], as_of)) for record in now]


async def _find_last_change(store: RecordStore, at: int) -> int:
    """Return the number of the last change up to this time."""
    low, high = 0, await store.get_revision()
    while low < high:
        middle = (low + high + 1) // 2
        change = next(iter(await store.read_changes(after=middle - 1, limit=1)), None)
        if change is None or change.at > at:
            high = middle - 1
        else:
            low = change.seq
    return low


def _rewind(record: Record, edits: Sequence[Edit], as_of: int) -> Record | None:
    values: dict[str, Any] = {}
    for edit in reversed(edits):
        if edit.before is None:
            return None
        values |= edit.before
    if "tags" in values:
        values["tags"] = tuple(values["tags"])
    updates = sum(edit.operation == "update" for edit in edits)
    return replace(record, **values, updated_at=min(record.updated_at, as_of), version=record.version - updates)


async def _compute_rarities(places: Sequence[SearchPlace], terms: Sequence[WordQuery]) -> list[float]:
    words = {term: _get_first_word(term) for term in terms}
    asked = sorted({word for word in words.values() if word})
    shares = await asyncio.gather(*(place.store.measure_words(asked) for place in places))
    return [compute_rarity(max((share.get(words[term], 0.0) for share in shares), default=0.0)) for term in terms]


def _get_first_word(term: WordQuery) -> str:
    match term:
        case WordPhrase(words):
            return words[0]
        case AnyOf(parts):
            return _get_first_word(parts[0])
        case _:
            return ""
