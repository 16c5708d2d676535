from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everkept.core.ports import AccessCount, Library, RecordStore
from everkept.core.records import Batch, Insert, Record, RecordFilter
from everkept.engines.memory.store import MemoryStore
from everkept.errors import InvalidInput
from everkept.retrieval.profile import SearchPlace, SearchProfile
from everkept.retrieval.search import search
from everkept.values import replace
from examples import examples
from memory_shelf import DAY, MEMORIES, MIXED, Shelf, memory
from records import DAY_ONE

KEYWORD = replace(MEMORIES, strategy="keyword")
VECTOR = replace(MEMORIES, strategy="vector")


async def test_one_word_of_the_query_is_enough(shelf: Shelf) -> None:
    await shelf.put(memory("deploys go out on Tuesdays"), memory("the cat is called Minka"))
    found = await shelf.search("when are the deploys of the billing service", KEYWORD)
    assert [hit.record.text for hit in found.hits] == ["deploys go out on Tuesdays"]
    assert (found.strategy, found.tier, found.total) == ("keyword", "any", 1)


async def test_part_of_a_word_is_found_where_no_word_is(shelf: Shelf) -> None:
    await shelf.put(memory("the parser was rewritten"))
    found = await shelf.search("arse", KEYWORD)
    assert (len(found.hits), found.tier) == (1, "substring")


async def test_an_expression_is_taken_at_its_word(shelf: Shelf) -> None:
    await shelf.put(memory("redis holds the carts"), memory("redis holds the sessions"))
    assert await shelf.texts("redis NOT carts", KEYWORD) == ["redis holds the sessions"]
    assert await shelf.texts('"holds the carts"', KEYWORD) == ["redis holds the carts"]


async def test_nearness_finds_what_shares_no_whole_word(shelf: Shelf) -> None:
    await shelf.put(memory("authentication by passkey"), memory("lunch is at noon"))
    found = await shelf.search("authenticating", VECTOR)
    assert found.hits[0].record.text == "authentication by passkey"
    assert found.strategy == "vector"
    assert list(found.hits[0].why) == ["meaning"]


async def test_both_legs_count_and_say_so(shelf: Shelf) -> None:
    await shelf.put(memory("tests run on every push"), memory("pushing straight to main is off"))
    found = await shelf.search("which tests run on push")
    best = found.hits[0]
    assert best.record.text == "tests run on every push"
    assert set(best.why) == {"keyword", "meaning"}
    assert best.score == pytest.approx(sum(best.why.values()))
    assert found.strategy == "hybrid"


async def test_what_has_no_vector_yet_is_found_all_the_same(shelf: Shelf) -> None:
    await shelf.put(memory("old news about the parser"), memory("old news about the lexer"))
    await replace_embedder(shelf).put(memory("the parser was rewritten in Rust"))
    assert (await shelf.texts("parser rewritten in Rust"))[0] == "the parser was rewritten in Rust"


def replace_embedder(shelf: Shelf) -> Shelf:
    return Shelf(shelf.stores, None)


async def test_the_author_asked_about_is_preferred_and_nobody_left_out(shelf: Shelf) -> None:
    await shelf.put(
        memory("Hey Ann, I like the new office", author="Bob"), memory("I like the new office too", author="Ann Lee")
    )
    found = await shelf.search("What does Ann like about the new office?")
    assert [hit.record.author for hit in found.hits] == ["Ann Lee", "Bob"]
    assert found.hits[0].why["author"] > 0
    assert "author" not in found.hits[1].why


async def test_the_time_asked_about_is_preferred_and_none_left_out(shelf: Shelf) -> None:
    await shelf.put(
        memory("the release went wrong", occurred_at=DAY_ONE - 40 * DAY),
        memory("the release went wrong again", occurred_at=DAY_ONE - DAY),
    )
    for query, first in (
        ("what went wrong with the release yesterday?", "the release went wrong again"),
        ("what went wrong with the release a month ago?", "the release went wrong"),
    ):
        found = await shelf.search(query)
        assert found.hits[0].record.text == first
        assert found.hits[0].why["date"] > 0
        assert len(found.hits) == 2


async def test_a_turn_is_lifted_by_the_one_beside_it(shelf: Shelf) -> None:
    await shelf.put(
        memory("Where shall we go for the summer party?", session="s", position=1),
        memory("To the lake, as every summer", session="s", position=2),
        memory("The summer intern starts soon", session="s", position=7),
    )
    found = await shelf.search("where is the summer party")
    assert [hit.record.position for hit in found.hits] == [1, 2, 7]
    assert found.hits[1].why["neighbour"] > 0
    assert "neighbour" not in found.hits[2].why


async def test_the_answer_to_a_question_is_lifted_more_than_what_follows_a_statement(shelf: Shelf) -> None:
    await shelf.put(
        memory("The summer party?", session="s", position=1),
        memory("At the lake", session="s", position=2),
        memory("The summer party.", session="t", position=1),
        memory("At the pool", session="t", position=2),
    )
    found = {hit.record.text: hit for hit in (await shelf.search("where is the summer party")).hits}
    assert found["At the lake"].why["neighbour"] > found["At the pool"].why["neighbour"] > 0


async def test_importance_and_freshness_decide_between_equals(shelf: Shelf) -> None:
    await shelf.put(
        memory("the port is 8081", importance=0.2),
        memory("the port is 8082", importance=0.9),
        memory("the port is 8083", importance=0.2, occurred_at=DAY_ONE - 30 * DAY),
    )
    found = await shelf.search("port", MIXED)
    assert [hit.record.text[-1] for hit in found.hits] == ["2", "1", "3"]
    for hit in found.hits:
        assert hit.score == pytest.approx(sum(hit.why.values()))
        assert 0 <= hit.score <= 1
        assert {"importance", "recency"} <= set(hit.why)


async def test_what_is_pinned_or_used_fades_less(shelf: Shelf) -> None:
    old = DAY_ONE - 14 * DAY
    await shelf.put(
        memory("port a", occurred_at=old),
        memory("port b", occurred_at=old),
        memory("port c", occurred_at=old, facets={"pinned": True}),
        memory("port d", occurred_at=old, type="of no known half-life"),
    )

    async def accesses(place: int, ids: Sequence[str]) -> Mapping[str, AccessCount]:
        assert place == 0
        return {"port b": AccessCount(5, DAY_ONE)} if "port b" in ids else {}

    found = await shelf.search("port", MIXED, accesses=accesses)
    recency = {hit.record.text: hit.why["recency"] for hit in found.hits}
    assert 0 < recency["port a"] < recency["port b"] < min(recency["port c"], recency["port d"])


async def test_superseded_and_consolidated_memories_rank_below_and_say_so(shelf: Shelf) -> None:
    await shelf.put(
        memory("the port is 1", facets={"superseded_by": "the port is 3"}),
        memory("the port is 2", facets={"consolidated": True}),
        memory("the port is 3"),
    )
    found = await shelf.search("the port", MIXED)
    assert [hit.record.text[-1] for hit in found.hits] == ["3", "2", "1"]
    best, middle, last = found.hits
    assert middle.score == pytest.approx(best.score * 0.8)
    assert last.score == pytest.approx(best.score * 0.5)
    assert last.why["superseded"] == pytest.approx(-last.score)
    assert middle.why["consolidated"] < 0


@pytest.mark.parametrize("strategy", ["hybrid", "vector"])
async def test_what_only_is_important_and_new_is_not_listed(shelf: Shelf, strategy: Any) -> None:
    await shelf.put(
        memory("the parser is written by hand"), memory("lunch is at noon", importance=1.0, facets={"pinned": True})
    )
    await replace_embedder(shelf).put(memory("no vector yet", importance=1.0))
    found = await shelf.search("parser", replace(MIXED, strategy=strategy), limit=1)
    assert [hit.record.text for hit in found.hits] == ["the parser is written by hand"]
    assert (found.total, found.next_cursor) == (1, None)
    found = await shelf.search("zebra", replace(MIXED, strategy=strategy))
    assert (found.hits, found.total, found.notices) == ([], 0, [])


async def test_the_author_or_the_time_asked_about_is_reason_enough(shelf: Shelf) -> None:
    await shelf.put(
        memory("lunch is at noon", author="Ann", occurred_at=DAY_ONE - 40 * DAY),
        memory("tabs, no spaces", author="Bob", occurred_at=DAY_ONE - DAY),
    )
    assert await shelf.texts("whatever Ann wanted") == ["lunch is at noon"]
    assert await shelf.texts("whatever went on yesterday") == ["tabs, no spaces"]


async def test_two_places_are_one_ranking(two_shelves: Shelf) -> None:
    await two_shelves.put(memory("redis"), memory("lunch at one"))
    await two_shelves.put(memory("I like redis, and so do we all", scope="user"), store=1)
    found = await two_shelves.search("redis", KEYWORD)
    assert {hit.place for hit in found.hits} == {0, 1}
    assert found.hits[0].score == 1 > found.hits[1].score


async def test_a_memory_on_its_way_to_a_broader_scope_is_found_there_alone(two_shelves: Shelf) -> None:
    await two_shelves.put(memory("tabs are forbidden"))
    await two_shelves.put(memory("tabs are forbidden", scope="user"), store=1)
    found = await two_shelves.search("tabs")
    assert [(hit.place, hit.record.scope) for hit in found.hits] == [(1, "user")]
    assert found.total == 1


async def test_each_place_has_filters_of_its_own(two_shelves: Shelf) -> None:
    await two_shelves.put(memory("port one", tags=("x",)), memory("port two"))
    await two_shelves.put(memory("port three", scope="user"), store=1)
    where = [RecordFilter(tags=("x",)), RecordFilter(scopes=("user",))]
    assert set(await two_shelves.texts("port", where=where)) == {"port one", "port three"}


async def test_other_kinds_are_not_found(shelf: Shelf) -> None:
    await shelf.put(memory("port one"), memory("port two", kind="session"))
    assert await shelf.texts("port") == ["port one"]


async def test_pages_follow_each_other_without_gap_or_repeat(shelf: Shelf) -> None:
    await shelf.put(*(memory(f"port {number} of {number % 3}") for number in range(12)))
    whole = await shelf.texts("port 1 of 2", limit=50)
    seen: list[str] = []
    cursor = None
    while True:
        page = await shelf.search("port 1 of 2", limit=5, cursor=cursor)
        assert page.total == 12
        seen += [hit.record.text for hit in page.hits]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == whole
    assert len(whole) == 12


@pytest.mark.parametrize("profile", [KEYWORD, VECTOR, MEMORIES], ids=lambda profile: profile.strategy)
async def test_the_total_says_when_more_records_may_match_than_a_search_takes(
    shelf: Shelf, profile: SearchProfile
) -> None:
    await shelf.put(*(memory(f"port {number}") for number in range(20)), *(memory(f"tree {n}") for n in range(80)))
    found = await shelf.search("port", profile)
    assert (found.total, found.is_lower_bound) == (20, False)
    await shelf.put(*(memory(f"port {number}") for number in range(20, 130)))
    found = await shelf.search("port", profile)
    assert (found.total >= 100, found.is_lower_bound) == (True, True)


async def test_a_total_over_several_places_says_when_matches_were_not_read(two_shelves: Shelf) -> None:
    for store in (0, 1):
        await two_shelves.put(*(memory(f"port {number} in {store}") for number in range(80)), store=store)
    found = await two_shelves.search("port", KEYWORD)
    assert (found.total, found.is_lower_bound) == (128, True)
    found = await two_shelves.search("port", KEYWORD, limit=80)
    assert (found.total, found.is_lower_bound) == (160, False)


async def test_a_cursor_of_another_search_is_refused(shelf: Shelf) -> None:
    with pytest.raises(InvalidInput):
        await shelf.search("x", cursor="WyJhbnkiLCA1XQ==")


async def test_equals_stand_newest_first(shelf: Shelf) -> None:
    await shelf.put(
        memory("port", id="a", occurred_at=DAY_ONE - DAY),
        memory("port", id="c", occurred_at=DAY_ONE),
        memory("port", id="b", occurred_at=DAY_ONE),
    )
    found = await shelf.search("port")
    assert [hit.record.id for hit in found.hits] == ["b", "c", "a"]


async def test_ranks_may_be_fused_instead_of_scores(shelf: Shelf) -> None:
    await shelf.put(memory("tests run on every push"), memory("pushing to main is off"))
    found = await shelf.search("tests on push", replace(MEMORIES, fusion="ranks"))
    assert found.hits[0].why == pytest.approx({"keyword": 0.5, "meaning": 0.5})


@pytest.mark.parametrize(
    "query", ["", " ", "what is it", '"', "(((", "\\ud800"[:0] or "🦜🦜", "NOT", "a" * 100_000, "x y " * 30_000]
)
@pytest.mark.parametrize("strategy", ["keyword", "vector", "hybrid", "graph"])
async def test_no_query_is_an_error(shelf: Shelf, query: str, strategy: Any) -> None:
    await shelf.put(memory("what it is"), memory("parrots 🦜"))
    found = await shelf.search(query, replace(MEMORIES, strategy=strategy), time_limit=60)
    assert all(0 <= hit.score <= 1 for hit in found.hits)
    if not query.strip():
        assert found.hits == []


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.text(max_size=200))
async def test_whatever_is_typed_is_a_query(query: str) -> None:
    shelf = Shelf([MemoryStore()])
    await shelf.put(memory("the parser of Ann", author="Ann"), memory("0 1 2 ä ß 東京"))
    found = await shelf.search(query, MIXED)
    assert all(0 <= hit.score <= 1 for hit in found.hits)


ENTITIES = SearchProfile(kinds=("entity", "observation"), merge_children=True)
FACTS = {
    "Shop API": ["written in C++ and node.js", "lives in src/main.py", "what's up? Alice asked"],
    "Orders": ["foo-bar is its queue", "party at noon 🎉", "東京都の設定を変更した"],
    "Alice": ["knows the parser", "works at Orders on Tuesdays"],
    "Grösse": ["the size of a thing"],
    "getUserName": ["a function"],
    "Plan C": ["nothing to do with languages"],
}


@pytest.fixture
async def store(library: Library) -> RecordStore:
    _, store = await library.open("one")
    steps: list[Insert] = []
    for at, (name, texts) in enumerate(FACTS.items(), start=1):
        steps.append(Insert(Record(name, "entity", at, at, name=name, type="thing", name_key=name.lower())))
        steps += [
            Insert(Record(f"{name}/{i}", "observation", at, at, text=text, parent=name)) for i, text in enumerate(texts)
        ]
    await store.commit(Batch(tuple(steps), 1, "test"))
    return store


async def names(store: RecordStore, query: str, limit: int = 10) -> list[str]:
    found = await search([SearchPlace(store)], query, ENTITIES, limit=limit)
    return [hit.record.name or "" for hit in found.hits]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("C++", "Shop API"),
        ("node.js", "Shop API"),
        ("foo-bar", "Orders"),
        ("foobar", "Orders"),
        ("what's up? Alice", "Shop API"),
        ("src/main.py", "Shop API"),
        ("main.py", "Shop API"),
        ("🎉", "Orders"),
        ("設定", "Orders"),
        ("Größe", "Grösse"),
        ("user name", "getUserName"),
        ("parsers", "Alice"),
        ("arser", "Alice"),
        ("Shop lives", "Shop API"),
        ("Alice AND parser", "Alice"),
        ('"works at"', "Alice"),
        ("pars*", "Alice"),
        ("Alice NOT up", "Alice"),
        ("what is the size of a thing?", "Grösse"),
        ("size elephants", "Grösse"),
    ],
)
async def test_what_people_type_finds_what_they_mean(store: RecordStore, query: str, first: str) -> None:
    assert (await names(store, query))[:1] == [first]


async def test_a_language_is_not_found_by_its_letter(store: RecordStore) -> None:
    assert "Plan C" not in await names(store, "C++")


@pytest.mark.parametrize("query", ['foo" AND (', '"', "AND", "NOT", "", " ", "()", "*", "?!", "a:b", "\t\n", "-"])
async def test_no_text_is_an_error(store: RecordStore, query: str) -> None:
    await search([SearchPlace(store)], query, ENTITIES, limit=10)


async def test_a_name_stands_above_an_observation(store: RecordStore) -> None:
    assert await names(store, "Orders") == ["Orders", "Alice"]


async def test_all_words_go_before_any_and_any_before_parts_of_words(store: RecordStore) -> None:
    async def tier(query: str) -> str | None:
        return (await search([SearchPlace(store)], query, ENTITIES, limit=10)).tier

    assert await tier("works Tuesdays") == "all"
    assert await tier("works elephants") == "any"
    assert await tier("uesday") == "substring"
    assert await tier("works OR elephants") == "expression"
    assert await tier("elephants") is None


async def test_pages_of_tiers_follow_each_other_without_gap_or_repeat(store: RecordStore) -> None:
    whole = await names(store, "the OR in OR a OR at OR to", limit=100)
    assert len(whole) > 3
    seen: list[str] = []
    cursor = None
    while True:
        page = await search([SearchPlace(store)], "the OR in OR a OR at OR to", ENTITIES, limit=2, cursor=cursor)
        seen += [hit.record.name or "" for hit in page.hits]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == whole


@pytest.mark.parametrize("cursor", ["", "x", "bm90IGpzb24=", "WyJhbGwiLCAtMV0=", "NQ==", "é"])
async def test_a_cursor_that_was_never_given_out_is_refused(store: RecordStore, cursor: str) -> None:
    with pytest.raises(InvalidInput):
        await search([SearchPlace(store)], "x", ENTITIES, limit=2, cursor=cursor)
