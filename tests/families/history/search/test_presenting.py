import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import Where
from everkept.families.history.search.answers import MemoryResult
from everkept.families.history.search.presenting import (
    LONGEST_BESIDE,
    LONGEST_CODE,
    LONGEST_CONTENT,
    presented,
    stats_of,
)
from everkept.families.history.search.surroundings import surroundings
from everkept.retrieval.profile import Hit
from making import DAY_ONE
from telling import MINUTE, Said, Written, assistant, tell, user


async def shown(store: RecordStore, ids: list[str], query: str) -> list[MemoryResult]:
    records = await store.get(ids)
    around = await surroundings(store, records)
    return presented([Hit(record, 0.12345) for record in records], query, around)


@pytest.mark.parametrize("words", ["needle", "needles"])
async def test_a_long_turn_is_shown_around_what_was_asked(store: RecordStore, words: str) -> None:
    text = "hay " * 2_000 + "the needle lies here " + "hay " * 2_000
    [turn] = await tell(store, "s1", text)
    [result] = await shown(store, [turn], words)
    assert "the needle lies here" in result.content
    assert len(result.content) <= LONGEST_CONTENT
    assert "the **needle** lies here" in result.highlights[0]


async def test_code_may_be_longer_and_begins_at_the_line_that_answers(store: RecordStore) -> None:
    code = "x = 1\n" * 400 + "def needle():\n" + "y = 2\n" * 400
    await tell(store, "s1", user("?"), assistant("!", code=(Written(code),)))
    record = next(r for r in await store.scan(Where()) if r.kind == "code")
    [result] = await shown(store, [record.id], "needle")
    assert result.content.startswith("… def needle():")
    assert LONGEST_CONTENT < len(result.content) <= LONGEST_CODE


async def test_the_turns_beside_are_clipped(store: RecordStore) -> None:
    ids = await tell(store, "s1", "before " * 100, "here", "after")
    [result] = await shown(store, [ids[1]], "here")
    assert len(result.context.before or "") == LONGEST_BESIDE
    assert result.context.after == "after"
    assert result.relevance_score == 0.123


async def test_participants_are_those_of_the_whole_conversation(store: RecordStore) -> None:
    talk = [Said("Ada", "one"), Said("Bo", "two"), *(Said("Ada", f"more {n}") for n in range(9))]
    ids = await tell(store, "s1", *talk)
    [result] = await shown(store, [ids[9]], "here")
    assert result.context.participants == ["Ada", "Bo"]


async def test_turns_of_another_program_do_not_stand_beside(store: RecordStore) -> None:
    [turn] = await tell(store, "s1", "alone")
    await tell(store, "s1", "zero", "one", source="codex")
    [result] = await shown(store, [turn], "alone")
    assert (result.context.before, result.context.after) == (None, None)


async def test_the_time_range_is_that_of_the_results(store: RecordStore) -> None:
    ids = await tell(store, "s1", "one", "two", "three", at=DAY_ONE - 2 * MINUTE)
    stats = stats_of(await shown(store, [ids[2], ids[0]], "x"))
    assert stats.time_range is not None
    assert (stats.time_range.oldest, stats.time_range.newest) == (
        "2023-11-14T22:11:20.000Z",
        "2023-11-14T22:13:20.000Z",
    )
    assert stats_of([]).time_range is None
