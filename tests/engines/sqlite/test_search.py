from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.records import Delete, Match, Record, RecordFilter, Update, Weights
from everkept.engines.sqlite import search
from everkept.engines.sqlite.connection import Connection, create
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.schema import PROJECT
from everkept.engines.sqlite.search import Doclist
from everkept.engines.sqlite.store import SqliteStore
from everkept.language.words import AnyOf, parse_query
from examples import examples
from records import DAY_ONE, batch, entity, note, record_ref

VOCABULARY = [f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(400)]
QUERIES = [
    "waa wab wac wad",
    "waa nowhere",
    "wab wba wca wda",
    "waa getWabWac wad",
    "wab node.js waf-wag",
    "waa wba* wcd",
    "日本語 waa",
    "(waa NOT wab) OR wac",
    "(waa AND wab) OR wac OR (wad AND wae)",
    "waas waa wabs",
]


class Beside:
    """One file asked in two ways: by arrays, and as FTS5 itself ranks it."""

    def __init__(self, path: Path) -> None:
        create(path, PROJECT)
        self.database = Database(path, PROJECT)
        self.arrays = SqliteStore(self.database, "project", 1, lambda: DAY_ONE, many=0)
        self.fts5 = SqliteStore(self.database, "project", 1, lambda: DAY_ONE)

    async def both(
        self, text: str, where: RecordFilter | None = None, limit: int = 50, weights: Any = None
    ) -> list[Match]:
        """What both say: the same records with the same scores."""
        query = parse_query(text)
        words = query.expression or query.build_any_query()
        assert isinstance(words, AnyOf)
        asked = (words, where or RecordFilter(), weights or Weights(), limit)
        by_arrays, by_fts5 = await self.arrays.match(*asked), await self.fts5.match(*asked)
        scores = [match.score for match in by_arrays]
        assert scores == pytest.approx([match.score for match in by_fts5], rel=1e-9)
        words_alone = [word for word in text.split() if word in VOCABULARY]
        shares = await self.fts5.measure_words(words_alone)
        assert await self.arrays.measure_words(words_alone) == pytest.approx(shares)
        told = {(match.id, match.parent) for match in by_fts5 if match.score > min(scores)}
        assert told <= {(match.id, match.parent) for match in by_arrays}
        return by_arrays


@pytest.fixture
async def beside(tmp_path: Path) -> AsyncIterator[Beside]:
    made = Beside(tmp_path / "project.db")
    yield made
    await made.database.close()


def talk(count: int, seed: int = 1, **more: Any) -> list[Record]:
    """Turns of a conversation in words of which few are common."""
    chance = np.random.default_rng(seed)
    extras = ["", "", "", "getWabWac", "node.js", "waf-wag", "日本語", "Wafwag"]
    records: list[Record] = []
    for number in range(count):
        picked = chance.zipf(1.3, chance.integers(1, 12)) % len(VOCABULARY)
        words = [VOCABULARY[pick] for pick in picked]
        text = " ".join([*words, extras[chance.integers(0, len(extras))]])
        fields = {
            "id": f"{seed}-{number}",
            "kind": "turn",
            "text": text,
            "name": words[0] if number % 9 == 0 else None,
            "session": f"s{number // 50}",
            "position": number % 50,
            "importance": number / count,
            "tags": ("rare",) if number % 100 == 0 else ("common",),
            "created_at": DAY_ONE,
            "updated_at": DAY_ONE,
        }
        records.append(Record(**(fields | more)))
    return records


async def test_arrays_rank_as_fts5_does(beside: Beside) -> None:
    await beside.arrays.commit(batch(entity("waa"), note("waa", "wab"), *talk(3_000)))
    for query in QUERIES:
        for weights in (Weights(), Weights(name=1.0, text=2.5, context=0.0)):
            for limit in (1, 10, 500):
                assert await beside.both(query, limit=limit, weights=weights)


@pytest.mark.parametrize(
    "where",
    [
        RecordFilter(kinds=("entity",)),
        RecordFilter(sessions=("s3",)),
        RecordFilter(tags=("rare",)),
        RecordFilter(tags=("common",)),
        RecordFilter(min_importance=0.99),
        RecordFilter(parents=("waa",)),
        RecordFilter(ids=("1-3", "1-5", "nobody")),
        RecordFilter(ids=()),
        RecordFilter(deleted=True),
        RecordFilter(visible_to="s1", after=DAY_ONE),
    ],
    ids=repr,
)
async def test_arrays_keep_to_what_is_meant(beside: Beside, where: RecordFilter) -> None:
    await beside.arrays.commit(batch(entity("waa"), note("waa", "wab"), *talk(2_500)))
    for limit in (3, 40):
        await beside.both("waa wab wac wad", where, limit)


async def test_a_word_that_counts_nothing_still_matches(beside: Beside) -> None:
    await beside.arrays.commit(batch(entity("waa"), note("waa", "one"), note("waa", "two")))
    found = await beside.both("waa nowhere", RecordFilter(kinds=("observation",)), 9, Weights(context=0))
    assert {match.id: match.score for match in found} == {"one": 0, "two": 0}


async def test_nothing_is_found_where_nobody_has_a_word(beside: Beside) -> None:
    await beside.arrays.commit(batch(entity("waa")))
    query = parse_query("no such words").build_any_query()
    assert query is not None
    assert await beside.arrays.match(query, RecordFilter(), Weights(), 10) == []


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "text", "name", "move", "delete", "purge", "nothing"]),
        st.integers(0, 59),
        st.lists(st.sampled_from([*VOCABULARY[:6], "getWabWac"]), max_size=5),
    ),
    min_size=1,
    max_size=12,
)


@given(
    steps=STEPS,
    kept=st.sampled_from([1, 20]),
    near_end=st.sampled_from([0, 5, 10_000]),
    quicker=st.sampled_from([0, 5, 300]),
)
@settings(max_examples=examples(60), deadline=None)
async def test_arrays_follow_whatever_is_committed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]], kept: int, near_end: int, quicker: int
) -> None:
    beside = Beside(tmp_path_factory.mktemp("postings") / "project.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "MIN_CACHED_ROWS", kept)
        patch.setattr(search, "RECENT_KEYS", near_end)
        patch.setattr(search, "ROWS_PER_LOOKUP", quicker)
        await beside.arrays.commit(batch(*talk(60)))
        await beside.arrays.commit(batch(note("1-0", "waa wab", name="wac")))
        await beside.both(QUERIES[0])
        for number, (step, which, words) in enumerate(steps):
            await _take(beside.fts5, step, f"1-{which}", " ".join(words), number)
            await beside.both(QUERIES[0])
        await beside.both(QUERIES[3])
    await beside.database.close()


async def _take(store: SqliteStore, step: str, record_id: str, text: str, number: int) -> None:
    found = await store.get([record_id])
    match step:
        case "insert":
            more = {"id": f"new-{number}", "session": "s0", "position": 60 + number % 2}
            await store.commit(batch(*talk(1, number + 2, text=text, **more)))
        case "purge":
            await store.purge([record_ref(record_id)])
        case "delete" if found:
            await store.commit(batch(Delete(record_ref(record_id))))
        case "text" | "name" if found:
            await store.commit(batch(Update(record_id, {step: text}, found[0].version)))
        case "move" if found:
            await store.commit(batch(Update(record_id, {"position": 60}, found[0].version)))
        case _:
            pass


async def test_a_record_that_was_gone_before_it_was_seen_is_no_trouble(beside: Beside) -> None:
    await beside.arrays.commit(batch(*talk(20)))
    await beside.both("wab wac")
    new = talk(200, seed=5)
    await beside.arrays.commit(batch(*new, *(Delete(record.ref) for record in new)))
    await beside.both("wab wac")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The terms whose arrays are read as a whole."""
    terms: list[str] = []
    reading = search.read_term

    def noted(db: Connection, term: str) -> Doclist:
        terms.append(term)
        return reading(db, term)

    monkeypatch.setattr(search, "read_term", noted)
    return terms


async def test_the_arrays_of_common_words_are_read_once(beside: Beside, read: list[str]) -> None:
    await beside.arrays.commit(batch(*talk(2_000)))
    for _ in range(3):
        await beside.both("wab wac")
    for number in range(5):
        await beside.arrays.commit(batch(*talk(40, seed=7 + number, session=f"new {number}")))
        await beside.both("wab wac")
    assert read == ["wab", "wac"]


async def test_an_array_is_read_anew_when_most_of_it_is_new(beside: Beside, read: list[str]) -> None:
    await beside.arrays.commit(batch(*talk(2_000)))
    await beside.both("wab wac")
    await beside.arrays.commit(batch(*talk(2_000, seed=7)))
    await beside.both("wab wac")
    assert read == ["wab", "wac"] * 2


async def test_what_changed_long_ago_is_asked_for_row_by_row(
    beside: Beside, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "RECENT_KEYS", 10)
    monkeypatch.setattr(search, "ROWS_PER_LOOKUP", 1)
    await beside.arrays.commit(batch(*talk(2_000)))
    await beside.both("wab wac")
    await beside.arrays.commit(
        batch(
            Update("1-5", {"text": "wab wab wab"}, 1),
            Update("1-500", {"text": "nothing"}, 1),
            Delete(record_ref("1-700")),
        )
    )
    found = await beside.both("wab wac", limit=2_000)
    assert "1-5" in {match.id for match in found}
    assert "1-700" not in {match.id for match in found}
    assert read == ["wab", "wac"]


@pytest.mark.parametrize("query", ["wab.wac waa", "getWabWac waa", "wzz.wac waa", "getWabWab waa"])
async def test_words_that_belong_together_count_as_in_fts5(beside: Beside, query: str) -> None:
    await beside.arrays.commit(batch(*talk(2_000), note("1-0", "getWabWab wab.wac wab-wac")))
    for weights in (Weights(), Weights(name=1.0, text=2.5, context=0.0)):
        await beside.both(query, limit=500, weights=weights)


async def test_a_word_may_be_in_a_row_any_number_of_times(beside: Beside) -> None:
    often = [note("1-0", "waa " * times) for times in (255, 256, 3_000)]
    await beside.arrays.commit(batch(*talk(600), *often[:1]))
    await beside.both("waa wab")
    await beside.arrays.commit(batch(*often[1:]))
    await beside.both("waa wab")


async def test_no_more_arrays_are_kept_than_there_is_room_for(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_CACHED_BYTES", 5_000)
    monkeypatch.setattr(search, "MIN_CACHED_ROWS", 10)
    await beside.arrays.commit(batch(*talk(1_000)))
    for number, query in enumerate(("waa wab", "wac wad", "waa wad", "wae waf wag")):
        await beside.both(query)
        await beside.arrays.commit(batch(*talk(20, seed=100 + number, name=None)))
    arrays = beside.arrays._get_postings()
    sizes = [kept.packed.nbytes for kept in arrays._kept.values()]
    assert 0 < sum(sizes) <= 5_000
    assert sum(sizes) == arrays._kept_bytes


async def test_small_stores_ask_fts5(beside: Beside) -> None:
    await beside.fts5.commit(batch(*talk(50)))
    await beside.both("waa wab")
    assert beside.fts5._postings is None
