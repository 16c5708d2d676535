from collections.abc import Sequence

import jsonschema
import pytest

from conversations import DAY, SHOP, Written, assistant, tell, user
from everkept.core.answers import SearchFinding
from everkept.core.sessions import Session, ToolCall
from everkept.errors import StoreBusy
from everkept.families.history.model import DECISION
from everkept.families.history.search_answers import UnifiedAnswer, UnifiedResult
from everkept.retrieval.profile import QueryFit
from everkept.tools.schema import build_value_schema, to_json
from records import DAY_ONE
from unified_search import Everything, Told

BLOG = "/home/ann/blog"


@pytest.fixture
async def told(everything: Everything) -> Everything:
    store = await everything.store()
    await tell(
        store,
        "caching",
        user("Should we cache the product list?"),
        assistant("We decided to cache the product list in Redis.", type=DECISION),
        assistant(
            "Here is the cache helper.",
            code=(Written("def cache_products(ttl):\n    return redis.set()\n", file="cache.py"),),
        ),
        title="Caching products",
    )
    await tell(
        store,
        "theme",
        user("The blog needs a dark theme."),
        assistant("I set the colours of the dark theme."),
        project=BLOG,
        at=DAY_ONE - 30 * DAY,
    )
    everything.now = DAY_ONE + DAY
    return everything


def memory(text: str, score: float = 0.8, key: str = "m1") -> SearchFinding:
    return SearchFinding(key, "memory", text, score, "semantic", at=DAY_ONE)


def codes(answer: UnifiedAnswer) -> list[str]:
    return [warning.code for warning in answer.warnings or ()]


def types(results: Sequence[UnifiedResult]) -> set[str]:
    return {result.type for result in results}


async def test_what_was_said_decided_and_coded_is_found_with_what_others_remember(told: Everything) -> None:
    memories = Told("memories", [memory("The product list is cached for an hour.")])
    answer = await told("what did we decide about caching the product list", memories)
    best = answer.results[0]
    assert (best.type, best.title) == ("decision", "Caching products")
    assert best.content == "We decided to cache the product list in Redis."
    assert (best.source, best.search_type) == ("local", "semantic")
    assert (best.context.project_path, best.context.session_id) == (SHOP, "caching")
    assert best.context.timestamp == "2023-11-14T22:14:20.000Z"
    assert {"decision", "memory"} <= types(answer.results)
    assert answer.intent.primary_intent == "recall_discussion"
    assert answer.warnings is None
    scores = [result.relevance_score for result in answer.results]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


async def test_who_looks_for_code_finds_it_by_its_name_as_typed(told: Everything) -> None:
    answer = await told("where did we define cache_products")
    best = answer.results[0]
    assert (best.type, best.found_in, best.file) == ("code", "code", "cache.py")
    assert best.language == "python"
    assert "cache_products" in best.content
    assert "`cache_products` as typed" in answer.explanation


async def test_a_phrase_finds_the_code_and_a_question_the_turn_around_it(told: Everything) -> None:
    store = await told.store()
    block = "def debounce(call, wait):\n    return Timer(wait, call)"
    answer = assistant(f"This waits:\n\n```python\n{block}\n```", code=(Written(block),))
    await tell(store, "typing", user("The box asks for each key."), answer)
    assert [(await told(text)).results[0].type for text in ("debounce timer", "what does the debounce timer do?")] == [
        "code",
        "conversation",
    ]


async def test_a_good_memory_comes_before_a_turn_with_one_of_the_words(told: Everything) -> None:
    good = memory("The helper of the blog lives in Lisbon.", QueryFit(1.0, 1.0, compared=3).compute_probability(1.0))
    answer = await told("where does the helper of the blog live", Told("memories", [good]))
    assert answer.results[0].id == "m1"


async def test_a_word_that_is_nowhere_as_typed_finds_nothing_by_its_letters(told: Everything) -> None:
    answer = await told("show me the code for quaternion rotations")
    assert "keyword" not in {result.search_type for result in answer.results}


async def test_families_are_asked_by_the_ways_of_the_intent(told: Everything) -> None:
    graph = Told("graph")
    await told("what calls login", graph, limit=30)
    await told("what calls login", graph, include_graph=False)
    await told("what did we decide", graph)
    assert graph.asked == [("what calls login", ("graph", "semantic"), 30), ("what did we decide", ("semantic",), 10)]


async def test_without_the_graph_no_entity_and_no_relation_is_found(told: Everything) -> None:
    entity = SearchFinding("e1", "entity", "Shop API (service)", 0.9, "graph")
    relation = SearchFinding("r1", "relation", "Cart depends_on Shop API", 0.9, "graph")
    graph = Told("graph", [entity, relation])
    for question in ("what depends on Shop API", "Shop API"):
        answer = await told(question, graph, include_graph=False)
        assert {"entity", "relation"}.isdisjoint(types(answer.results))
        assert "graph" not in answer.intent.search_types
        assert "knowledge graph" not in answer.explanation


async def test_the_search_types_of_the_intent_are_those_of_the_results(told: Everything) -> None:
    graph = Told("graph", [SearchFinding("e1", "entity", "product list (page)", 0.9, "graph")])
    for question in ("the product list", "what depends on product list", "where did we define cache_products"):
        answer = await told(question, graph)
        assert {result.search_type for result in answer.results} <= set(answer.intent.search_types)


async def test_who_asks_for_dependencies_gets_the_relation_first(told: Everything) -> None:
    entity = SearchFinding("e1", "entity", "Orders DB (database)", 0.95, "graph", title="Orders DB")
    relation = SearchFinding("r1", "relation", "Shop API reads Orders DB", 0.855, "graph")
    answer = await told("what depends on Orders DB", Told("graph", [entity, relation]), Told("memories", [memory("x")]))
    assert [result.id for result in answer.results[:2]] == ["r1", "e1"]


async def test_a_family_that_fails_is_a_warning(told: Everything) -> None:
    broken = Told("memories", fails_with=StoreBusy("Another process writes."))
    answer = await told("product list", broken)
    assert codes(answer) == ["memories_unavailable"]
    assert "Another process writes." in (answer.warnings or [])[0].message
    assert answer.results
    assert "memories" not in answer.explanation
    assert not answer.is_lasting


async def test_a_family_that_is_late_is_a_warning(told: Everything) -> None:
    quick = Told("bank", [SearchFinding("f.md:1", "section", "product list", 0.9, "semantic")])
    answer = await told("product list", Told("memories", is_late=True), quick, time_limit=1)
    assert "partial_results" in codes(answer)
    assert "section" in types(answer.results)


async def test_what_a_family_could_not_look_at_is_said_once(told: Everything) -> None:
    notices = ["Meaning search is unavailable."]
    answer = await told("product list", Told("memories", notices=notices), Told("bank", notices=notices))
    assert [warning.message for warning in answer.warnings or ()] == notices


async def test_a_history_that_cannot_be_read_hides_nothing_else(told: Everything) -> None:
    async def fail() -> None:
        raise StoreBusy("Another process writes.")

    told.library.open_history_store = fail  # type: ignore[method-assign, assignment]
    answer = await told.unified(Told("memories", [memory("product list")])).search(
        ToolCall(Session(), "x"), "product list"
    )
    assert codes(answer) == ["history_unavailable"]
    assert types(answer.results) == {"memory"}
    assert await told.unified().read_stamp(ToolCall(Session(), "x")) is not None


async def test_a_time_narrows_conversations(told: Everything) -> None:
    answer = await told("what did we discuss yesterday about the product list")
    assert {result.context.session_id for result in answer.results} <= {"caching"}
    assert 'Only conversations on 2023-11-14 are included ("yesterday")' in answer.explanation
    answer = await told("what did we say about the theme a month ago")
    assert {result.context.session_id for result in answer.results} == {"theme"}


async def test_a_time_in_which_nothing_was_said_narrows_nothing(told: Everything) -> None:
    answer = await told("what did we decide about the theme on 2020-01-02")
    assert "theme" in {result.context.session_id for result in answer.results}
    assert 'No conversation on 2020-01-02 ("2020-01-02") matches' in answer.explanation


async def test_a_time_in_which_something_else_was_said_narrows_nothing(told: Everything) -> None:
    answer = await told("what did we discuss yesterday about the theme")
    assert answer.results[0].context.session_id == "theme"
    assert 'No conversation on 2023-11-14 ("yesterday") matches' in answer.explanation
    everything_of_it = await told("what did we do yesterday?")
    assert {result.context.session_id for result in everything_of_it.results} == {"caching"}


async def test_a_decision_about_something_else_is_not_found_by_the_word(told: Everything) -> None:
    store = await told.store()
    await tell(store, "paper", user("The colours of the poster are too pale to print."))
    answer = await told("what did we decide about the colours")
    assert "colours" in answer.results[0].content


async def test_who_looks_for_a_function_finds_its_definition_first(told: Everything) -> None:
    store = await told.store()
    using = Written("cache_products(1)\ncache_products(2)\n", file="cache_products_test.py")
    made = Written("def cache_products(ttl): ...", defines=("cache_products",))
    await tell(store, "use", assistant("Tests of cache_products", code=(using,)))
    await tell(store, "made", assistant("Another one", code=(made,)))
    best = (await told("show me the function cache_products")).results[0]
    assert (best.type, best.content) == ("code", made.text)


async def test_what_is_not_merged_stands_by_its_part(told: Everything) -> None:
    memories = Told("memories", [memory(f"product list {n}", 0.9, f"m{n}") for n in range(5)])
    answer = await told("product list", memories, merge=False, limit=3)
    assert answer.results == []
    groups = {group.found_in: group.results for group in answer.groups or ()}
    assert {"conversations", "memories"} <= groups.keys()
    assert len(groups["memories"]) == 3
    assert all(found.found_in == part for part, some in groups.items() for found in some)
    assert len(answer.all_results) == sum(map(len, groups.values()))


async def test_a_page_has_the_best_of_each_family_and_no_more_than_its_limit(told: Everything) -> None:
    memories = Told("memories", [memory(f"product list {n}", 1.0, f"m{n}") for n in range(9)])
    section = SearchFinding("f.md:1", "section", "the product list", 0.8, "semantic")
    answer = await told("product list", memories, Told("bank", [section]), limit=4)
    assert len(answer.results) == 4
    assert "section" in types(answer.results)


async def test_without_vectors_words_find_and_the_answer_says_so(told: Everything) -> None:
    told.indexing.embedder = None
    answer = await told("product list")
    assert answer.results
    assert "by words only" in answer.explanation


async def test_while_vectors_are_missing_the_answer_does_not_speak_of_meaning(told: Everything) -> None:
    call = ToolCall(Session(), "unified_memory_search")
    answer = await told.unified().search(call, "product list")
    assert answer.results
    assert "by words only" in answer.explanation
    assert "by meaning and words" in (await told("product list")).explanation


async def test_nothing_found_is_an_answer(told: Everything) -> None:
    told.indexing.embedder = None
    answer = await told("zzgnat")
    assert (answer.results, answer.suggestions) == ([], [])
    assert answer.warnings is None


async def test_a_history_without_conversations_is_told(everything: Everything) -> None:
    answer = await everything("product list", Told("memories", [memory("product list")]))
    assert codes(answer) == ["no_history"]
    assert types(answer.results) == {"memory"}
    assert any("everkept import history" in suggestion for suggestion in answer.suggestions)
    assert answer.is_lasting


@pytest.mark.parametrize("query", ["?", "   ", '"', "NOT AND (", "x" * 10_000, "日本語"])
async def test_any_text_is_a_question(told: Everything, query: str) -> None:
    assert (await told(query)).explanation


async def test_the_stamp_changes_with_the_history_and_with_each_family(told: Everything) -> None:
    memories = Told("memories")
    unified = told.unified(memories)
    call = ToolCall(Session(), "x")
    first = await unified.read_stamp(call)
    assert await unified.read_stamp(call) == first
    memories.state = 1
    second = await unified.read_stamp(call)
    assert second != first
    await tell(await told.store(), "more", "And another thing.")
    assert await unified.read_stamp(call) != second
    memories.fails_with = StoreBusy("Another process writes.")
    assert await unified.read_stamp(call) != await unified.read_stamp(call)


async def test_the_answer_is_as_its_schema_says(told: Everything) -> None:
    memories = Told("memories", [memory("product list")])
    for merge in (True, False):
        answer = await told("what did we decide about the product list", memories, merge=merge)
        wire = to_json(answer)
        jsonschema.validate(wire, build_value_schema(UnifiedAnswer))
        assert wire["intent"]["primary_intent"] == "recall_discussion"
        assert wire["intent"]["search_types"] == ["semantic"]
        assert wire["intent"]["entities"]["concepts"] == ["product list"]
        assert ("groups" in wire) is not merge
