"""Words of records, stored together with them, and word search.

An index finds a word, and the words of a phrase. Each word in a column has a space on both sides, so a phrase is
checked by its text. No index finds the beginning of a word, so a prefix query reads all columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everkept.core.records import Match, Weights
from everkept.core.store import MatchWords, MeasureWords
from everkept.engines.stored_text import AgedRecord, IndexEntry, RecordShift, SessionPlace, find_index_changes
from everkept.engines.surreal.queries import build_filter, get_parent_id
from everkept.engines.surreal.rows import (
    Row,
    decode_id,
    decode_record,
    encode_field,
    encode_id,
    encode_ids,
    encode_place,
)
from everkept.engines.surreal.schema import WORD_COLUMNS, StoreTables, TransactionBuilder
from everkept.language.spellings import split_tokens, stem
from everkept.language.words import (
    AllOf,
    AnyOf,
    PreparedText,
    Without,
    WordPhrase,
    WordQuery,
    compute_indexed_prefix,
    join_index_texts,
    prepare_text,
)
from everkept.values import Value, field, replace

# For a column without words: a row without any word would not count when the database computes how rare a word is. No
# word looks like this.
NO_WORD = "-"

_CHILDREN_QUERY = "SELECT * FROM record WITH INDEX record_parent WHERE parent IN $ids AND deleted_at IS NONE"
_RECORDS_AT_PLACES = "SELECT * FROM record WITH INDEX record_place WHERE place IN $places AND deleted_at IS NONE"


async def rewrite_words(tables: StoreTables, shift: RecordShift, writing: TransactionBuilder) -> None:
    """Add the statements that update the index entries of changed records and delete those of others."""
    found, lost = await find_index_changes(shift, _StoredRecords(tables))
    writing.delete(encode_ids("word", lost))
    writing.put(_encode_words(shift, found))


def format_stems(texts: Iterable[PreparedText]) -> str:
    """Return the words of a column, each with a space on both sides."""
    return f" {' '.join(map(stem, split_tokens(join_index_texts(list(texts))))) or NO_WORD} "


class _StoredRecords(Value):
    """Stored neighbors of changed records."""

    tables: StoreTables

    async def list_children(self, record_ids: Sequence[str]) -> Iterable[AgedRecord]:
        return _decode_aged_records(await self.tables.ask(_CHILDREN_QUERY, ids=encode_ids("record", record_ids)))

    async def list_at_places(self, places: Sequence[SessionPlace]) -> Iterable[AgedRecord]:
        wanted = [encode_place(session, position) for session, position in places]
        return _decode_aged_records(await self.tables.ask(_RECORDS_AT_PLACES, places=wanted))

    async def list_records(self, record_ids: Sequence[str]) -> Iterable[AgedRecord]:
        return _decode_aged_records(await self.tables.ask("SELECT * FROM $ids", ids=encode_ids("record", record_ids)))


def _decode_aged_records(rows: Iterable[Row]) -> list[AgedRecord]:
    return [(row["age"], decode_record(row)) for row in rows]


def _encode_words(shift: RecordShift, found: Iterable[IndexEntry]) -> list[dict[str, Any]]:
    ready: dict[str, PreparedText] = {}

    def prepare(text: str) -> PreparedText:
        # A text is also in the context of its neighbors, so it is prepared once.
        if text not in ready:
            ready[text] = prepare_text(text)
        return ready[text]

    def row(worded: IndexEntry) -> dict[str, Any]:
        record, context = worded
        described = [part for part in (record.type, record.text) if part]
        columns = {"name": [record.name or ""], "text": described, "context": context}
        return {
            "id": encode_id("word", record.id),
            "of": encode_id("record", record.id),
            "age": shift.ages[record.id],
            "kind": encode_field("kind", record.kind),
            "parent": encode_field("parent", record.parent),
            **{name: format_stems(map(prepare, texts)) for name, texts in columns.items()},
        }

    return [row(worded) for worded in found]


MIN_SCORE = 0.01  # minimum score of a hit: BM25 may be negative for a common word

Scores = dict[str, float]


class _WordStatements(Value, frozen=False):
    """Statements of a query, each for one column and one or more words."""

    filters: str
    statements: list[str] = field(default_factory=list[str])
    values: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, condition: str, scored: str) -> None:
        self.statements.append(
            f"SELECT of, age, parent, {scored} AS score FROM word WHERE {condition} AND {self.filters}"
        )

    def bind(self, value: Any) -> str:
        name = f"w{len(self.values)}"
        self.values[name] = value
        return f"${name}"


async def match(tables: StoreTables, question: MatchWords) -> list[Match]:
    if question.limit <= 0:
        return []
    await tables.ensure_ready()
    # The index has only live records.
    wanted = build_filter(replace(question.where, deleted=None), beside=True)
    asking = _WordStatements(wanted.text)
    leaves: list[WordQuery] = []
    if tables.is_modern and _is_plain(question.words):
        leaves.append(question.words)
        _ask_any(asking, [stem(leaf.words[0]) for leaf in _list_phrases(question.words)])
    else:
        for leaf in dict.fromkeys(_list_phrases(question.words)):
            leaves.append(leaf)
            _ask_phrase(asking, leaf)
    answers = await tables.ask_all(asking.statements, {**wanted.values, **asking.values})
    rows: dict[str, Row] = {}
    found: dict[WordQuery, Scores] = {}
    for number, leaf in enumerate(leaves):
        columns = answers[number * len(WORD_COLUMNS) : (number + 1) * len(WORD_COLUMNS)]
        found[leaf] = _score_columns(columns, question.weights, rows)
    best = sorted(_combine_scores(question.words, found).items(), key=lambda hit: (-hit[1], rows[hit[0]]["age"]))
    return [Match(i, get_parent_id(rows[i]), score) for i, score in best[: question.limit]]


async def measure_words(tables: StoreTables, question: MeasureWords) -> Mapping[str, float]:
    wanted = list(dict.fromkeys(question.words))
    statements = ["SELECT count() AS count FROM word GROUP ALL"]
    for number in range(len(wanted)):
        # Not one condition: version 2 counts a row once for each column that has the word.
        columns = [f"(SELECT VALUE id FROM word WHERE {c} @0@ $w{number})" for c in WORD_COLUMNS]
        either = f"array::union(array::union({columns[0]}, {columns[1]}), {columns[2]})"
        statements.append(f"RETURN array::len({either})")
    values = {f"w{number}": stem(word) for number, word in enumerate(wanted)}
    live, *counts = await tables.ask_all(statements, values)
    many = (live[0]["count"] if live else 0) or 1
    return {word: count / many for word, count in zip(wanted, counts, strict=True)}


def _is_plain(words: WordQuery) -> bool:
    """Return whether the query asks for any of several single words."""
    return isinstance(words, AnyOf) and all(
        isinstance(part, WordPhrase) and len(part.words) == 1 and not part.prefix for part in words.parts
    )


def _list_phrases(words: WordQuery) -> list[WordPhrase]:
    match words:
        case WordPhrase():
            return [words]
        case AllOf(parts) | AnyOf(parts):
            return [leaf for part in parts for leaf in _list_phrases(part)]
        case Without(wanted, unwanted):
            return [*_list_phrases(wanted), *_list_phrases(unwanted)]


def _ask_any(asking: _WordStatements, words: Sequence[str]) -> None:
    text = asking.bind(" ".join(dict.fromkeys(words)))
    for column in WORD_COLUMNS:
        asking.add(f"{column} @0,OR@ {text}", "search::score(0)")


def _ask_phrase(asking: _WordStatements, phrase: WordPhrase) -> None:
    *first, last = phrase.words
    stems = [stem(word) for word in first]
    if phrase.prefix:
        together = f" {' '.join([*stems, compute_indexed_prefix(last)])}"
    else:
        stems.append(stem(last))
        together = f" {' '.join(stems)} "
    indexed = asking.bind(" ".join(stems)) if stems else ""
    text = asking.bind(together) if phrase.prefix or first else ""
    for column in WORD_COLUMNS:
        tests = [f"{column} @0@ {indexed}"] if indexed else []
        tests += [f"{column} CONTAINS {text}"] if text else []
        asking.add(" AND ".join(tests), "search::score(0)" if indexed else "1.0")


def _score_columns(columns: Sequence[Sequence[Row]], weights: Weights, rows: dict[str, Row]) -> Scores:
    """Return the weighted sums over the columns, and add the rows to `rows`."""
    scores: Scores = {}
    for found, weight in zip(columns, (weights.name, weights.text, weights.context), strict=True):
        for row in found:
            record_id = decode_id(row["of"])
            rows[record_id] = row
            scored = weight * max(row["score"], MIN_SCORE)
            scores[record_id] = scores.get(record_id, 0.0) + scored
    return scores


def _combine_scores(words: WordQuery, found: Mapping[WordQuery, Scores]) -> Scores:
    if words in found:
        return found[words]
    match words:
        case AnyOf(parts):
            return _sum_scores([_combine_scores(part, found) for part in parts])
        case AllOf(parts):
            every = [_combine_scores(part, found) for part in parts]
            common = set(every[0]).intersection(*every[1:]) if every else set[str]()
            return {i: score for i, score in _sum_scores(every).items() if i in common}
        case Without(wanted, unwanted):
            without = _combine_scores(unwanted, found)
            return {i: s for i, s in _combine_scores(wanted, found).items() if i not in without}
        case WordPhrase():
            raise TypeError(words)


def _sum_scores(every: Sequence[Scores]) -> Scores:
    total: Scores = {}
    for scores in every:
        for record_id, score in scores.items():
            total[record_id] = total.get(record_id, 0.0) + score
    return total
