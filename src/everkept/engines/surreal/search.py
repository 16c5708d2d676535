"""The words of records, stored in step with them, and what a word query finds among them.

A word is found by its index, and one that stands behind others by that too: the columns have a
blank around each word, so that whether they stand together is a question of the text alone. The
beginning of a word is in no index: for it all columns are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everkept.core.records import Match, Weights
from everkept.core.store import MatchWords, MeasureWords
from everkept.engines.stored_text import Aged, Place, Shift, Worded, reach
from everkept.engines.surreal.queries import conditions, parent_of
from everkept.engines.surreal.rows import Row, field_to, id_of, place_to, record_from, thing, things
from everkept.engines.surreal.schema import WORDED, Tables, Writing
from everkept.language.spellings import stem, tokens
from everkept.language.words import (
    AllOf,
    AnyOf,
    Phrase,
    Prepared,
    Without,
    WordQuery,
    indexed_prefix,
    joined_texts,
    prepared,
)
from everkept.values import Value, field, replace

# In a column without words: a row of which the database has no word does not count among those
# whose number says how rare a word is. No word is written so.
NO_WORD = "-"

_CHILDREN = (
    "SELECT * FROM record WITH INDEX record_parent WHERE parent IN $ids AND deleted_at IS NONE"
)
_AT_PLACES = (
    "SELECT * FROM record WITH INDEX record_place WHERE place IN $places AND deleted_at IS NONE"
)


async def rewrite_words(tables: Tables, shift: Shift, writing: Writing) -> None:
    """Adds what makes the index hold of each record what it is, and of others nothing."""
    found, lost = await reach(shift, _Stored(tables))
    writing.delete(things("word", lost))
    writing.put(_rows(shift, found))


def stems(texts: Iterable[Prepared]) -> str:
    """The words of a column, each with a blank before and behind it."""
    return f" {' '.join(map(stem, tokens(joined_texts(list(texts))))) or NO_WORD} "


class _Stored(Value):
    """The surroundings of whatever changes in a store."""

    tables: Tables

    async def children(self, record_ids: Sequence[str]) -> Iterable[Aged]:
        return _aged(await self.tables.ask(_CHILDREN, ids=things("record", record_ids)))

    async def standing_at(self, places: Sequence[Place]) -> Iterable[Aged]:
        wanted = [place_to(session, position) for session, position in places]
        return _aged(await self.tables.ask(_AT_PLACES, places=wanted))

    async def records(self, record_ids: Sequence[str]) -> Iterable[Aged]:
        return _aged(await self.tables.ask("SELECT * FROM $ids", ids=things("record", record_ids)))


def _aged(rows: Iterable[Row]) -> list[Aged]:
    return [(row["age"], record_from(row)) for row in rows]


def _rows(shift: Shift, found: Iterable[Worded]) -> list[dict[str, Any]]:
    ready: dict[str, Prepared] = {}

    def prepare(text: str) -> Prepared:
        # A text stands in the context of its neighbours too, and is prepared once.
        if text not in ready:
            ready[text] = prepared(text)
        return ready[text]

    def row(worded: Worded) -> dict[str, Any]:
        record, context = worded
        described = [part for part in (record.type, record.text) if part]
        columns = {"name": [record.name or ""], "text": described, "context": context}
        return {
            "id": thing("word", record.id),
            "of": thing("record", record.id),
            "age": shift.ages[record.id],
            "kind": field_to("kind", record.kind),
            "parent": field_to("parent", record.parent),
            **{name: stems(map(prepare, texts)) for name, texts in columns.items()},
        }

    return [row(worded) for worded in found]


LEAST = 0.01  # what a hit counts however common its word; BM25 itself may say less than nothing

Scores = dict[str, float]


class _Asking(Value, frozen=False):
    """The statements of a query, each for one column and one or more words."""

    filters: str
    statements: list[str] = field(default_factory=list[str])
    values: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, condition: str, scored: str) -> None:
        self.statements.append(
            f"SELECT of, age, parent, {scored} AS score FROM word "
            f"WHERE {condition} AND {self.filters}"
        )

    def value(self, value: Any) -> str:
        name = f"w{len(self.values)}"
        self.values[name] = value
        return f"${name}"


async def match(tables: Tables, question: MatchWords) -> list[Match]:
    if question.limit <= 0:
        return []
    await tables.ready()
    # The index has live records alone.
    wanted = conditions(replace(question.where, deleted=None), beside=True)
    asking = _Asking(wanted.text)
    leaves: list[WordQuery] = []
    if tables.is_modern and _are_plain(question.words):
        leaves.append(question.words)
        _ask_any(asking, [stem(leaf.words[0]) for leaf in _leaves(question.words)])
    else:
        for leaf in dict.fromkeys(_leaves(question.words)):
            leaves.append(leaf)
            _ask_phrase(asking, leaf)
    answers = await tables.ask_all(asking.statements, {**wanted.values, **asking.values})
    rows: dict[str, Row] = {}
    found: dict[WordQuery, Scores] = {}
    for number, leaf in enumerate(leaves):
        columns = answers[number * len(WORDED) : (number + 1) * len(WORDED)]
        found[leaf] = _scores(columns, question.weights, rows)
    best = sorted(
        _combined(question.words, found).items(), key=lambda hit: (-hit[1], rows[hit[0]]["age"])
    )
    return [Match(i, parent_of(rows[i]), score) for i, score in best[: question.limit]]


async def frequencies(tables: Tables, question: MeasureWords) -> Mapping[str, float]:
    wanted = list(dict.fromkeys(question.words))
    statements = ["SELECT count() AS count FROM word GROUP ALL"]
    for number in range(len(wanted)):
        # Not by one condition: version 2 counts a row for each column that has the word.
        columns = [f"(SELECT VALUE id FROM word WHERE {c} @0@ $w{number})" for c in WORDED]
        either = f"array::union(array::union({columns[0]}, {columns[1]}), {columns[2]})"
        statements.append(f"RETURN array::len({either})")
    values = {f"w{number}": stem(word) for number, word in enumerate(wanted)}
    live, *counts = await tables.ask_all(statements, values)
    many = (live[0]["count"] if live else 0) or 1
    return {word: count / many for word, count in zip(wanted, counts, strict=True)}


def _are_plain(words: WordQuery) -> bool:
    """Whether any of some single words will do."""
    return isinstance(words, AnyOf) and all(
        isinstance(part, Phrase) and len(part.words) == 1 and not part.prefix
        for part in words.parts
    )


def _leaves(words: WordQuery) -> list[Phrase]:
    match words:
        case Phrase():
            return [words]
        case AllOf(parts) | AnyOf(parts):
            return [leaf for part in parts for leaf in _leaves(part)]
        case Without(wanted, unwanted):
            return [*_leaves(wanted), *_leaves(unwanted)]


def _ask_any(asking: _Asking, words: Sequence[str]) -> None:
    text = asking.value(" ".join(dict.fromkeys(words)))
    for column in WORDED:
        asking.add(f"{column} @0,OR@ {text}", "search::score(0)")


def _ask_phrase(asking: _Asking, phrase: Phrase) -> None:
    *first, last = phrase.words
    stems = [stem(word) for word in first]
    if phrase.prefix:
        together = f" {' '.join([*stems, indexed_prefix(last)])}"
    else:
        stems.append(stem(last))
        together = f" {' '.join(stems)} "
    indexed = asking.value(" ".join(stems)) if stems else ""
    text = asking.value(together) if phrase.prefix or first else ""
    for column in WORDED:
        tests = [f"{column} @0@ {indexed}"] if indexed else []
        tests += [f"{column} CONTAINS {text}"] if text else []
        asking.add(" AND ".join(tests), "search::score(0)" if indexed else "1.0")


def _scores(columns: Sequence[Sequence[Row]], weights: Weights, rows: dict[str, Row]) -> Scores:
    """The weighted sums over the columns; notes the rows that were found."""
    scores: Scores = {}
    for found, weight in zip(columns, (weights.name, weights.text, weights.context), strict=True):
        for row in found:
            record_id = id_of(row["of"])
            rows[record_id] = row
            scored = weight * max(row["score"], LEAST)
            scores[record_id] = scores.get(record_id, 0.0) + scored
    return scores


def _combined(words: WordQuery, found: Mapping[WordQuery, Scores]) -> Scores:
    if words in found:
        return found[words]
    match words:
        case AnyOf(parts):
            return _summed([_combined(part, found) for part in parts])
        case AllOf(parts):
            every = [_combined(part, found) for part in parts]
            common = set(every[0]).intersection(*every[1:]) if every else set[str]()
            return {i: score for i, score in _summed(every).items() if i in common}
        case Without(wanted, unwanted):
            without = _combined(unwanted, found)
            return {i: s for i, s in _combined(wanted, found).items() if i not in without}
        case Phrase():
            raise TypeError(words)


def _summed(every: Sequence[Scores]) -> Scores:
    total: Scores = {}
    for scores in every:
        for record_id, score in scores.items():
            total[record_id] = total.get(record_id, 0.0) + score
    return total
