"""How well words find, where the database has an opinion of its own."""

from everkept.core.records import Match, RecordFilter, Weights
from everkept.engines.surreal.store import SurrealStore
from everkept.language.words import parse_query
from records import batch, entity, memory
from surreal_libraries import Shelf
from surreal_stores import store_over


async def found(store: SurrealStore, text: str, limit: int = 100) -> list[Match]:
    query = parse_query(text)
    words = query.expression or query.build_any_query()
    assert words is not None
    return await store.match(words, RecordFilter(), Weights(), limit)


async def test_a_word_that_nearly_all_have_counts_a_little(namespace: Shelf) -> None:
    store = store_over(namespace.connection())
    said = [memory(f"common word {n}", id=f"m{n}") for n in range(9)]
    await store.commit(batch(*said, memory("common rare", id="rare")))
    matches = await found(store, "common rare")
    assert [match.id for match in matches] == ["rare", *(f"m{n}" for n in range(9))]
    assert all(match.score > 0 for match in matches)
    assert [match.id for match in await found(store, "common rare", 3)] == ["rare", "m0", "m1"]


async def test_who_has_more_of_the_words_comes_first(namespace: Shelf) -> None:
    store = store_over(namespace.connection())
    others = [memory(f"other thing {n}", id=f"o{n}") for n in range(20)]
    one, both = memory("blue sky", id="one"), memory("blue parser", id="both")
    named = entity("Parser", id="named")
    await store.commit(batch(*others, one, both, named))
    assert [match.id for match in await found(store, "blue parser")] == ["named", "both", "one"]


async def test_words_stand_together_or_begin_as_asked(namespace: Shelf) -> None:
    store = store_over(namespace.connection())
    texts = ["red blue green", "blue red", "redder blues", "the parser", "parsley", "日本語"]
    await store.commit(batch(*map(memory, texts)))

    async def ids(text: str) -> set[str]:
        return {match.id for match in await found(store, text)}

    assert await ids('"red blue"') == {"red blue green"}
    assert await ids('"red blu"*') == {"red blue green"}
    assert await ids("pars*") == {"the parser", "parsley"}
    assert await ids("pars* NOT the*") == {"parsley"}
    assert await ids("red AND blue") == {"red blue green", "blue red"}
    assert await ids("日本") == {"日本語"}


async def test_a_word_in_several_parts_is_counted_once(namespace: Shelf) -> None:
    store = store_over(namespace.connection())
    await store.commit(batch(entity("Ada", text="ada and ada", id="1"), entity("Bob", id="2")))
    assert await store.measure_words(["ada", "bob", "none"]) == {"ada": 0.5, "bob": 0.5, "none": 0.0}
