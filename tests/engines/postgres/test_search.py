import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everkept.core.fallback_answers import is_match, split_fields
from everkept.core.records import RecordFilter, Weights
from everkept.core.store import MatchWords, MeasureWords
from everkept.engines.postgres import search
from everkept.engines.postgres.search import match, measure_words
from everkept.language.words import AllOf, AnyOf, Without, WordPhrase, WordQuery, parse_query
from examples import examples
from postgres_tables import Tables, said

WORDS = ["red", "redder", "blue", "kettle", "kettles", "re", "parser", "日本", "c3po"]
PHRASES: st.SearchStrategy[WordQuery] = st.builds(
    WordPhrase, st.lists(st.sampled_from(WORDS[:-2]), min_size=1, max_size=3).map(tuple), st.booleans()
)


def wider(inner: st.SearchStrategy[WordQuery]) -> st.SearchStrategy[WordQuery]:
    parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return parts.map(AllOf) | parts.map(AnyOf) | st.builds(Without, inner, inner)


QUERIES: st.SearchStrategy[WordQuery] = st.recursive(PHRASES, wider, max_leaves=6)


def asked(text: str) -> WordQuery:
    words = parse_query(text).build_any_query()
    assert words is not None
    return words


def found(tables: Tables, text: str, limit: int = 10, weights: Weights | None = None) -> list[str]:
    weighed = weights or Weights()
    return [m.id for m in match(tables.cursor, tables.store, MatchWords(asked(text), RecordFilter(), weighed, limit))]


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(QUERIES, st.lists(st.lists(st.sampled_from(WORDS), max_size=6), min_size=1, max_size=6))
def test_what_a_query_finds_is_what_it_means(tables: Tables, query: WordQuery, texts: list[list[str]]) -> None:
    store = tables.another_store()
    tables.add(*(said(" ".join(t), id=str(n)) for n, t in enumerate(texts)), store=store)
    expected = {str(n) for n, text in enumerate(texts) if is_match(split_fields("", " ".join(text), ""), query)}
    result = match(tables.cursor, store, MatchWords(query, RecordFilter(), Weights(), 100))
    assert {m.id for m in result} == expected
    assert [m.score for m in result] == sorted((m.score for m in result), reverse=True)
    assert all(m.score > 0 for m in result)


def test_a_store_answers_for_itself(tables: Tables) -> None:
    other = tables.another_store()
    tables.add(said("kettle", id="mine"))
    tables.add(said("kettle", id="theirs"), said("cup", id="more"), store=other)
    assert found(tables, "kettle") == ["mine"]
    assert measure_words(tables.cursor, tables.store, MeasureWords(["kettle", "cup"])) == {"kettle": 1, "cup": 0}
    assert measure_words(tables.cursor, other, MeasureWords(["kettle"])) == {"kettle": 0.5}
    assert measure_words(tables.cursor, other + 1, MeasureWords(["kettle"])) == {"kettle": 0}


def test_a_rare_word_counts_more_than_a_common_one(tables: Tables) -> None:
    tables.add(*(said("a cup of tea", id=f"cup {n}") for n in range(8)))
    tables.add(said("a kettle of it", id="kettle"))
    assert found(tables, "cup kettle")[0] == "kettle"


def test_more_hits_count_more_and_each_a_little_less(tables: Tables) -> None:
    rest = ["tea", "milk", "water", "cream", "sugar", "lemon", "honey", "ginger"]
    tables.add(
        *(said(" ".join(["kettle"] * n + rest[n:]), id=str(n)) for n in (1, 2, 3, 8)),
        *(said("nothing of it", id=f"other {n}") for n in range(9)),
    )
    result = match(tables.cursor, tables.store, MatchWords(asked("kettle"), RecordFilter(), Weights(), 10))
    assert [m.id for m in result] == ["8", "3", "2", "1"]
    eight, three, two, one = (m.score for m in result)
    assert two - one > three - two > (eight - three) / 5


def test_a_hit_in_a_long_text_counts_less(tables: Tables) -> None:
    long = " ".join(f"word{n}" for n in range(200))
    tables.add(said(f"kettle {long}", id="long"), said("a kettle stands there", id="short"))
    assert found(tables, "kettle") == ["short", "long"]


def test_name_text_and_context_count_as_they_are_weighed(tables: Tables) -> None:
    tables.add(said("cup", id="name", name="kettle"), said("kettle", id="text", name="cup"))
    tables.add(said("cup", id="context", name="cup"), context=["kettle"])
    assert found(tables, "kettle") == ["name", "text", "context"]
    upside_down = Weights(name=0.25, text=1.0, context=9.0)
    assert found(tables, "kettle", weights=upside_down) == ["context", "text", "name"]
    nothing = Weights(name=0, text=0, context=0)
    assert {*found(tables, "kettle", weights=nothing)} == {"name", "text", "context"}


def test_of_equal_matches_the_older_comes_first(tables: Tables) -> None:
    tables.add(*(said("kettle", id=f"m{n}") for n in range(300)))
    assert found(tables, "kettle", limit=3) == ["m0", "m1", "m2"]
    assert found(tables, "kettle", limit=0) == []


def test_what_is_deleted_is_found_by_no_word_and_counts_for_none(tables: Tables) -> None:
    tables.add(*(said("kettle", id=name) for name in "abcd"))
    tables.remove("b")
    assert found(tables, "kettle") == ["a", "c", "d"]
    assert measure_words(tables.cursor, tables.store, MeasureWords(["kettle"])) == {"kettle": 1.0}


def test_where_common_words_would_find_too_many_the_rare_ones_lead(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.add(*(said(f"cup of tea number{n}", id=str(n)) for n in range(100)))
    tables.add(*(said(f"glass of milk number{n}", id=f"glass {n}") for n in range(200)))
    tables.add(said("kettle of tea", id="kettle"), said("cup kettle", id="both"))
    every = found(tables, "kettle cup", limit=100)
    monkeypatch.setattr(search, "ENOUGH_RECORDS", 2)
    assert found(tables, "kettle cup", limit=2) == every[:2] == ["both", "kettle"]
    assert found(tables, "kettle cup", limit=100) == every


def test_in_a_large_store_common_words_are_estimated_and_rare_ones_counted(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(4)
    texts = [f"cup {'kettle' if chance.random() < 0.3 else ''} n{n}" for n in range(2_000)]
    tables.add(*(said(text, id=str(n)) for n, text in enumerate(texts)))
    asking = ["cup", "kettle", "n77", "nothing"]
    counted = measure_words(tables.cursor, tables.store, MeasureWords(asking))
    monkeypatch.setattr(search, "MAX_EXACT_RECORDS", 100)
    estimated = measure_words(tables.cursor, tables.store, MeasureWords(asking))
    assert counted["n77"] == 1 / 2_000
    assert estimated != counted
    assert estimated == pytest.approx(counted, abs=0.1)
    assert estimated["n77"] == pytest.approx(1 / 2_000)
    assert estimated["nothing"] == 0
    assert found(tables, "n77 cup", limit=1) == ["77"]


def test_of_more_than_can_be_ranked_those_whose_name_fits_are_not_lost(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_RANKED_RECORDS", 20)
    tables.add(
        said("all about it", id="named", name="red kettle"),
        said("red kettle", id="other", name="nothing"),
        said("blue and redder", id="begun", name="kettledrums of the band"),
        said("kettle", id="gone", name="kettle"),
    )
    tables.remove("gone")
    tables.add(*(said(f"a red kettle among many other things {n}", id=str(n)) for n in range(60)))
    assert found(tables, "kettle")[0] == "named"
    both = AllOf((WordPhrase(("red",)), WordPhrase(("kettle",))))
    for query in (both, WordPhrase(("red", "kettle")), Without(both, WordPhrase(("blue",)))):
        result = match(tables.cursor, tables.store, MatchWords(query, RecordFilter(), Weights(), 5))
        assert result[0].id == "named"
        assert len({m.id for m in result}) == 5
    begun = match(
        tables.cursor, tables.store, MatchWords(WordPhrase(("kettled",), True), RecordFilter(), Weights(), 99)
    )
    assert [m.id for m in begun] == ["begun"]
    assert "named" not in [
        m.id for m in match(tables.cursor, tables.store, MatchWords(both, RecordFilter(kinds=("x",)), Weights(), 99))
    ]


@pytest.mark.parametrize("live", [50, 3_000])
def test_words_are_counted_where_almost_all_that_came_is_gone(tables: Tables, live: int) -> None:
    tables.connection.execute("UPDATE stores SET ages = 1000000")
    tables.add(*(said(f"kettle {'cup' if n % 2 else ''}", id=str(n)) for n in range(live)))
    shares = measure_words(tables.cursor, tables.store, MeasureWords(["kettle", "cup", "nothing"]))
    assert shares == {"kettle": 1.0, "cup": 0.5, "nothing": 0.0}


def test_words_are_estimated_where_few_ages_are_those_of_records(tables: Tables) -> None:
    tables.add(*(said(f"kettle {'cup' if n % 2 else ''}", id=str(n)) for n in range(2_000)))
    tables.connection.execute("UPDATE records SET age = age * 200 + age % 7")
    tables.connection.execute("UPDATE stores SET ages = 400007")
    shares = measure_words(tables.cursor, tables.store, MeasureWords(["kettle", "cup", "nothing"]))
    assert shares["kettle"] == 1.0
    assert shares["cup"] == pytest.approx(0.5, abs=0.2)


def test_nothing_is_asked_for_no_words(tables: Tables) -> None:
    assert measure_words(tables.cursor, tables.store, MeasureWords([])) == {}
