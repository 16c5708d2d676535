"""What code of past conversations calls what, as a search over everything tells it."""

import pytest

from everkept.core.records import Batch, Insert
from everkept.families.history.code.linking import links_of
from everkept.families.history.code.outlines import Called, Defined, Outline
from everkept.families.history.model import IMPORT, code_id
from everkept.families.history.unified.relations import relations
from everkept.retrieval.intent import Entities
from telling import SHOP, Written, assistant, tell
from unifying import Everything

CODE = "def checkout(cart):\n    login()\n    return cart.total()\n"


@pytest.fixture
async def coded(everything: Everything) -> Everything:
    store = await everything.store()
    said = assistant("The checkout.", code=(Written(CODE, file="shop.py"),))
    (turn,) = await tell(store, "shop", said)
    (code,) = await store.get([code_id(turn, 0)])
    outline = Outline(
        defines=(Defined("checkout", "function"),),
        calls=(Called("login", "checkout"), Called("total", "checkout")),
    )
    symbols, links = links_of(code, outline)
    steps = tuple(Insert(item) for item in (*symbols, *links))
    await store.commit(Batch(steps, code.created_at, IMPORT, derived=True))
    return everything


async def test_who_calls_a_function_is_found_with_where_it_was_shown(coded: Everything) -> None:
    answer = await coded("what calls login?")
    found = next(result for result in answer.results if result.type == "relation")
    assert found.content == "`checkout` calls `login` in shop.py"
    assert (found.search_type, found.found_in) == ("graph", "code")
    assert (found.context.project_path, found.context.session_id) == (SHOP, "shop")
    assert (found.file, found.language) == ("shop.py", "python")
    assert found.id.startswith("code_")
    assert "by the relations between things" in answer.explanation


async def test_to_whom_asks_who_calls_it_the_relation_comes_before_what_was_said(
    coded: Everything,
) -> None:
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
    asked = Entities(concepts=("checkout flow",))
    assert await relations(store, asked, 10, words_too=False) == []
    by_word = await relations(store, asked, 10, words_too=True)
    by_name = await relations(store, Entities(("checkout",)), 10, words_too=True)
    assert {found.content for found in by_word} == {found.content for found in by_name}
    assert by_word[0].relevance_score < by_name[0].relevance_score
    assert await relations(store, Entities(("nothing",)), 10, words_too=True) == []
