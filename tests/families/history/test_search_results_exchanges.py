import pytest

from conversations import Said, assistant, embed, tell, user
from everkept.core.ports import RecordStore
from everkept.families.history.model import DECISION, SAID
from everkept.families.history.relevance import QueryContext, find_turns
from everkept.families.history.search_results import is_asking, lead_with_answers, read_exchanges
from hash_embedder import HashingEmbedder

ASKING = QueryContext(HashingEmbedder())


async def led(store: RecordStore, query: str, *types: str) -> list[str]:
    await embed(store)
    found = await find_turns(store, query, asking=ASKING, types=types)
    return [hit.record.text for hit in (await lead_with_answers(store, query, found.hits, types)).hits]


@pytest.mark.parametrize(
    "text",
    [
        "Which cache do we take?",
        "Add rate limiting to the login endpoint",
        "ok, now write the webhook retry code",
        "Please make the button blue",
        "The list is slow. Can you speed it up",
        "let's refactor the parser",
        "We need to support CSV files",
    ],
)
async def test_questions_and_requests_are_recognized(store: RecordStore, text: str) -> None:
    [turn] = await store.get(await tell(store, "s1", user(text)))
    assert is_asking(turn)


@pytest.mark.parametrize(
    "turn",
    [
        user("The gateway listens on port 8443."),
        user("```\nadd?\n```"),
        user("We use Redis instead of Memcached?", type=DECISION),
        user("We always run the linter before a commit. Can you fix the login?"),
        assistant("Which cache do we take?"),
    ],
)
async def test_statements_and_decisions_ask_nothing(store: RecordStore, turn: Said) -> None:
    [record] = await store.get(await tell(store, "s1", turn))
    assert not is_asking(record)


async def test_the_answer_represents_the_question(store: RecordStore) -> None:
    await tell(
        store,
        "s1",
        user("Add rate limiting to the login endpoint"),
        assistant("A token bucket of five attempts now guards the login."),
    )
    assert await led(store, "rate limiting of the login") == ["A token bucket of five attempts now guards the login."]


async def test_a_decision_leads_whoever_states_it(store: RecordStore) -> None:
    await tell(
        store,
        "s1",
        user("Which cache do we take for the product list?"),
        assistant("Redis, or a dictionary for the product list in the process."),
        user("Fine, let's go with Redis.", type=DECISION),
    )
    assert (await led(store, "cache of the product list"))[0] == "Fine, let's go with Redis."
    assert (await led(store, "cache of the product list", SAID))[0].startswith("Redis, or a dictionary")


async def test_an_answer_that_says_nothing_does_not_lead(store: RecordStore) -> None:
    request = "Add rate limiting to the login endpoint"
    await tell(store, "s1", user(request), assistant("Done, great."), user("Thanks"))
    await tell(store, "s2", user("How does the rate limiting of the login work?"), assistant("Ok."))
    assert set(await led(store, "rate limiting of the login")) == {
        request,
        "How does the rate limiting of the login work?",
    }


async def test_answers_end_where_the_user_speaks_again(store: RecordStore) -> None:
    ids = await tell(
        store, "s1", user("One?"), assistant("First."), assistant("Second."), user("Two?"), assistant("Third.")
    )
    turns = await store.get(ids)
    exchanges = await read_exchanges(store, turns)
    assert [[each.text for each in exchanges.answers[key]] for key in (ids[0], ids[3])] == [
        ["First.", "Second."],
        ["Third."],
    ]
