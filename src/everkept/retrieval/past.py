"""What the word index does not hold: records as they once were, and forgotten ones."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.record_match import Fields, fields_of, fits, matches
from everkept.core.records import Edit, Record, Where
from everkept.language.rarity import rarity_of
from everkept.language.words import AnyOf, Phrase, Query, WordQuery
from everkept.retrieval.legs import Key, Scores
from everkept.retrieval.profile import Deadline, Place
from everkept.values import Value, field, replace

CHUNK = 500  # records that are read at once without an index, the newest first
LEFT_FOR_THE_REST = 0.5  # of the time, when there are many of them
AT_ONCE = 100  # records that are judged before others get their turn


LATE = "what is past or forgotten"


class Beyond(Value):
    """Records that no index answers for, and those whose present state is not asked about."""

    records: dict[Key, Record] = field(default_factory=dict[Key, Record])
    hidden: frozenset[Key] = frozenset()
    retold: frozenset[Key] = frozenset()  # those that had another text, so that no vector fits
    is_whole: bool = True  # False where not all could be read in time


async def beyond(places: Sequence[Place], as_of: int | None, deadline: Deadline) -> Beyond:
    """As far as the places ask for the past or for what is deleted, and as the time suffices."""
    if as_of is None and all(place.where.deleted is False for place in places):
        return Beyond()
    found = [_Unindexed() for _ in places]
    reading = _read_all(places, as_of, found)
    is_whole = await deadline.sooner(LEFT_FOR_THE_REST).one(reading) is not None
    return Beyond(
        {(i, record.id): record for i, one in enumerate(found) for record in one.records},
        frozenset((i, record_id) for i, one in enumerate(found) for record_id in one.touched),
        frozenset((i, record_id) for i, one in enumerate(found) for record_id in one.retold),
        is_whole,
    )


def is_as_it_was(record: Record, as_of: int | None) -> bool:
    """Whether nobody has changed or deleted it since: what is not so is never given as past."""
    return as_of is None or max(record.updated_at, record.deleted_at or 0) <= as_of


async def judged(
    places: Sequence[Place], records: Mapping[Key, Record], query: Query, deadline: Deadline
) -> tuple[Scores, bool]:
    """What share of the query's words each record has, rare ones counting more; and whether all
    could be read in time."""
    whole = query.any_term()
    terms = whole.parts if isinstance(whole, AnyOf) else (whole,) if whole else ()
    weights = await _rarities(places, terms)
    found: Scores = {}
    for number, (key, record) in enumerate(records.items()):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
            if number and deadline.has_passed:
                return found, False
        fields = _fields(record)
        score = sum(w for term, w in zip(terms, weights, strict=True) if matches(fields, term))
        if score:
            found[key] = score
    return found, True


class _Unindexed(Value, frozen=False):
    records: list[Record] = field(default_factory=list[Record])
    touched: set[str] = field(default_factory=set[str])
    retold: set[str] = field(default_factory=set[str])


async def _read_all(
    places: Sequence[Place], as_of: int | None, found: Sequence[_Unindexed]
) -> bool:
    """Adds chunk by chunk to what is found, so that it is there when the time is up."""
    asked = zip(places, found, strict=True)
    await asyncio.gather(*(_read_place(place, as_of, one) for place, one in asked))
    return True


async def _read_place(place: Place, as_of: int | None, found: _Unindexed) -> None:
    store, where = place.store, place.where
    if as_of is not None:
        await _read_touched(store, where, as_of, found)
    if where.deleted is not False:
        async for gone in _chunks(store, replace(where, deleted=True)):
            found.records += [record for record in gone if is_as_it_was(record, as_of)]


async def _read_touched(store: RecordStore, where: Where, as_of: int, found: _Unindexed) -> None:
    last = await _last_change(store, as_of)
    since = Where(
        kinds=where.kinds, ids=where.ids, created_before=as_of, touched_after=as_of, deleted=None
    )
    async for now in _chunks(store, since):
        for record, then in await _as_they_were(store, now, last, as_of):
            found.touched.add(record.id)
            if then is not None and fits(then, replace(where, touched_after=None)):
                found.records.append(then)
                if (then.text, then.name) != (record.text, record.name):
                    found.retold.add(record.id)


async def _chunks(store: RecordStore, where: Where) -> AsyncIterator[list[Record]]:
    after: str | None = None
    while some := await store.scan(where, order="newest", after=after, limit=CHUNK):
        yield some
        after = some[-1].id


async def _as_they_were(
    store: RecordStore, now: Sequence[Record], last: int, as_of: int
) -> list[tuple[Record, Record | None]]:
    """Each record with what it was after the last change then, or None if it was not there yet."""
    edits: dict[str, list[Edit]] = {record.id: [] for record in now}
    for _, edit in await store.history([record.ref for record in now], after=last):
        edits[edit.id or ""].append(edit)
    return [(record, _rewound(record, edits[record.id], as_of)) for record in now]


async def _last_change(store: RecordStore, at: int) -> int:
    """The number of the last change that was made by then."""
    low, high = 0, await store.revision()
    while low < high:
        middle = (low + high + 1) // 2
        change = next(iter(await store.changes(after=middle - 1, limit=1)), None)
        if change is None or change.at > at:
            high = middle - 1
        else:
            low = change.seq
    return low


def _rewound(record: Record, edits: Sequence[Edit], as_of: int) -> Record | None:
    values: dict[str, Any] = {}
    for edit in reversed(edits):
        if edit.before is None:
            return None
        values |= edit.before
    if "tags" in values:
        values["tags"] = tuple(values["tags"])
    updates = sum(edit.operation == "update" for edit in edits)
    return replace(
        record, **values, updated_at=min(record.updated_at, as_of), version=record.version - updates
    )


def _fields(record: Record) -> Fields:
    described = "\n".join(part for part in (record.type, record.text) if part)
    return fields_of(record.name or "", described, "")


async def _rarities(places: Sequence[Place], terms: Sequence[WordQuery]) -> list[float]:
    words = {term: _first_word(term) for term in terms}
    asked = sorted({word for word in words.values() if word})
    shares = await asyncio.gather(*(place.store.frequencies(asked) for place in places))
    return [
        rarity_of(max((share.get(words[term], 0.0) for share in shares), default=0.0))
        for term in terms
    ]


def _first_word(term: WordQuery) -> str:
    match term:
        case Phrase(words):
            return words[0]
        case AnyOf(parts):
            return _first_word(parts[0])
        case _:
            return ""
