"""What a word query finds, best first: PostgreSQL's index says who, and bm25 how well."""

from collections.abc import Mapping
from typing import Any

from everkept.core.questions import (
    MatchWords,
    MeasureWords,
)
from everkept.core.records import Match
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.asking import ask, ask_last, most
from everkept.engines.postgres.records.filters import condition
from everkept.engines.postgres.records.rows import given
from everkept.engines.postgres.searching.counting import counted
from everkept.engines.postgres.searching.lexemes import lexemes as lexemes
from everkept.engines.postgres.searching.querying import in_name, in_store, leaves, tsquery
from everkept.engines.postgres.searching.schema import NAMED
from everkept.engines.postgres.searching.scoring import Scorer, idf
from everkept.language.words import AllOf, AnyOf, Phrase, WordQuery
from everkept.values import replace

ENOUGH = 2_000  # records with a rarer word; then none is looked for that has but common ones
RANKED = 5_000  # records that the database ranks; of more that fit, the newest
SCORED = 3  # times as many as are wanted: of these the best are found by bm25
FEWEST_SCORED = 150
MOST_PARTS = 300  # words or phrases of a question
RANKED_BY = 12  # the rarest words, for the database's ranking

# The longer a text, the less; as in bm25, but not as exactly.
_RANK = "%s * ts_rank(%s::real[], r.words, %s::tsquery, 1)"


def match(cursor: Cursor, store: int, question: MatchWords) -> list[Match]:
    if question.limit <= 0:
        return []
    words = question.words
    phrases = leaves(words)
    census = counted(cursor, store, [tsquery(phrase) for phrase in phrases])
    having = dict(zip(phrases, census.fitting, strict=True))
    few = _few(words, having)
    idfs = {phrase: idf(census.records, having[phrase]) for phrase in leaves(few)}
    telling = _telling(few, having)
    is_all = telling == few
    rows = _ranked(cursor, store, replace(question, words=telling), idfs, is_last=is_all)
    if len(rows) < question.limit and not is_all:
        rows = _ranked(cursor, store, replace(question, words=few), idfs, is_last=True)
    meant = words if isinstance(words, AllOf) else few  # a record with only some words is omitted
    scores = Scorer(meant, idfs, question.weights).scores([row[3] for row in rows])
    found = [(score, row) for score, row in zip(scores, rows, strict=True) if score is not None]
    found.sort(key=lambda each: (-each[0], each[1][2]))
    return [
        Match(given(record_id), parent and given(parent), score)
        for score, (record_id, parent, _, _) in found[: question.limit]
    ]


def frequencies(cursor: Cursor, store: int, question: MeasureWords) -> Mapping[str, float]:
    """Return shares; those of common words in a large store are estimates."""
    wanted = list(dict.fromkeys(question.words))
    if not wanted:
        return {}
    census = counted(cursor, store, [tsquery(Phrase((word,))) for word in wanted])
    records = max(census.records, 1)
    return {w: min(n / records, 1.0) for w, n in zip(wanted, census.fitting, strict=True)}


def _few(words: WordQuery, having: Mapping[Phrase, float]) -> WordQuery:
    """Of very many words the rarest; no statement takes any number of them."""
    if not isinstance(words, AllOf | AnyOf) or len(words.parts) <= MOST_PARTS:
        return words
    counts = [(_most(part, having), part) for part in words.parts]
    if isinstance(words, AnyOf):  # what nobody has finds nobody
        counts = [each for each in counts if each[0]] or counts
    counts.sort(key=lambda each: each[0])
    return type(words)(tuple(part for _, part in counts[:MOST_PARTS]))


def _telling(words: WordQuery, having: Mapping[Phrase, float]) -> WordQuery:
    """Of many alternatives the rarest: who has none of them is outdone by those who have."""
    if not isinstance(words, AnyOf):
        return words
    rarest: list[WordQuery] = []
    found = 0.0
    for part in sorted(words.parts, key=lambda part: _most(part, having)):
        if found >= ENOUGH:
            return AnyOf(tuple(rarest))
        rarest.append(part)
        found += _most(part, having)
    return words


def _most(words: WordQuery, having: Mapping[Phrase, float]) -> float:
    """How many records fit, at the most or about."""
    if isinstance(words, Phrase):
        return having[words]
    return sum(having[phrase] for phrase in leaves(words))


def _ranked(
    cursor: Cursor,
    store: int,
    question: MatchWords,
    idfs: Mapping[Phrase, float],
    *,
    is_last: bool,
) -> list[tuple[Any, ...]]:
    """Id, parent, age and words of those that fit, the best ones if there are many."""
    words, weights = question.words, question.weights
    sql, values = condition(replace(question.where, deleted=False))
    rarest = sorted(idfs.items(), key=lambda item: -item[1])[:RANKED_BY]
    scale = max(weights.name, weights.text, weights.context) or 1.0
    shares = [0.0, weights.context / scale, weights.text / scale, weights.name / scale]
    ranks = [each for phrase, telling in rarest for each in (telling, shares, tsquery(phrase))]
    fitting = (
        "SELECT r.id, r.parent, r.age, r.words FROM records r "
        f"WHERE r.store = %s AND r.words @@ %s::tsquery AND {sql}"
    )
    fits = (store, in_store(store, tsquery(words)), *values)
    asking = ask_last if is_last else ask
    return asking(
        cursor,
        # Where the newest are not all, also older ones whose name fits: it says more than any
        # text, and of two such names the shorter one has less beside.
        f"WITH newest AS MATERIALIZED ({fitting} ORDER BY r.age DESC LIMIT {RANKED}), "
        f"named AS ({fitting} AND (SELECT count(*) FROM newest) = {RANKED} "
        f"AND r.age < (SELECT min(age) FROM newest) AND {NAMED} "
        f"ORDER BY length(r.name), r.age LIMIT {RANKED}) "
        "SELECT r.id, r.parent, r.age, r.words::text "
        "FROM (SELECT * FROM newest UNION ALL SELECT * FROM named) r "
        f"ORDER BY {' + '.join([_RANK] * len(rarest))} DESC, r.age LIMIT %s",
        *fits,
        *fits,
        in_store(store, in_name(leaves(words))),
        *ranks,
        most(max(SCORED * question.limit, FEWEST_SCORED)),
    ).fetchall()
