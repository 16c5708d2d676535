"""What code of past conversations calls what, as a search over everything tells it."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import SHOP, Written, assistant, tell
from everkept.core.records import Batch, Insert
from everkept.families.history.call_trace import build_symbol_links
from everkept.families.history.code_outlines import CodeCall, CodeDefinition, CodeOutline
from everkept.families.history.conversation_reader import resolve_target
from everkept.families.history.model import IMPORT_TOOL, build_code_id
from everkept.families.history.unified_conversations import build_literal_query, find_relations, parse_period
from everkept.retrieval.intent import QuestionEntities
from unified_search import Everything

NOW = int(datetime(2026, 3, 18, 12, tzinfo=UTC).timestamp()) * 1_000_000  # a Wednesday


@pytest.mark.parametrize(
    ("question", "days"),
    [
        ("what did we decide yesterday", "on 2026-03-17"),
        ("what did we decide last week about caching", "from 2026-03-09 to 2026-03-15"),
        ("we talked on 2026-03-02", "on 2026-03-02"),
        ("what was said in February", "from 2026-02-01 to 2026-02-28"),
        ("conversations from last month", "from 2026-02-01 to 2026-02-28"),
        ("what did we talk about yesterday", "on 2026-03-17"),
        ("everything since last week", "since 2026-03-09"),
        ("after 2026-03-02", "since 2026-03-03"),
        ("what did we use before February", "until 2026-01-31"),
        ("until yesterday", "until 2026-03-17"),
        ("decisions by 2026-03-02", "until 2026-03-02"),
    ],
)
def test_a_time_narrows_as_its_words_say(question: str, days: str) -> None:
    meant = parse_period(question, NOW, UTC)
    assert meant is not None
    assert meant.format_days(UTC) == days
    assert meant.said in question


@pytest.mark.parametrize(
    "question",
    [
        "what did we decide",
        "around last week",
        "it was about last week",
        "between 2026-03-02 and 2026-03-09",
        "yesterday or last week",
        "on 31 February 2026",
        "in early March",
    ],
)
def test_no_time_several_or_one_that_is_only_near_narrow_nothing(question: str) -> None:
    assert parse_period(question, NOW, UTC) is None


def test_days_begin_where_the_one_who_asks_is() -> None:
    west = timezone(timedelta(hours=-8))
    meant = parse_period("yesterday", NOW, west)
    assert meant is not None
    assert meant.format_days(west) == "on 2026-03-17"
    assert meant.after == int(datetime(2026, 3, 17, 8, tzinfo=UTC).timestamp()) * 1_000_000


@given(st.text())
def test_no_question_is_an_error(question: str) -> None:
    meant = parse_period(question, NOW, UTC)
    assert meant is None or meant.format_days(UTC)


def test_names_are_looked_for_as_they_were_typed_and_else_all_words() -> None:
    assert build_literal_query(QuestionEntities(("parse_query",), ("a.py",), ("cache",))) == '"parse_query" OR "a.py"'
    assert build_literal_query(QuestionEntities(concepts=("retry logic", "cache"))) == '"retry logic" AND "cache"'
    assert build_literal_query(QuestionEntities()) is None


def test_a_quote_in_a_name_ends_no_phrase() -> None:
    assert build_literal_query(QuestionEntities(concepts=('say "hi"',))) == '"say  hi "'


CODE = "def checkout(cart):\n    login()\n    return cart.total()\n"


@pytest.fixture
async def coded(everything: Everything) -> Everything:
    store = await everything.store()
    said = assistant("The checkout.", code=(Written(CODE, file="shop.py"),))
    (turn,) = await tell(store, "shop", said)
    (code,) = await store.get([build_code_id(turn, 0)])
    outline = CodeOutline(
        defines=(CodeDefinition("checkout", "function"),),
        calls=(CodeCall("login", "checkout"), CodeCall("total", "checkout")),
    )
    symbols, links = build_symbol_links(code, outline)
    steps = tuple(Insert(item) for item in (*symbols, *links))
    await store.commit(Batch(steps, code.created_at, IMPORT_TOOL, derived=True))
    return everything


async def test_who_calls_a_function_is_found_with_where_it_was_shown(coded: Everything) -> None:
    answer = await coded("what calls login?")
    found = next(result for result in answer.results if result.type == "relation")
    assert found.content == "`checkout` calls `login` in shop.py"
    assert (found.search_type, found.found_in) == ("graph", "code")
    assert (found.context.project_path, found.context.session_id) == (SHOP, "shop")
    assert (found.file, found.language) == ("shop.py", "python")
    assert "through relations" in answer.explanation


async def test_each_relation_has_its_own_id_which_opens_its_conversation(coded: Everything) -> None:
    answer = await coded("what does checkout call?")
    relations = [result for result in answer.results if result.type == "relation"]
    assert len({result.id for result in answer.results}) == len(answer.results) > 2
    assert len(relations) > 1
    for relation in relations:
        opened = await resolve_target(await coded.store(), relation.id)
        assert opened.session == "shop"


async def test_to_whom_asks_who_calls_it_the_relation_comes_before_what_was_said(coded: Everything) -> None:
    await tell(await coded.store(), "talk", "What calls login? What calls login?")
    answer = await coded("what calls login?")
    assert answer.results[0].content == "`checkout` calls `login` in shop.py"


async def test_without_the_graph_no_relation_is_given(coded: Everything) -> None:
    answer = await coded("what calls login?", include_graph=False)
    assert "relation" not in {result.type for result in answer.results}


async def test_relations_that_nobody_asked_for_are_suggested(coded: Everything) -> None:
    answer = await coded("show me the function login")
    assert "relation" not in {result.type for result in answer.results}
    assert "What calls `login`?" in answer.suggestions


async def test_ordinary_words_are_tried_as_names_where_there_are_none(coded: Everything) -> None:
    store = await coded.store()
    asked = QuestionEntities(concepts=("checkout flow",))
    assert await find_relations(store, asked, 10, words_too=False) == []
    by_word = await find_relations(store, asked, 10, words_too=True)
    by_name = await find_relations(store, QuestionEntities(("checkout",)), 10, words_too=True)
    assert {found.content for found in by_word} == {found.content for found in by_name}
    assert by_word[0].relevance_score < by_name[0].relevance_score
    assert await find_relations(store, QuestionEntities(("nothing",)), 10, words_too=True) == []
