"""The rows of `word` in step with the records."""

from collections.abc import Iterable, Sequence
from typing import Any

from everkept.engines.surreal.rows import Row, field_to, place_to, record_from, thing, things
from everkept.engines.surreal.schema import Tables, Writing
from everkept.engines.word_updates import Aged, Place, Shift, Worded, reach
from everkept.language.spellings import tokens
from everkept.language.stems import stem
from everkept.language.words import Prepared, joined_texts, prepared
from everkept.values import Value

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
