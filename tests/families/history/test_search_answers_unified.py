from conversations import DAY, Written, assistant, tell, user
from everkept.core.answers import SearchFinding
from everkept.families.history.model import DECISION
from everkept.families.history.search_answers import format_unified_answer
from records import DAY_ONE
from unified_search import Everything, Told


async def test_everything_stands_under_its_heading_with_how_it_was_found(everything: Everything) -> None:
    await tell(
        await everything.store(),
        "caching",
        user("How long do we cache the product list?"),
        assistant("We decided on an hour for the product list.", type=DECISION),
        assistant("Done.", code=(Written("def cache_product_list(): ...", file="cache.py"),)),
    )
    everything.now = DAY_ONE + 3 * DAY
    memories = Told("memories", [SearchFinding("m1", "memory", "The list is cached.", 0.9, "semantic")])
    question = "what did we decide about cache_product_list"
    answer = await everything(question, memories)
    text = format_unified_answer(answer, question, everything.now)
    assert text.startswith(f'I found {len(answer.results)} results about "{question}".')
    assert "### Previous Discussions" in text
    assert "3 days ago" in text
    assert "We decided on an hour" in text
    assert "### Related Code" in text
    assert "def cache_product_list" in text
    assert "### Also Stored" in text
    assert "The list is cached." in text
    assert f"**How I searched:** {answer.explanation}" in text
    assert all(result.id in text for result in answer.results)
    told = answer.with_text(text)
    assert (told.sentence, told) == (text, answer)


async def test_relations_have_a_heading_of_their_own(everything: Everything) -> None:
    relation = SearchFinding("l1", "relation", "Billing stores_in Postgres", 0.9, "graph")
    answer = await everything("what uses Postgres", Told("graph", [relation]))
    text = format_unified_answer(answer, "what uses Postgres", everything.now)
    assert "### Code Relationships" in text
    assert "Billing stores\\_in Postgres" in text or "Billing stores_in Postgres" in text


async def test_what_is_not_merged_is_shown_too(everything: Everything) -> None:
    memories = Told("memories", [SearchFinding("m1", "memory", "The list is cached.", 0.9, "semantic")])
    answer = await everything("the list", memories, merge=False)
    assert "The list is cached." in format_unified_answer(answer, "the list", everything.now)


async def test_nothing_found_is_said(everything: Everything) -> None:
    answer = await everything("anything")
    text = format_unified_answer(answer, "anything", everything.now)
    assert text.startswith('I couldn\'t find anything about "anything".')
    assert "everkept import history" in text
