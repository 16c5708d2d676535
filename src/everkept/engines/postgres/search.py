"""Word search: an index finds the records, and bm25 ranks them."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from typing import Any, cast

from everkept.core.records import Match, Weights
from everkept.core.store import MatchWords, MeasureWords
from everkept.engines.postgres.rows import format_filter, unescape_text
from everkept.engines.postgres.schema import NAME_MATCH_CONDITION
from everkept.engines.postgres.statements import Cursor, ask, ask_last, to_limit
from everkept.engines.postgres.word_index import (
    COLUMNS,
    CONTEXT,
    NAME,
    PAGE_MARK,
    STORE_MARK,
    TEXT,
    build_name_tsquery,
    build_tsquery,
    list_phrases,
    list_terms,
    list_unwanted_phrases,
    restrict_to_store,
)
from everkept.language.words import AllOf, AnyOf, Without, WordPhrase, WordQuery
from everkept.values import Value, replace

MAX_EXACT_RECORDS = 20_000  # up to here, all records are counted
SAMPLE_AGES = 400  # ages to sample in a larger store; some belong to links or removed records
MIN_SAMPLE_RECORDS = 100  # below this, a larger sample is taken
MAX_SAMPLE_AGES = 20_000
COMMON_SHARE = 0.02  # of the sample: more frequent words are not counted exactly
MAX_COUNTED_RECORDS = 1_000  # for a word that is rarer in the sample

_LIVE_COUNT = "SELECT count(*) FROM records r WHERE r.store = s.number AND r.deleted_at IS NULL"
_MATCH_COUNT = "SELECT count(*) FROM records r WHERE r.words @@ q.query::tsquery"
_COUNTS_QUERY = (
    f"SELECT s.ages, CASE WHEN s.ages <= %s THEN ({_LIVE_COUNT}) END, CASE WHEN s.ages <= %s "
    f"THEN (SELECT array_agg(({_MATCH_COUNT}) ORDER BY q.number) "
    "FROM unnest(%s::text[]) WITH ORDINALITY AS q(query, number)) END "
    "FROM stores s WHERE s.number = %s"
)
_SAMPLE_COUNTS = (
    "SELECT count(*), (SELECT array_agg((SELECT count(*) FROM sample WHERE "
    "sample.words @@ q.query::tsquery) ORDER BY q.number) "
    "FROM unnest(%s::text[]) WITH ORDINALITY AS q(query, number)) FROM sample"
)
# Ages from the whole store: new records may be about other things than old ones.
_SAMPLE_QUERY = (
    "WITH sample AS MATERIALIZED (SELECT r.words FROM records r WHERE r.store = %s "
    f"AND r.age = ANY(%s::bigint[]) AND r.deleted_at IS NULL) {_SAMPLE_COUNTS}"
)
_RARE_COUNT = (
    f"SELECT count(*) FROM (SELECT 1 FROM records r WHERE r.words @@ q.query::tsquery LIMIT {MAX_COUNTED_RECORDS}) few"
)
_RARE_COUNTS_QUERY = (
    f"SELECT ({_RARE_COUNT}) FROM unnest(%s::text[]) WITH ORDINALITY AS q(query, number) ORDER BY q.number"
)


class WordCounts(Value):
    """Number of live records in a store, and of the records that match each query."""

    records: float
    fitting: Sequence[float]


def count_matches(cursor: Cursor, store: int, tsqueries: Sequence[str]) -> WordCounts:
    """Count the records that match each query. `tsqueries` do not restrict the store."""
    queries = [restrict_to_store(store, query) for query in tsqueries]
    row = ask(cursor, _COUNTS_QUERY, MAX_EXACT_RECORDS, MAX_EXACT_RECORDS, queries, store).fetchone()
    if row is None:
        return WordCounts(0, [0.0] * len(queries))
    ages, records, fitting = row
    if records is not None:
        return WordCounts(records, fitting or [])
    return _estimate_matches(cursor, store, ages, queries)


def _estimate_matches(cursor: Cursor, store: int, ages: int, queries: Sequence[str]) -> WordCounts:
    for size in (SAMPLE_AGES, MAX_SAMPLE_AGES):
        some = range(1, ages + 1, max(ages // size, 1))
        sampled, answered = ask(cursor, _SAMPLE_QUERY, store, list(some), queries).fetchall()[0]
        if sampled >= MIN_SAMPLE_RECORDS:
            break
    else:  # almost all records were removed
        [(_, records, fitting)] = ask(cursor, _COUNTS_QUERY, ages, ages, queries, store).fetchall()
        return WordCounts(records, fitting or [])
    hits = cast(list[int], answered or [])
    estimated = ages * sampled / len(some)
    having: list[float] = [estimated * hit / sampled for hit in hits]
    rare = [n for n, hit in enumerate(hits) if hit < COMMON_SHARE * sampled]
    for n, (count,) in zip(rare, ask(cursor, _RARE_COUNTS_QUERY, [queries[n] for n in rare]), strict=True):
        having[n] = max(having[n], count) if count == MAX_COUNTED_RECORDS else count
    return WordCounts(estimated, having)


# Same as FTS5's bm25().
_K1, _B = 1.2, 0.75
_MIN_IDF = 1e-6
MAX_PATTERN_WORDS = 20  # in a pattern; above this, parsing every lexeme is faster

MAX_UNFILTERED_RECORDS = 50  # up to here, parsing every lexeme is faster than building a pattern

ColumnCounts = tuple[int, int, int]  # in name, text and context
_NO_HITS: ColumnCounts = (0, 0, 0)

# Gets the counts of each phrase in one record, by number.
HitFilter = Callable[[Sequence[ColumnCounts]], bool]


def compute_idf(records: float, having: float) -> float:
    """Return the weight of a word that `having` of the records contain."""
    return max(log((max(records, having) - having + 0.5) / (having + 0.5)), _MIN_IDF)


class RecordHits(Value):
    """Length of a record, and the positions of the query's words in it.

    `positions` maps each lexeme to its positions on each page, in the format of a tsvector.
    """

    length: int
    positions: Mapping[str, Mapping[str, str]]

    def list_positions(self, lexeme: str, *, prefix: bool) -> Iterable[tuple[str, str]]:
        """Return pages and positions of the lexeme, or of all lexemes that begin with it."""
        if not prefix:
            return self.positions.get(lexeme, {}).items()
        every = (pages for found, pages in self.positions.items() if found.startswith(lexeme))
        return (item for pages in every for item in pages.items())


class _Terms(Value):
    """Lexemes of a phrase, computed once and not for every record."""

    first: tuple[str, ...]
    last: str
    prefix: bool

    def count_hits(self, hits: RecordHits) -> ColumnCounts:
        if not self.prefix and self.last not in hits.positions:
            return _NO_HITS
        if self.first:
            return self._count_phrases(hits)
        name = text = context = 0
        is_there = False
        for _, positions in hits.list_positions(self.last, prefix=self.prefix):
            is_there = True
            name += positions.count(NAME)
            text += positions.count(TEXT)
            context += positions.count(CONTEXT)
        if not is_there:
            return _NO_HITS
        if not name and not context:  # a very long text does not keep all positions
            text = max(text, 1)
        return name, text, context

    def _count_phrases(self, hits: RecordHits) -> ColumnCounts:
        """Count how often the words follow each other, page by page."""
        counts = dict.fromkeys(COLUMNS, 0)
        behind = _group_by_page(hits.list_positions(self.last, prefix=self.prefix))
        lexemes = [_group_by_page(hits.list_positions(term, prefix=False)) for term in self.first]
        for page, ends in behind.items():
            starts = [lexeme.get(page, {}) for lexeme in lexemes]
            for position, column in ends.items():
                begins = position - len(self.first)
                if all(start.get(begins + n) == column for n, start in enumerate(starts)):
                    counts[column] += 1
        return (counts["A"], counts["B"], counts["C"]) if any(counts.values()) else _NO_HITS


class Scorer:
    """Scorer of one query. `idfs` are the weights of its phrases."""

    def __init__(self, words: WordQuery, idfs: Mapping[WordPhrase, float], weights: Weights) -> None:
        phrases = dict.fromkeys((*list_phrases(words), *list_unwanted_phrases(words)))
        # By number: hashing the phrases again for every record would take longer than all other work.
        numbers = {phrase: number for number, phrase in enumerate(phrases)}
        self._terms = [_build_terms(phrase) for phrase in phrases]
        self._fits = _build_hit_filter(words, numbers)
        self._idfs = [(numbers[phrase], inverse) for phrase, inverse in idfs.items()]
        self._weights = weights
        self._wanted = {term for terms in self._terms for term in terms.first}
        self._wanted.update(terms.last for terms in self._terms if not terms.prefix)
        self._prefixes = tuple(terms.last for terms in self._terms if terms.prefix)
        # A record lacks most words of a long query, so only its own words are checked.
        self._single: dict[str, list[int]] = {}
        self._involved: list[int] = []
        for number, terms in enumerate(self._terms):
            if terms.first or terms.prefix:
                self._involved.append(number)
            else:
                self._single.setdefault(terms.last, []).append(number)

    def score_all(self, tsvectors: Sequence[str]) -> list[float | None]:
        """Return the scores. A record that does not really match gets None."""
        is_few = len(tsvectors) <= MAX_UNFILTERED_RECORDS
        entry = _ANY_ENTRY if is_few else _build_entry_pattern(self._wanted, self._prefixes)
        every = [self._parse_hits(entry, tsvector) for tsvector in tsvectors]
        mean = sum(hits.length for hits in every) / max(len(every), 1)
        return [self._score(hits, hits.length / mean) for hits in every]

    def _parse_hits(self, entry: "re.Pattern[str]", tsvector: str) -> RecordHits:
        wanted, prefixes = self._wanted, self._prefixes
        positions: dict[str, dict[str, str]] = {}
        length = 1
        for word, page, where in entry.findall(tsvector):
            if word[0] == STORE_MARK:
                length = int(where)
            elif word in wanted or (prefixes and word.startswith(prefixes)):
                positions.setdefault(word, {})[page] = where
        return RecordHits(length, positions)

    def _score(self, hits: RecordHits, relative_length: float) -> float | None:
        times = self._count_hits(hits)
        if not self._fits(times):
            return None
        longer = _K1 * (1 - _B + _B * relative_length)
        weights = self._weights
        total = 0.0
        for number, inverse in self._idfs:
            if (found := times[number]) is not _NO_HITS:
                name, text, context = found
                often = name * weights.name + text * weights.text + context * weights.context
                total += inverse * often * (_K1 + 1) / (often + longer)
        return total

    def _count_hits(self, hits: RecordHits) -> list[ColumnCounts]:
        times = [_NO_HITS] * len(self._terms)
        for number in self._involved:
            times[number] = self._terms[number].count_hits(hits)
        for lexeme in hits.positions:
            for number in self._single.get(lexeme, ()):
                times[number] = self._terms[number].count_hits(hits)
        return times


def _build_entry_pattern(wanted: set[str], prefixes: Sequence[str]) -> "re.Pattern[str]":
    """Return a pattern for these words only, or for any word if they are too many."""
    if len(wanted) + len(prefixes) > MAX_PATTERN_WORDS:
        return _ANY_ENTRY
    named = [re.escape(word) for word in wanted]
    begun = [f"{re.escape(prefix)}[^'{PAGE_MARK}]*" for prefix in prefixes]
    return _compile_entry("|".join((rf"{STORE_MARK}\d+", *named, *begun)))


def _compile_entry(words: str) -> "re.Pattern[str]":
    """Compile the pattern for a lexeme in a tsvector's text, with its page and its positions."""
    return re.compile(rf"'({words})(?:{PAGE_MARK}(\d+))?'(?::(\S+))?")


def _build_terms(phrase: WordPhrase) -> _Terms:
    *first, last = list_terms(phrase)
    return _Terms(tuple(first), last, phrase.prefix)


def _build_hit_filter(words: WordQuery, numbers: Mapping[WordPhrase, int]) -> HitFilter:
    """Return a predicate that tells whether the query matches a record."""
    match words:
        case WordPhrase():
            number = numbers[words]
            return lambda times: times[number] is not _NO_HITS
        case AllOf(parts):
            every = [_build_hit_filter(part, numbers) for part in parts]
            return lambda times: all(fits(times) for fits in every)
        case AnyOf(parts):
            some = [_build_hit_filter(part, numbers) for part in parts]
            return lambda times: any(fits(times) for fits in some)
        case Without(wanted, unwanted):
            is_wanted, is_not = (_build_hit_filter(wanted, numbers), _build_hit_filter(unwanted, numbers))
            return lambda times: is_wanted(times) and not is_not(times)


def _group_by_page(found: Iterable[tuple[str, str]]) -> dict[str, dict[int, str]]:
    """Map each page to its positions and their columns."""
    pages: dict[str, dict[int, str]] = {}
    for page, positions in found:
        if positions:
            here = pages.setdefault(page, {})
            for position in positions.split(","):
                if position[-1] in COLUMNS:
                    here[int(position[:-1])] = position[-1]
    return pages


_ANY_ENTRY = _compile_entry(f"[^'{PAGE_MARK}]+")


ENOUGH_RECORDS = 2_000  # with rarer words; above this, records with only common words are not read
MAX_RANKED_RECORDS = 5_000  # that the database ranks; of more matches, the newest
SCORED_FACTOR = 3  # times the limit: bm25 selects the best of these
MIN_SCORED_RECORDS = 150
MAX_QUERY_PARTS = 300  # words or phrases
MAX_RANKING_WORDS = 12  # for the database's ranking, rarest first

# Longer texts rank lower: an approximation of bm25.
_RANK_EXPRESSION = "%s * ts_rank(%s::real[], r.words, %s::tsquery, 1)"


def match(cursor: Cursor, store: int, question: MatchWords) -> list[Match]:
    if question.limit <= 0:
        return []
    words = question.words
    phrases = list_phrases(words)
    census = count_matches(cursor, store, [build_tsquery(phrase) for phrase in phrases])
    having = dict(zip(phrases, census.fitting, strict=True))
    few = _limit_parts(words, having)
    idfs = {phrase: compute_idf(census.records, having[phrase]) for phrase in list_phrases(few)}
    telling = _select_rarest(few, having)
    is_all = telling == few
    rows = _read_ranked(cursor, store, replace(question, words=telling), idfs, is_last=is_all)
    if len(rows) < question.limit and not is_all:
        rows = _read_ranked(cursor, store, replace(question, words=few), idfs, is_last=True)
    meant = words if isinstance(words, AllOf) else few  # omit records with only some of the words
    scores = Scorer(meant, idfs, question.weights).score_all([row[3] for row in rows])
    found = [(score, row) for score, row in zip(scores, rows, strict=True) if score is not None]
    found.sort(key=lambda each: (-each[0], each[1][2]))
    return [
        Match(unescape_text(record_id), parent and unescape_text(parent), score)
        for score, (record_id, parent, _, _) in found[: question.limit]
    ]


def measure_words(cursor: Cursor, store: int, question: MeasureWords) -> Mapping[str, float]:
    """Return the share of records with each word. In a large store, shares of common words are estimates."""
    wanted = list(dict.fromkeys(question.words))
    if not wanted:
        return {}
    census = count_matches(cursor, store, [build_tsquery(WordPhrase((word,))) for word in wanted])
    records = max(census.records, 1)
    return {w: min(n / records, 1.0) for w, n in zip(wanted, census.fitting, strict=True)}


def _limit_parts(words: WordQuery, having: Mapping[WordPhrase, float]) -> WordQuery:
    """Keep the rarest of very many words, because a statement cannot take any number of them."""
    if not isinstance(words, AllOf | AnyOf) or len(words.parts) <= MAX_QUERY_PARTS:
        return words
    counts = [(_estimate_count(part, having), part) for part in words.parts]
    if isinstance(words, AnyOf):  # omit words that no record has
        counts = [each for each in counts if each[0]] or counts
    counts.sort(key=lambda each: each[0])
    return type(words)(tuple(part for _, part in counts[:MAX_QUERY_PARTS]))


def _select_rarest(words: WordQuery, having: Mapping[WordPhrase, float]) -> WordQuery:
    """Keep the rarest of many alternatives: records with none of them would rank lower anyway."""
    if not isinstance(words, AnyOf):
        return words
    rarest: list[WordQuery] = []
    found = 0.0
    for part in sorted(words.parts, key=lambda part: _estimate_count(part, having)):
        if found >= ENOUGH_RECORDS:
            return AnyOf(tuple(rarest))
        rarest.append(part)
        found += _estimate_count(part, having)
    return words


def _estimate_count(words: WordQuery, having: Mapping[WordPhrase, float]) -> float:
    """Estimate how many records match, or give an upper bound."""
    return sum(having[phrase] for phrase in list_phrases(words))


def _read_ranked(
    cursor: Cursor, store: int, question: MatchWords, idfs: Mapping[WordPhrase, float], *, is_last: bool
) -> list[tuple[Any, ...]]:
    """Return id, parent, age and words of matching records, only the best if there are many."""
    words, weights = question.words, question.weights
    sql, values = format_filter(replace(question.where, deleted=False))
    rarest = sorted(idfs.items(), key=lambda item: -item[1])[:MAX_RANKING_WORDS]
    scale = max(weights.name, weights.text, weights.context) or 1.0
    shares = [0.0, weights.context / scale, weights.text / scale, weights.name / scale]
    ranks = [each for phrase, telling in rarest for each in (telling, shares, build_tsquery(phrase))]
    fitting = (
        f"SELECT r.id, r.parent, r.age, r.words FROM records r WHERE r.store = %s AND r.words @@ %s::tsquery AND {sql}"
    )
    fits = (store, restrict_to_store(store, build_tsquery(words)), *values)
    asking = ask_last if is_last else ask
    return asking(
        cursor,
        # If there are more matches than the newest, add older ones whose name matches. A matching name is more
        # relevant than a text, and a shorter name more than a longer one.
        f"WITH newest AS MATERIALIZED ({fitting} ORDER BY r.age DESC LIMIT {MAX_RANKED_RECORDS}), "
        f"named AS ({fitting} AND (SELECT count(*) FROM newest) = {MAX_RANKED_RECORDS} "
        f"AND r.age < (SELECT min(age) FROM newest) AND {NAME_MATCH_CONDITION} "
        f"ORDER BY length(r.name), r.age LIMIT {MAX_RANKED_RECORDS}) "
        "SELECT r.id, r.parent, r.age, r.words::text "
        "FROM (SELECT * FROM newest UNION ALL SELECT * FROM named) r "
        f"ORDER BY {' + '.join([_RANK_EXPRESSION] * len(rarest))} DESC, r.age LIMIT %s",
        *fits,
        *fits,
        restrict_to_store(store, build_name_tsquery(list_phrases(words))),
        *ranks,
        to_limit(max(SCORED_FACTOR * question.limit, MIN_SCORED_RECORDS)),
    ).fetchall()
